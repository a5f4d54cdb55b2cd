# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A trained ColBERT: vectors of texts, and the scores of passages."""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float
import numpy as np

from retrieval import arguments, settings, tokenization
from retrieval.nn import (
  batch_encoder,
  bert,
  colbert,
  trained_encoders,
)
from retrieval.store import store

TASK = 'colbert'  # config.task of the run that trained the model
_AT_ONCE = 256  # queries whose passages are encoded together


class TokenVectors(NamedTuple):
  """Vectors of the tokens of passages, one passage after the other."""

  values: np.ndarray  # [tokens, D] float32
  ends: np.ndarray  # [passages] int64 past-last token of each


def _encode(model, params, ids, lengths):
  mask = jnp.arange(ids.shape[1]) < lengths[:, None]
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
    config: colbert.ColbertConfig,
    encoder: bert.BertConfig,
    params: Mapping[str, Any],
    tokenizer: tokenization.WordPieceTokenizer,
    *,
    batch_tokens: int = 0,
    devices: Sequence[jax.Device] | None = None,
  ):
    """Place the parameters on the devices; as of `batch_encoder.BatchEncoder`."""
    longest = max(config.query_length, config.passage_length)
    if longest > encoder.max_length:
      raise ValueError(
        f'Rows of {longest} tokens exceed the {encoder.max_length} position '
        'embeddings.'
      )
    self.vector_size = config.vector_size
    self._rows = colbert.Rows(config, tokenizer)
    self._encoder = batch_encoder.BatchEncoder(
      functools.partial(_encode, colbert.Colbert(encoder, config.vector_size)),
      params,
      dimension=config.vector_size,
      max_length=longest,
      batch_tokens=batch_tokens,
      devices=devices,
    )
    self.fingerprint = _fingerprint(config, encoder, params, tokenizer)

  def queries(self, texts: Sequence[str]) -> Float[np.ndarray, 'A Q D']:
    """Return the vectors of queries, float32."""
    rows = self._rows.queries(texts)
    return self._whole(rows)

  def passages(
    self,
    texts: Sequence[str],
    progress: batch_encoder.Progress | None = None,
  ) -> TokenVectors:
    """Return the vectors of passages, those of masked punctuation left out."""
    rows = self._rows.passages(texts)
    kept = [self._rows.has_vector(np.asarray(row)) for row in rows]
    ends = np.cumsum([x.sum() for x in kept], dtype=np.int64)
    size = int(ends[-1]) if len(rows) else 0
    values = np.empty((size, self.vector_size), np.float32)
    for numbers, found in self._encoder.parts(rows, len(rows), progress):
      for number, vectors in zip(numbers, found, strict=True):
        keep, end = kept[number], ends[number]
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
      found = self.passages(texts)
      asked = self.queries(queries[low : low + _AT_ONCE])
      for query, each in zip(asked, theirs, strict=True):
        ids = np.asarray([numbers[text] for text in each], np.int64)
        scores.append(max_sims(query, *select(found, ids)))
    return scores

  def _whole(self, rows: np.ndarray) -> np.ndarray:
    vectors = np.empty((*rows.shape, self.vector_size), np.float32)
    for numbers, found in self._encoder.parts(rows, len(rows)):
      vectors[numbers] = found[:, : rows.shape[1]]
    return vectors


def load(
  path: str | os.PathLike, step: str = '', **placement: Any
) -> ColbertEncoder:
  """Load a run of experiments.train with config.task 'colbert'.

  `placement` are batch_tokens and devices of `ColbertEncoder`.

  Raises:
    FileNotFoundError: if there is no checkpoint.
    ValueError: if it is damaged, of another task, or of another tokenizer.
  """
  params, config, tokenizer = trained_encoders.load(path, TASK, step)
  return ColbertEncoder(
    settings.build(colbert.ColbertConfig, {**config.colbert}, 'config.colbert'),
    settings.build(bert.BertConfig, {**config.bert}, 'config.bert'),
    params,
    tokenizer,
    **placement,
  )


def select(vectors: TokenVectors, ids: np.ndarray) -> TokenVectors:
  """Return the vectors of some passages, in their order."""
  positions, ends = spans(vectors.ends, ids)
  return TokenVectors(vectors.values[positions], ends)


def spans(ends: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Return the tokens of some passages, and the past-last one of each of these."""
  starts = np.where(ids > 0, ends[np.maximum(ids - 1, 0)], 0)
  counts = ends[ids] - starts
  own = np.cumsum(counts)
  shift = np.repeat(starts - (own - counts), counts)
  return np.arange(len(shift)) + shift, own


def max_sims(
  query: Float[np.ndarray, 'Q D'],
  values: Float[np.ndarray, 'T D'],
  ends: np.ndarray,
) -> Float[np.ndarray, ' P']:
  """Return `colbert.max_sim` of one query and `TokenVectors`, float32."""
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
  return store.fingerprint(
    [
      TASK,
      dataclasses.asdict(config),
      sizes | {'dtype': jnp.dtype(encoder.dtype).name},
      tokenizer.fingerprint,
      trained_encoders.hash_params(params),
    ]
  )
