# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Late interaction: a vector for each token of query and passage (ColBERT).

Khattab and Zaharia 2020, sections 3.2 and 3.3. The score of a passage is the sum,
over the query's tokens, of the largest cosine with a token of the passage.

Dimension key: A queries, Q tokens of the longest query, D vector; b rows, l tokens.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import os
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from retrieval import arguments
from retrieval.formats import weights
from retrieval.nn import (
  batch_encoder,
  bert,
  bert_family,
  colbert_folder,
  colbert_rows,
  max_sim,
  sentence_layers,
)
from retrieval.store import manifests

_AT_ONCE = 256  # queries whose passages are encoded together


def _encode(
  model: bert_family.Encoder,
  layers: Sequence[str],
  params: Mapping[str, Any],
  ids: Int[Array, 'b l'],
  lengths: Int[Array, ' b'],
) -> Float[Array, 'b l D']:
  """Return float32 vectors of rows, of length 1; to be jitted.

  Args:
    ids: of `colbert_rows.Rows`, ~id where no token attends to it.
    lengths: [b] ids of each row that count, the first ones.
  """
  attended = ids >= 0
  mask = attended & (jnp.arange(ids.shape[1]) < lengths[:, None])
  ids = jnp.where(attended, ids, ~ids)
  hidden = model.apply({'params': params['bert']}, ids, mask).hidden
  return sentence_layers.apply(layers, params, hidden)


class ColbertEncoder:
  """Vectors of the tokens of queries and passages, and their scores.

  Attributes:
    fingerprint: hash of everything that decides the vectors.
    vector_size: D.
    unit: of the scores.
  """

  unit = max_sim.UNIT

  def __init__(
    self,
    config: colbert_rows.ColbertConfig,
    encoder: bert.BertConfig,
    params: Mapping[str, Any],
    tokenizer: colbert_rows.Tokenizer,
  ):
    """Place the parameters on all local devices.

    Args:
      encoder: sizes of `bert_family.module`.
      params: bert, and the layers above it, as of `sentence_layers.read`.
    """
    longest = max(config.query_length, config.passage_length)
    if longest > encoder.max_length:
      raise ValueError(
        f'Rows of {longest} tokens exceed the {encoder.max_length} position '
        'embeddings.'
      )
    self.vector_size = config.vector_size
    self._rows = colbert_rows.Rows(config, tokenizer)
    self._encoder = batch_encoder.BatchEncoder(
      functools.partial(_encode, bert_family.module(encoder), config.layers),
      params,
      dimension=config.vector_size,
      max_length=longest,
    )
    self.fingerprint = _fingerprint(config, encoder, params, tokenizer)

  def queries(self, texts: Sequence[str]) -> Float[np.ndarray, 'A Q D']:
    """Return the vectors of queries, float32; zeros beyond a query's last token."""
    rows = self._rows.queries(texts)
    longest = max(map(len, rows), default=0)
    vectors = np.zeros((len(rows), longest, self.vector_size), np.float32)
    for numbers, parts in self._encoder.parts(rows, len(rows)):
      for number, part in zip(numbers, parts, strict=True):
        count = len(rows[number])
        vectors[number, :count] = part[:count]
    return vectors

  def passages(
    self, texts: Sequence[str], progress: batch_encoder.Progress | None = None
  ) -> max_sim.TokenVectors:
    """Return the vectors of passages, without skipped words."""
    rows = self._rows.passages(texts)
    masks = [self._rows.has_vector(np.asarray(row)) for row in rows]
    ends = np.cumsum([x.sum() for x in masks], dtype=np.int64)
    size = int(ends[-1]) if len(rows) else 0
    values = np.empty((size, self.vector_size), np.float32)
    for numbers, parts in self._encoder.parts(rows, len(rows), progress):
      for number, vectors in zip(numbers, parts, strict=True):
        keep, end = masks[number], ends[number]
        values[end - keep.sum() : end] = vectors[: len(keep)][keep]
    return max_sim.TokenVectors(values, ends)

  def score(
    self, queries: Sequence[str], passages: Sequence[Sequence[str]]
  ) -> list[np.ndarray]:
    """Score the passages of each query: [len(passages[i])] float32, larger is better.

    An equal passage is encoded once.
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
        positions, ends = max_sim.spans(vectors.ends, ids)
        values = vectors.values[positions]
        scores.append(max_sim.max_sims(query, values, ends))
    return scores


def load(path: str | os.PathLike) -> ColbertEncoder:
  """Load a published model; all that its folder says is obeyed.

  Args:
    path: folder, or name on the Hub (`hub.local`), in the layout of colbert-ai, PyLate
      or sentence-transformers.

  Raises:
    FileNotFoundError: if the folder or a file is missing.
    ValueError: if a file is damaged or does not fit, or states what is not
      supported.
  """
  return ColbertEncoder(*colbert_folder.read(path))


def _fingerprint(config, encoder, params, tokenizer) -> str:
  sizes = {k: str(x) for k, x in dataclasses.asdict(encoder).items()}
  # Indices know the first layer by colbert-ai's name for it.
  params = {k.replace('dense_0', 'linear'): x for k, x in params.items()}
  sizes['dtype'] = jnp.dtype(encoder.dtype).name
  parts = ['colbert', config.identity(), sizes, tokenizer.fingerprint]
  return manifests.fingerprint([*parts, weights.hash_params(params)])
