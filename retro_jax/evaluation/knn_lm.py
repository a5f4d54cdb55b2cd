# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""kNN-LM: a language model mixed with what followed the contexts most like its own.

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
from scipy import special

from retrieval import settings
from retro_jax.data import pipeline, windows as windows_lib
from retro_jax.evaluation import continuations, evaluate
from retro_jax.nn import losses

# Row -> [B, L] nats of each target and [B, L, D] keys.
FeatureFn = Callable[[pipeline.Row], tuple[jax.Array, jax.Array]]
_BLOCK = 4096  # tokens whose neighbors are looked at together
_ROWS = 128  # tokens whose distributions are mixed together


def token_features(
  model: nn.Module, params, batch: Mapping[str, jax.Array]
) -> tuple[Float[Array, 'B L'], Float[Array, 'B L D']]:
  """Nats of each target, 0 where nothing is scored, and keys; to be jitted.

  A key is the input of the last feed-forward after its norm.
  """
  nats, keys = _with_keys(model, params, batch, targets=batch['targets'])
  return jnp.where(batch['loss_mask'], nats, 0.0), keys


def token_distributions(
  model: nn.Module, params, batch: Mapping[str, jax.Array]
) -> tuple[Float[Array, 'B L V'], Float[Array, 'B L D']]:
  """Logarithms of the probabilities of all tokens, and keys; to be jitted."""
  logits, keys = _with_keys(model, params, batch)
  return jax.nn.log_softmax(logits), keys


def _with_keys(model, params, batch, **how):
  found, sown = losses.forward(
    model, params, batch, mutable=['intermediates'], **how
  )
  last = f'layer_{model.config.num_layers}_ffw'
  [keys] = sown['intermediates'][last]['normed']
  return found, keys


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
  counts = windows_lib.num_targets(reader.stores.chunks, documents)
  first, length = np.cumsum(counts) - counts, reader.chunk_length
  total, keys = counts.sum(), None
  targets, nats = np.zeros(total, np.int32), np.zeros(total, np.float32)
  for layout, row, found in evaluate.score_windows(
    features,
    reader,
    documents,
    retrieval='on' if reader.num_neighbors else 'off',
    **settings,
  ):
    own_nats, own_keys = map(np.asarray, found)
    if keys is None:
      keys = np.zeros((total, own_keys.shape[-1]), dtype)
    scored = np.repeat(layout.scored, length, axis=1) & row['loss_mask']
    owner = np.maximum(layout.owner, 0)
    before = (layout.ids - documents.first[owner]) * length
    at = (first[owner] + before)[..., None] + np.arange(length)
    at = at.reshape(scored.shape)[scored]
    with np.errstate(over='ignore'):  # raised below
      keys[at] = own_keys[scored]
    if not np.isfinite(keys[at]).all():
      most = np.abs(own_keys[scored].astype(np.float32)).max()
      raise ValueError(f'Keys of up to {most:g} do not fit into {dtype}.')
    targets[at], nats[at] = row['targets'][scored], own_nats[scored]
  document = np.repeat(np.arange(len(counts)), counts)
  return Tokens(keys, targets, nats, document)


