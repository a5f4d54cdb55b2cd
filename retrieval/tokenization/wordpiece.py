# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT's WordPiece (Devlin et al. 2018), through the `tokenizers` library.

A special token in a text, such as [SEP], is read as text.
"""

from collections.abc import Sequence
import json
import os
import pathlib
from typing import Any

import numpy as np

from retrieval import arguments
from retrieval.readers import text_files
from retrieval.store import manifests, output_files
from retrieval.tokenization import base, rust_tokenizers

FILES = ('tokenizer.json', 'vocab.txt')
_SPECIALS = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')


class WordPieceTokenizer(base.Tokenizer):
  """WordPiece from vocab.txt, tokenizer.json or a folder with one.

  Beside the ids of every tokenizer it has `unk_id`, `cls_id` (also the BOS),
  `sep_id` (also the EOS) and `mask_id`.
  """

  def __init__(self, path: str | os.PathLike):
    """Load vocab.txt, tokenizer.json, or a folder that holds either.

    tokenizer_config.json beside vocab.txt says whether case and accents stay.
    """
    path = base.find(path, FILES)
    self._tokenizer, self._path = _load(path), str(path)
    ids = {token: self._tokenizer.token_to_id(token) for token in _SPECIALS}
    missing = [token for token, i in ids.items() if i is None]
    if missing:
      raise ValueError(f'{path}: the vocabulary lacks {", ".join(missing)}.')
    self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
      ids.values()
    )
    self.bos_id, self.eos_id = self.cls_id, self.sep_id
    self.vocab_size = max(self._tokenizer.get_vocab().values()) + 1
    self.fingerprint = manifests.fingerprint(self._tokenizer.to_str())

  def __setstate__(self, state):
    """The library does not pickle that specials are text."""
    self.__dict__ |= state
    self._tokenizer.encode_special_tokens = True

  def id_of(self, token: str) -> int:
    """Return the id of a wordpiece; ValueError for an unknown one."""
    i = self._tokenizer.token_to_id(token)
    if i is None:
      raise ValueError(
        f'The vocabulary of {self.vocab_size:,} lacks {token!r}.'
      )
    return i

  def encode_batch(self, texts: Sequence[str]) -> list[base.Encoding]:
    """Encode texts on all cores; add no specials."""
    texts = list(arguments.texts(texts, 'texts'))
    return [
      base.Encoding(
        np.asarray(encoding.ids, np.int32),
        base.byte_offsets(text, encoding.offsets),
      )
      for text, encoding in zip(texts, self._encode(texts), strict=True)
    ]

  def _encode(self, texts: list[str]) -> list[Any]:
    with rust_tokenizers.refusing(self._path, 'cannot encode a text'):
      return self._tokenizer.encode_batch(texts, add_special_tokens=False)

  def encode_ids_batch(
    self, texts: Sequence[str], max_length: int
  ) -> list[list[int]]:
    """Encode texts for BERT: [CLS] text [SEP], at most `max_length` ids."""
    texts = list(arguments.texts(texts, 'texts'))
    return [
      [self.cls_id, *encoding.ids[: max_length - 2], self.sep_id]
      for encoding in self._encode(texts)
    ]

  def decode(self, ids: Sequence[int | np.integer] | np.ndarray) -> str:
    """Decode ids, without specials; the blanks are WordPiece's guess."""
    ids = np.asarray(ids, np.int64).tolist()
    return self._tokenizer.decode(ids, skip_special_tokens=True)

  def save(self, path: str | os.PathLike) -> None:
    """Write tokenizer.json into the folder `path`."""
    file = pathlib.Path(path) / 'tokenizer.json'
    output_files.write(file, self._tokenizer.to_str())


def _load(path: pathlib.Path):
  import tokenizers

  if path.suffix == '.json':
    spec = rust_tokenizers.read_spec(path)
    for token in spec.get('added_tokens') or ():
      token['special'] = token.get('special') or token['content'] in _SPECIALS
    return rust_tokenizers.make(spec, path)
  config = path.with_name('tokenizer_config.json')
  settings = manifests.read_object(config) if config.is_file() else {}
  # Of a piece that occurs twice the last id counts, as in BERT.
  vocabulary = {}
  for i, (_, line) in enumerate(text_files.lines(path)):
    if isinstance(line, ValueError):
      raise line
    vocabulary[line.rstrip()] = i
  with rust_tokenizers.refusing(path, 'not a WordPiece vocabulary'):
    bert = tokenizers.implementations.BertWordPieceTokenizer(
      vocabulary, lowercase=settings.get('do_lower_case', True)
    )
    return rust_tokenizers.make(json.loads(bert.to_str()), path)
