# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of tokens that a late-interaction model reads, and its settings.

Khattab and Zaharia 2020, section 3.2:

  query     [CLS] [Q] text [SEP] [MASK] ... [MASK]   always of the same length
  passage   [CLS] [D] text [SEP]                     punctuation has no vector

Dimension key: n tokens of a row.
"""

from collections.abc import Sequence
import contextlib
import dataclasses
import json
import string
from typing import Any

from jaxtyping import Bool, Int
import numpy as np
import tokenizers

from retrieval import arguments, settings, tokenization
from retrieval.nn import bert, sentence_layers
from retrieval.store import manifests
from retrieval.tokenization import rust_tokenizers

PUNCTUATION = tuple(string.punctuation)
_MIN_LENGTH = 4  # three specials and a wordpiece
# fields that are in every identity
_FIRST = ('vector_size', 'query_length', 'passage_length')
_FIRST += ('query_marker', 'passage_marker')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColbertConfig:
  """Vectors and rows; the defaults are the paper's, but for passage_length."""

  vector_size: bert.Width = 128  # D
  query_length: bert.Length = 32  # specials included; longer ones are cut
  passage_length: bert.Length = 128  # specials included (paper: 180)
  # second tokens of rows, which tell queries from passages; '': none
  query_marker: str = '[unused0]'
  passage_marker: str = '[unused1]'
  query_prompt: str = ''  # text before each query
  passage_prompt: str = ''
  strip: bool = False  # whether white space around a text is cut off
  # tokens to which [MASK] fills a query; None is query_length, 0 does not fill
  filled_length: settings.SizeOrZero | None = None
  attend_to_masks: bool = True  # whether tokens attend to a query's [MASK]
  # Passages have no vectors for these words; words outside the vocabulary are ignored.
  skip_words: tuple[str, ...] = PUNCTUATION
  # above the encoder, as of `sentence_layers.read`
  layers: tuple[str, ...] = (
    sentence_layers.IDENTITY,
    sentence_layers.NORMALIZE,
  )

  def __post_init__(self):
    settings.check(self)
    for name in ('query_length', 'passage_length'):
      if (value := getattr(self, name)) < _MIN_LENGTH:
        raise settings.SettingsError(name, value, f'at least {_MIN_LENGTH}')

  def identity(self) -> dict[str, Any]:
    """Return the fields that decide vectors, without newer defaults."""
    fields = {'mask_punctuation': self.skip_words == PUNCTUATION}
    for field in dataclasses.fields(self):
      value = getattr(self, field.name)
      if field.name in _FIRST or value != field.default:
        fields[field.name] = value
    if not self.skip_words:
      del fields['skip_words']
    return fields


class JsonTokenizer:
  """The tokenizer of a tokenizer.json of any kind."""

  def __init__(
    self, tokenizer: tokenizers.Tokenizer, mask_token: str, path: str
  ):
    """Look the specials up; `path` is named in errors."""
    self._tokenizer, self._path = tokenizer, path
    tokenizer.no_padding()
    tokenizer.no_truncation()
    self._specials_after = tokenizer.num_special_tokens_to_add(False) - 1
    if self._specials_after < 0:
      raise ValueError(f'{path}: expected a special token before each text.')
    self.mask_id = self.id_of(mask_token)
    spec = json.loads(tokenizer.to_str())
    self.fingerprint = manifests.fingerprint([spec, mask_token])

  def id_of(self, token: str) -> int:
    """Return the id of a token; ValueError for an unknown one."""
    i = self._tokenizer.token_to_id(token) if isinstance(token, str) else None
    if i is None:
      raise ValueError(f'{self._path}: the vocabulary lacks {token!r}.')
    return i

  def encode_ids_batch(
    self, texts: Sequence[str], max_length: int
  ) -> list[list[int]]:
    """Return at most `max_length` ids of each text, specials included."""
    texts = list(arguments.texts(texts, 'texts'))
    with rust_tokenizers.refusing(self._path, 'cannot encode a text'):
      encodings = self._tokenizer.encode_batch_fast(texts)
    end = self._specials_after
    return [
      x if len(x) <= max_length else x[: max_length - end] + x[len(x) - end :]
      for x in (encoding.ids for encoding in encodings)
    ]


Tokenizer = tokenization.WordPieceTokenizer | JsonTokenizer


class Rows:
  """Rows of ids for queries and passages."""

  def __init__(self, config: ColbertConfig, tokenizer: Tokenizer):
    """Look markers and skipped words up.

    ValueError for an unknown marker, and where a passage may have no vector.
    """
    self.config, self._tokenizer = config, tokenizer
    markers = config.query_marker, config.passage_marker
    self._query, self._passage = (
      [tokenizer.id_of(x)] if x else [] for x in markers
    )
    self._skipped = []
    for word in config.skip_words:
      with contextlib.suppress(ValueError):
        self._skipped.append(tokenizer.id_of(word))
    first = tokenizer.encode_ids_batch([''], config.passage_length)[0][0]
    if first in self._skipped:
      raise ValueError(
        f'skiplist_words {config.skip_words}; expected none that every text begins with.'
      )

  def queries(self, texts: Sequence[str]) -> list[list[int]]:
    """Return rows of ids, filled with [MASK]; ~id where no token attends to it."""
    config = self.config
    rows = self._marked(
      texts, config.query_prompt, self._query, config.query_length
    )
    length, mask = config.filled_length, self._tokenizer.mask_id
    length = config.query_length if length is None else length
    fill = mask if config.attend_to_masks else ~mask
    return [row + [fill] * (length - len(row)) for row in rows]

  def passages(self, texts: Sequence[str]) -> list[list[int]]:
    """Return rows of at most `passage_length` ids, without padding."""
    config = self.config
    return self._marked(
      texts, config.passage_prompt, self._passage, config.passage_length
    )

  def has_vector(self, ids: Int[np.ndarray, ' n']) -> Bool[np.ndarray, ' n']:
    """Return False for the skipped words of a passage."""
    return ~np.isin(ids, self._skipped)

  def _marked(
    self, texts: Sequence[str], prompt: str, marker: list[int], length: int
  ) -> list[list[int]]:
    texts = [prompt + text for text in arguments.texts(texts, 'texts')]
    if self.config.strip:
      texts = [text.strip() for text in texts]
    rows = self._tokenizer.encode_ids_batch(texts, length - len(marker))
    return [[row[0], *marker, *row[1:]] for row in rows]