def group_documents(
  documents: windows_lib.Documents, chunks_per_group: int
) -> list[windows_lib.Documents]:
  """Cut documents into runs of `chunks_per_group`, and at most a document's more."""
  cuts = np.flatnonzero(np.diff(documents.start // chunks_per_group)) + 1
  parts = np.split(np.arange(len(documents.index)), cuts)
  return [documents.take(part) for part in parts]


def log_knn_probability(
  distances: Float[np.ndarray, 'n k'],
  values: Integer[np.ndarray, 'n k'],
  targets: Integer[np.ndarray, ' n'],
  temperature: float,
  ks: Sequence[int],
) -> Float[np.ndarray, 'num_ks n']:
  """Log p_kNN of the targets by the nearest 1, 2, ... of their neighbors.

  Args:
    distances: squared L2, ascending; inf where there is no neighbor.
    values: tokens of the neighbors.
    temperature: that divides the distances: 1 / alpha.
    ks: how many neighbors count, each in 1..k.

  Returns:
    float64; -inf where no neighbor has the target's value.

  Raises:
    ValueError: for a temperature or ks out of range.
  """
  width = distances.shape[1]
  if not temperature > 0 or not all(1 <= k <= width for k in ks):
    raise ValueError(
      f'temperature {temperature}, ks {tuple(ks)}: expected a temperature above '
      f'0 and ks in 1..{width}, the neighbors found.'
    )
  last = np.asarray(ks) - 1
  found = np.isfinite(distances)
  scores = np.where(found, distances, np.inf).astype(np.float64) / -temperature
  hits = found & (values == targets[:, None])
  # Sums are taken relative to their largest term, which is their first.
  with np.errstate(all='ignore'):
    nearest = np.where(found[:, 0], scores[:, 0], 0.0)[:, None]
    total = np.exp(scores - nearest).cumsum(1)[:, last]
    best = scores[np.arange(len(scores)), hits.argmax(1)]
    best = np.where(hits.any(1), best, 0.0)[:, None]
    some = np.where(hits, np.exp(scores - best), 0.0).cumsum(1)[:, last]
    log_share = np.log(some) + best - nearest - np.log(total)
  return np.where(some > 0, log_share, -np.inf).T


def interpolate(
  log_lm: Float[np.ndarray, '*n'],
  log_knn: Float[np.ndarray, '*n'],
  weight: float,
) -> Float[np.ndarray, '*n']:
  """Log of (weight p_kNN + (1 - weight) p_LM); weight 0 gives `log_lm` bit for bit.

  Raises:
    ValueError: for a weight outside of 0 <= weight < 1.
  """
  if not 0 <= weight < 1:
    raise ValueError(f'lambda {weight}: expected 0 <= lambda < 1.')
  log_weight = np.log(weight) if weight else -np.inf
  wide = np.asarray(log_lm, np.float64) + np.log1p(-weight)
  return np.logaddexp(wide, np.asarray(log_knn, np.float64) + log_weight)


def mix(
  log_lm: Float[np.ndarray, 'n V'],
  distances: Float[np.ndarray, 'n k'],
  values: Integer[np.ndarray, 'n k'],
  temperature: float,
  weight: float,
) -> Float[np.ndarray, 'n V']:
  """Log probabilities of all tokens under the mixture; see `log_knn_probability`."""
  scores = distances.astype(np.float64) / -temperature
  # Of a token without a neighbor all shares are 0.
  none = ~np.isfinite(distances[:, :1])
  shares = np.where(none, 0.0, special.softmax(np.where(none, 0, scores), 1))
  of_knn = np.zeros(log_lm.shape)
  np.add.at(of_knn, (np.arange(len(values))[:, None], values), shares)
  with np.errstate(divide='ignore'):
    return interpolate(log_lm, np.log(of_knn), weight)


def token_scorer(
  distributions: Callable[[pipeline.Row], tuple[jax.Array, jax.Array]],
  search: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
  temperature: float,
  weight: float,
) -> continuations.ScoreFn:
  """Return the function of a batch that scores its targets under the mixture.

  Args:
    distributions: `token_distributions` of a model, compiled.
    search: keys [n, D] -> distances and values of neighbors [n, k].
  """

  def score(row: pipeline.Row) -> tuple[np.ndarray, np.ndarray]:
    log_lm, keys = map(np.asarray, distributions(row))
    scored = row['loss_mask']
    nats, likeliest = np.zeros(scored.shape), np.ones(scored.shape, bool)
    places = np.argwhere(scored)
    for low in range(0, len(places), _ROWS):
      at = tuple(places[low : low + _ROWS].T)
      found = mix(log_lm[at], *search(keys[at]), temperature, weight)
      targets = row['targets'][at]
      nats[at] = -found[np.arange(len(targets)), targets]
      likeliest[at] = found.argmax(axis=1) == targets
    return nats, likeliest

  return score


@dataclasses.dataclass(frozen=True)
class Grid:
  """Settings that are tried, each with each."""

  ks: tuple[settings.Size, ...]  # neighbors that count
  # that divide squared L2 distances
  temperatures: tuple[settings.Positive, ...]
  lambdas: tuple[settings.Rate, ...]  # weights of p_kNN

  def __post_init__(self):
    """Check the fields."""
    for name in ('ks', 'temperatures', 'lambdas'):
      if not getattr(self, name):
        raise ValueError(f'{name}: expected at least one.')
    settings.check(self)

  @property
  def shape(self) -> tuple[int, int, int]:
    """Numbers of ks, temperatures and lambdas."""
    return len(self.ks), len(self.temperatures), len(self.lambdas)

  def at(self, place: int) -> tuple[int, float, float]:
    """(k, temperature, lambda) at a place of the flattened grid."""
    k, t, w = np.unravel_index(place, self.shape)
    return self.ks[k], self.temperatures[t], self.lambdas[w]


def sweep(
  nats: Float[np.ndarray, ' n'],
  targets: Integer[np.ndarray, ' n'],
  document: Integer[np.ndarray, ' n'],
  distances: Float[np.ndarray, 'n k'],
  values: Integer[np.ndarray, 'n k'],
  grid: Grid,
  num_documents: int,
) -> Float[np.ndarray, 'ks temperatures lambdas documents']:
  """Nats of each document under every setting, float64.

  Args:
    nats: of each target by the language model alone.
    document: row of each token's document.
    distances: as of `log_knn_probability`, and so `values`.
  """
  log_lm = -np.asarray(nats, np.float64)
  result = np.zeros((*grid.shape, num_documents))
  for t, temperature in enumerate(grid.temperatures):
    log_knn = [np.zeros((len(grid.ks), 0))] + [
      log_knn_probability(
        *(x[low : low + _BLOCK] for x in (distances, values, targets)),
        temperature,
        grid.ks,
      )
      for low in range(0, len(log_lm), _BLOCK)
    ]
    for k, log_k in enumerate(np.concatenate(log_knn, axis=1)):
      for w, weight in enumerate(grid.lambdas):
        mixed = -interpolate(log_lm, log_k, weight)
        result[k, t, w] = np.bincount(document, mixed, num_documents)
  return result
