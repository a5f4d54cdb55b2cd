# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""kNN-LM: a language model mixed with the tokens that followed similar contexts.

Khandelwal et al. 2020 (arXiv 1911.00172); Borgeaud et al. 2021, section 4.1 and
appendix C.2 compare RETRO with it. The key of a token is the input of the last
layer's feed-forward, after its norm; the value is the next token.

  p(y) = lambda p_kNN(y) + (1 - lambda) p_LM(y)
  p_kNN(y) ~ sum over the k nearest keys whose value is y of exp(-d / temperature)

d is the squared L2 distance; the papers' alpha is 1 / temperature (1 in the
first one, 0.00785 with lambda 0.118 in the second). No neighbor of value y
leaves p_kNN(y) = 0.

Dimension key: B batch, L tokens, D width of keys, V vocabulary, n tokens in all.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer
import numpy as np

from retrieval import searchers
from retro_jax.data import pipeline, windows as windows_lib
from retro_jax.evaluation import continuations, evaluate
from retro_jax.nn import losses

# Row -> [B, L] nats of each target and [B, L, D] keys.
FeatureFn = Callable[[pipeline.Row], tuple[jax.Array, jax.Array]]
Setting = tuple[int, float, float]  # k, temperature, lambda
_ROWS = 128  # tokens whose distributions are mixed together


def token_features(
  model: nn.Module, params, batch: Mapping[str, jax.Array]
) -> tuple[Float[Array, 'B L'], Float[Array, 'B L D']]:
  """Nats of each target, 0 where nothing is scored, and keys; to be jitted."""
  nats, keys = _with_keys(model, params, batch, targets=batch['targets'])
  return jnp.where(batch['loss_mask'], nats, 0.0), keys


def token_distributions(
  model: nn.Module, params, batch: Mapping[str, jax.Array]
) -> tuple[Float[Array, 'B L V'], Float[Array, 'B L D']]:
  """Logarithms of the probabilities of all tokens, and keys; to be jitted."""
  logits, keys = _with_keys(model, params, batch)
  return jax.nn.log_softmax(logits), keys


def _with_keys(model, params, batch, **how):
  output, sown = losses.forward(
    model, params, batch, mutable=['intermediates'], **how
  )
  last = f'layer_{model.config.num_layers}_ffw'
  [keys] = sown['intermediates'][last]['normed']
  return output, keys


@dataclasses.dataclass(frozen=True)
class Tokens:
  """Every token of some documents that something predicts, in order."""

  keys: np.ndarray  # [n, D] of the token before it
  targets: np.ndarray  # [n] int32, the token
  nats: np.ndarray  # [n] float32 that the model gives it
  document: np.ndarray  # [n] int64 row in `windows.Documents`


def read_tokens(
  features: FeatureFn,
  reader: pipeline.ChunkReader,
  documents: windows_lib.Documents,
  *,
  dtype: str = 'float32',
  **settings: Any,
) -> Tokens:
  """Read whole documents, each token once, in `evaluate.evaluate`'s windows.

  Args:
    features: `token_features` of a model, compiled.
    reader: of the chunks; its num_neighbors is RETRO's k, 0 without retrieval.
    dtype: of the keys; ValueError where it does not hold them.
    **settings: of `evaluate.score_windows`.
  """
  of_chunks, (ids, document) = {}, windows_lib.chunk_ids(documents)
  retrieval = 'on' if reader.num_neighbors else 'off'
  for layout, row, (nats, keys) in evaluate.score_windows(
    features, reader, documents, retrieval=retrieval, **settings
  ):
    for name, x in {
      'keys': _convert(np.asarray(keys), row['loss_mask'], dtype),
      'targets': row['targets'],
      'nats': np.asarray(nats),
      'scored': row['loss_mask'],
    }.items():
      x = x.reshape(*layout.ids.shape, reader.chunk_length, *x.shape[2:])
      if name not in of_chunks:
        of_chunks[name] = np.zeros((len(ids), *x.shape[2:]), x.dtype)
      of_chunks[name][documents.places(layout)] = x[layout.scored]
  scored = of_chunks.pop('scored')
  document = np.repeat(document, scored.sum(axis=1))
  return Tokens(
    document=document, **{k: x[scored] for k, x in of_chunks.items()}
  )


def _convert(keys: np.ndarray, scored: np.ndarray, dtype: str) -> np.ndarray:
  """Return keys [B, L, D] in another type; ValueError for a scored one too large."""
  with np.errstate(over='ignore'):  # raised below
    cast = keys.astype(dtype)
  if not np.isfinite(cast[scored]).all():
    most = np.abs(keys[scored].astype(np.float32)).max()
    raise ValueError(f'Keys of up to {most:g} do not fit into {dtype}.')
  return cast


