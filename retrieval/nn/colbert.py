# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Late interaction: a vector for each token of query and passage (ColBERT).

Khattab and Zaharia 2020, sections 3.2 and 3.3. The score of a passage is the sum,
over the query's tokens, of the largest cosine with a token of the passage.

  query     [CLS] [Q] text [SEP] [MASK] ... [MASK]   always of the same length
  passage   [CLS] [D] text [SEP]                     punctuation has no vector

Dimension key: A queries, Q query length; P passages, L passage length; D vector.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import os
import string
from typing import Any, NamedTuple

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from retrieval import arguments, settings, tokenization
from retrieval.formats import weights
from retrieval.kernels import products
from retrieval.nn import (
  batch_encoder,
  bert,
  bert_checkpoint,
  trained_encoders,
)
from retrieval.store import hub, manifests

_ARTIFACT = 'artifact.metadata'  # of colbert-ai
_STATED = {  # its fields -> ours
  'dim': 'vector_size',
  'query_maxlen': 'query_length',
  'doc_maxlen': 'passage_length',
  'query_token_id': 'query_marker',
  'doc_token_id': 'passage_marker',
  'mask_punctuation': 'mask_punctuation',
  'attend_to_mask_tokens': 'attend_to_masks',
}
_MIN_LENGTH = 4  # three specials and a wordpiece
_AT_ONCE = 256  # queries whose passages are encoded together


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColbertConfig:
  """Vectors and rows; the defaults are the paper's, but for passage_length."""

  vector_size: bert.Width = 128  # D
  query_length: bert.Length = 32  # Q, specials included; longer ones are cut
  passage_length: bert.Length = 128  # L, specials included (paper: 180)
  # wordpieces that tell queries from passages: BERT leaves them unused
  query_marker: str = '[unused0]'
  passage_marker: str = '[unused1]'
  mask_punctuation: bool = True  # whether punctuation has no vector
  attend_to_masks: bool = True  # whether tokens attend to a query's [MASK]

  def __post_init__(self):
    settings.check(self)
    for name in ('query_length', 'passage_length'):
      if (value := getattr(self, name)) < _MIN_LENGTH:
        raise settings.SettingsError(name, value, f'at least {_MIN_LENGTH}')

  def identity(self) -> dict[str, Any]:
    """Return the fields that decide vectors, without newer defaults."""
    fields = dataclasses.asdict(self)
    if self.attend_to_masks:
      del fields['attend_to_masks']
    return fields


class Colbert(nn.Module):
  """BERT and a linear layer without bias; vectors have length 1."""

  config: bert.BertConfig
  vector_size: int = 128

  @nn.compact
  def __call__(
    self,
    ids: Int[Array, 'b l'],
    mask: Bool[Array, 'b l'],
  ) -> Float[Array, 'b l d']:
    """Return the float32 vectors of all tokens; arguments as of `Bert`."""
    hidden = bert.Bert(self.config, name='bert')(ids, mask).hidden
    vectors = nn.Dense(
      self.vector_size,
      use_bias=False,
      dtype=self.config.dtype,
      param_dtype=self.config.param_dtype,
      dot_general=products.dot_general,
      name='linear',
    )(hidden).astype(jnp.float32)
    squares = jnp.sum(vectors * vectors, axis=-1, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(squares, 1e-12))


class Rows:
  """Rows of wordpieces for queries and passages."""

  def __init__(
    self, config: ColbertConfig, tokenizer: tokenization.WordPieceTokenizer
  ):
    """Look the markers up."""
    self.config, self.tokenizer = config, tokenizer
    self._query = tokenizer.id_of(config.query_marker)
    self._passage = tokenizer.id_of(config.passage_marker)
    marks = tokenizer.encode_ids_batch(list(string.punctuation), 3)
    self._punctuation = np.unique(
      [row[1] for row in marks if len(row) == 3 and row[1] != tokenizer.unk_id]
    )

  def queries(self, texts: Sequence[str]) -> Int[np.ndarray, 'A Q']:
    """Return int32 rows, filled with [MASK]."""
    texts = arguments.texts(texts, 'texts')
    rows = self._marked(texts, self._query, self.config.query_length)
    ids = np.full(
      (len(rows), self.config.query_length), self.tokenizer.mask_id, np.int32
    )
    for i, row in enumerate(rows):
      ids[i, : len(row)] = row
    return ids

  def passages(self, texts: Sequence[str]) -> list[list[int]]:
    """Return rows of at most L ids, without padding."""
    texts = arguments.texts(texts, 'texts')
    return self._marked(texts, self._passage, self.config.passage_length)

  def has_vector(self, ids: Int[np.ndarray, '*n']) -> Bool[np.ndarray, '*n']:
    """Return False for the punctuation of a passage, where it is masked."""
    if not self.config.mask_punctuation:
      return np.ones(np.shape(ids), bool)
    return ~np.isin(ids, self._punctuation)

  def _marked(
    self, texts: Sequence[str], marker: int, length: int
  ) -> list[list[int]]:
    rows = self.tokenizer.encode_ids_batch(texts, length - 1)
    return [[row[0], marker, *row[1:]] for row in rows]


class TokenVectors(NamedTuple):
  """Vectors of the tokens of passages, one passage after the other."""

  values: np.ndarray  # [tokens, D] float32
  ends: np.ndarray  # [passages] int64 past-last token of each


def _encode(model, unseen_id, params, ids, lengths):
  mask = jnp.arange(ids.shape[1]) < lengths[:, None]
  mask &= ids != unseen_id
  return model.apply({'params': params}, ids, mask)


class ColbertEncoder:
  """Vectors of the tokens of queries and passages, and their scores.

  Attributes:
    fingerprint: hash of everything that decides the vectors.
    vector_size: D.
    unit: of the scores.
  """

  unit = 'sum of best inner products'

  def __init__(
    self,
    config: ColbertConfig,
    encoder: bert.BertConfig,
    params: Mapping[str, Any],
    tokenizer: tokenization.WordPieceTokenizer,
    *,
    devices: Sequence[jax.Device] | None = None,
  ):
    """Place the parameters on the devices; None is all local ones."""
    longest = max(config.query_length, config.passage_length)
    if longest > encoder.max_length:
      raise ValueError(
        f'Rows of {longest} tokens exceed the {encoder.max_length} position '
        'embeddings.'
      )
    self.vector_size = config.vector_size
    self._rows = Rows(config, tokenizer)
    self._encoder = batch_encoder.BatchEncoder(
      functools.partial(
        _encode,
        Colbert(encoder, config.vector_size),
        -1 if config.attend_to_masks else tokenizer.mask_id,
      ),
      params,
      dimension=config.vector_size,
      max_length=longest,
      devices=devices,
    )
    self.fingerprint = _fingerprint(config, encoder, params, tokenizer)

  def queries(self, texts: Sequence[str]) -> Float[np.ndarray, 'A Q D']:
    """Return the vectors of queries, float32."""
    rows = self._rows.queries(texts)
    vectors = np.empty((*rows.shape, self.vector_size), np.float32)
    for numbers, part in self._encoder.parts(rows, len(rows)):
      vectors[numbers] = part[:, : rows.shape[1]]
    return vectors

  def passages(
    self,
    texts: Sequence[str],
    progress: batch_encoder.Progress | None = None,
  ) -> TokenVectors:
    """Return the vectors of passages, without masked punctuation."""
    rows = self._rows.passages(texts)
    masks = [self._rows.has_vector(np.asarray(row)) for row in rows]
    ends = np.cumsum([x.sum() for x in masks], dtype=np.int64)
    size = int(ends[-1]) if len(rows) else 0
    values = np.empty((size, self.vector_size), np.float32)
    for numbers, parts in self._encoder.parts(rows, len(rows), progress):
      for number, vectors in zip(numbers, parts, strict=True):
        keep, end = masks[number], ends[number]
        values[end - keep.sum() : end] = vectors[: len(keep)][keep]
    return TokenVectors(values, ends)

  def score(
    self, queries: Sequence[str], passages: Sequence[Sequence[str]]
  ) -> list[np.ndarray]:
    """Score the passages of each query; an equal passage is encoded once.

    Returns:
      For each query scores [len(passages[i])] float32; larger is better.
    """
    queries = arguments.texts(queries, 'queries')
    passages = arguments.lists(passages, 'passages')
    scores = []
    for low in range(0, len(queries), _AT_ONCE):
      theirs = passages[low : low + _AT_ONCE]
      texts = list(dict.fromkeys(text for each in theirs for text in each))
      numbers = {text: i for i, text in enumerate(texts)}
      vectors = self.passages(texts)
      asked = self.queries(queries[low : low + _AT_ONCE])
      for query, each in zip(asked, theirs, strict=True):
        ids = np.asarray([numbers[text] for text in each], np.int64)
        positions, ends = spans(vectors.ends, ids)
        scores.append(max_sims(query, vectors.values[positions], ends))
    return scores