def find_neighbors(
  searcher: searchers.Searcher, keys, values, queries: np.ndarray, k: int
) -> tuple[Float[np.ndarray, 'b k'], Integer[np.ndarray, 'b k']]:
  """Find the k nearest keys; distances are exact, whatever the searcher is.

  Args:
    keys: [n, D] array of the searcher's vectors, or a sharded array.
    values: [n] tokens, in the same order.
    queries: [b, D].

  Returns:
    distances: squared L2, float32, ascending; inf where fewer than k exist.
    values: tokens of the neighbors; 0 there.
  """
  ids, scores = searcher.search(queries, k)
  exact = searchers.exact_of(searcher, keys)
  if exact is not searcher:
    ids, scores = exact.best_of(queries, ids, k)
  tokens = np.where(ids >= 0, values[np.maximum(ids, 0)], 0)
  return -scores.astype(np.float32), tokens


def neighbor_shares(
  distances: Float[np.ndarray, 'n k'], temperature: float
) -> Float[np.ndarray, 'n k']:
  """Weights exp(-d / temperature) that sum to 1, float64; 0 without a neighbor."""
  nearest = np.where(np.isfinite(distances[:, :1]), distances[:, :1], 0.0)
  weights = np.exp((nearest.astype(np.float64) - distances) / temperature)
  return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1.0)


def interpolate(
  log_lm: Float[np.ndarray, '*n'], knn: Float[np.ndarray, '*n'], weight: float
) -> Float[np.ndarray, '*n']:
  """Log of (weight p_kNN + (1 - weight) p_LM); weight 0 gives `log_lm` bit for bit."""
  with np.errstate(divide='ignore'):
    log_knn = np.log(weight * knn)
  return np.logaddexp(log_lm.astype(np.float64) + np.log1p(-weight), log_knn)


def mix(
  log_lm: Float[np.ndarray, 'n V'],
  distances: Float[np.ndarray, 'n k'],
  values: Integer[np.ndarray, 'n k'],
  temperature: float,
  weight: float,
) -> Float[np.ndarray, 'n V']:
  """Log probabilities of all tokens under the mixture, float64."""
  knn, rows = np.zeros(log_lm.shape), np.arange(len(values))[:, None]
  np.add.at(knn, (rows, values), neighbor_shares(distances, temperature))
  return interpolate(log_lm, knn, weight)


def token_scorer(
  distributions: Callable[[pipeline.Row], tuple[jax.Array, jax.Array]],
  neighbors: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
  temperature: float,
  weight: float,
) -> continuations.ScoreFn:
  """Return the function of a batch that scores its targets under the mixture.

  Args:
    distributions: `token_distributions` of a model, compiled.
    neighbors: keys [n, D] -> distances and values [n, k].
  """

  def score(row: pipeline.Row) -> tuple[np.ndarray, np.ndarray]:
    log_lm, keys = map(np.asarray, distributions(row))
    scored = row['loss_mask']
    nats, likeliest = np.zeros(scored.shape), np.ones(scored.shape, bool)
    places = np.argwhere(scored)
    for low in range(0, len(places), _ROWS):
      at = tuple(places[low : low + _ROWS].T)
      mixed = mix(log_lm[at], *neighbors(keys[at]), temperature, weight)
      targets = row['targets'][at]
      nats[at] = -mixed[np.arange(len(targets)), targets]
      likeliest[at] = mixed.argmax(axis=1) == targets
    return nats, likeliest

  return score


def sweep(
  nats: Float[np.ndarray, ' n'],
  targets: Integer[np.ndarray, ' n'],
  document: Integer[np.ndarray, ' n'],
  distances: Float[np.ndarray, 'n k'],
  values: Integer[np.ndarray, 'n k'],
  settings: Sequence[Setting],
  num_documents: int,
) -> Float[np.ndarray, 'settings documents']:
  """Nats of each document under every setting, float64.

  Args:
    nats: of each target by the language model alone.
    document: row of each token's document.
    distances: as of `find_neighbors`, and so `values`.
  """
  hits, knn = values == targets[:, None], {}
  for k, temperature in dict.fromkeys(x[:2] for x in settings):
    shares = neighbor_shares(distances[:, :k], temperature)
    knn[k, temperature] = (shares * hits[:, :k]).sum(axis=1)
  mixed = (interpolate(-nats, knn[x[:2]], x[2]) for x in settings)
  return -np.stack([np.bincount(document, x, num_documents) for x in mixed])