def is_model(path: str | os.PathLike) -> bool:
  """Whether a folder, or a name on the Hub, holds a model for `load`."""
  return (hub.local(path) / _ARTIFACT).is_file()


def load(path: str | os.PathLike) -> ColbertEncoder:
  """Load a published model; all that its folder says is obeyed.

  Args:
    path: folder, or name on the Hub (`hub.local`), in the layout of colbert-ai
      (Santhanam et al. 2021): BERT's config.json, weights with linear.weight, a
      tokenizer, and artifact.metadata.

  Raises:
    FileNotFoundError: if the folder or its artifact.metadata is missing.
    ValueError: if a file is damaged or does not fit, or states what is not
      supported.
  """
  folder = hub.local(path)
  if not (folder / _ARTIFACT).is_file():
    raise FileNotFoundError(
      f'{folder}: no {_ARTIFACT}; expected the folder of a ColBERT.'
    )
  stated = manifests.read_object(folder / _ARTIFACT)
  if (similarity := stated.get('similarity', 'cosine')) != 'cosine':
    raise ValueError(
      f"{folder / _ARTIFACT}: similarity {similarity!r}; expected 'cosine'."
    )
  tensors = dict(weights.read(weights.find(folder)))
  linear = tensors.pop('linear.weight', None)
  encoder = bert_checkpoint.read_config(folder / 'config.json')
  if linear is None or linear.shape[1:] != (encoder.d_model,):
    shape = None if linear is None else linear.shape
    raise ValueError(
      f'{folder}: linear.weight {shape}; expected [vector, {encoder.d_model}].'
    )
  encoder, params, _ = bert_checkpoint.convert(tensors, encoder, str(folder))
  params.pop('pooler', None)
  fields = {
    ours: stated[name] for name, ours in _STATED.items() if name in stated
  }
  fields = {'attend_to_masks': False, 'vector_size': len(linear)} | fields
  config = settings.build(ColbertConfig, fields, str(folder / _ARTIFACT))
  if config.vector_size != len(linear):
    raise ValueError(
      f'{folder / _ARTIFACT}: dim {config.vector_size}; linear.weight has '
      f'{len(linear)}.'
    )
  kernel = np.ascontiguousarray(linear.T, np.float32)
  return ColbertEncoder(
    config,
    dataclasses.replace(encoder, pooler=False),
    {'bert': params, 'linear': {'kernel': kernel}},
    tokenization.WordPieceTokenizer(folder),
  )


def spans(ends: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Return the tokens of some passages, and the past-last one of each of these."""
  starts = np.where(ids > 0, ends[np.maximum(ids - 1, 0)], 0)
  counts = ends[ids] - starts
  new_ends = np.cumsum(counts)
  shift = np.repeat(starts - (new_ends - counts), counts)
  return np.arange(len(shift)) + shift, new_ends


def max_sims(
  query: Float[np.ndarray, 'Q D'],
  values: Float[np.ndarray, 'T D'],
  ends: np.ndarray,
) -> Float[np.ndarray, ' P']:
  """Return `max_sim` of one query and `TokenVectors`, float32."""
  return sum_of_best(values @ query.T, np.arange(len(values)), ends)


def sum_of_best(
  cosines: Float[np.ndarray, 'X Q'], rows: np.ndarray, ends: np.ndarray
) -> Float[np.ndarray, ' P']:
  """Return the sum over Q of the largest cosine of each passage's tokens.

  Args:
    rows: [T] row of `cosines` of each token.
    ends: [P] past-last token of each passage, which has one at least.
  """
  counts = np.diff(ends, prepend=0)
  order = np.argsort(-counts, kind='stable')
  counts = counts[order]
  starts = ends[order] - counts
  # One position of all passages that are long enough after the other:
  # np.maximum.reduceat takes four times as long.
  best = cosines[rows[starts]]
  for i in range(1, counts.max(initial=0)):
    n = np.searchsorted(-counts, -i)
    np.maximum(best[:n], cosines[rows[starts[:n] + i]], out=best[:n])
  sums = np.empty(len(ends), np.float32)
  sums[order] = best.sum(axis=1)
  return sums


def _fingerprint(config, encoder, params, tokenizer) -> str:
  sizes = {k: str(x) for k, x in dataclasses.asdict(encoder).items()}
  return manifests.fingerprint(
    [
      'colbert',
      config.identity(),
      sizes | {'dtype': jnp.dtype(encoder.dtype).name},
      tokenizer.fingerprint,
      trained_encoders.hash_params(params),
    ]
  )
