# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A language model mixed with the n-grams of a chunk's neighbors.

A diagnostic beside RETRO's gain: if the mixture gains and RETRO does not,
then the neighbors are good but RETRO does not read them. The last tokens are
searched in the neighbors that RETRO would read here, and the tokens that follow
a match are predicted:

  p(x) = (1 - w_n) p_model(x) + w_n share of the n-gram's continuations that are x

n is the longest context that matches, up to MAX_ORDER; n = 0 takes the share of x in
all of the neighbors' tokens.

Dimension key: B batch, L tokens, C chunks, M chunk length.
"""

from collections.abc import Callable, Iterator

from jaxtyping import Float, Int
import numpy as np

from retro_jax.data import pipeline

MAX_ORDER = 3
_WEIGHTS = np.linspace(0, 0.98, 50)


def foretell(
  row: pipeline.Row, chunk_length: int
) -> tuple[Int[np.ndarray, 'B L'], Float[np.ndarray, 'B L']]:
  """Tokens of context that match, -1 where no neighbor is read, and the target's share."""
  order = np.full(np.shape(row['tokens']), -1)
  share = np.zeros(order.shape)
  for b, places, neighbors, orders, weights in _readings(row, chunk_length):
    targets = row['targets'][b, places]
    follows = neighbors == targets[:, None, None]
    order[b, places] = orders
    share[b, places] = (weights * follows).sum((1, 2))
  return order, share


def distributions(
  row: pipeline.Row, chunk_length: int, vocab_size: int
) -> tuple[Int[np.ndarray, 'B L'], Float[np.ndarray, 'B L V']]:
  """Return the tokens of context that match, as `foretell`, and all tokens' shares."""
  order = np.full(np.shape(row['tokens']), -1)
  shares = np.zeros((*order.shape, vocab_size))
  for b, places, neighbors, orders, weights in _readings(row, chunk_length):
    order[b, places] = orders
    for place, weight in zip(places, weights, strict=True):
      np.add.at(shares[b, place], neighbors, weight)
  return order, shares


def _readings(row: pipeline.Row, chunk_length: int) -> Iterator[tuple]:
  """Yield row, places and neighbors of each chunk, and `_weigh` of them."""
  m = chunk_length
  tokens, segments = np.asarray(row['tokens']), np.asarray(row['segment_ids'])
  for b, c in np.argwhere(np.any(row['neighbor_mask'], axis=(2, 3))):
    # As in chunked cross-attention: from the last token of the chunk on.
    places = np.arange((c + 1) * m - 1, min((c + 2) * m - 1, tokens.shape[1]))
    places = places[segments[b, places] == segments[b, places[0]]]
    neighbors = np.asarray(row['neighbors'][b, c])
    mask = np.asarray(row['neighbor_mask'][b, c])
    yield b, places, neighbors, *_weigh(tokens[b], places, neighbors, mask)


def _weigh(tokens, places, neighbors, mask):
  """Context that matches [places], and weights of neighbors' tokens [places, N, R]."""
  order = np.zeros(len(places), int)
  # matches[p, n, j]: the context of p stands in neighbor n right before j.
  matches = np.broadcast_to(mask, (len(places), *mask.shape))
  weights = matches / max(mask.sum(), 1)
  for n in range(1, MAX_ORDER + 1):
    shifted = np.zeros_like(matches)
    same = neighbors == tokens[places - n + 1, None, None]
    same &= (places >= n - 1)[:, None, None] & mask
    shifted[..., n:] = same[..., : same.shape[-1] - n]
    matches = matches & shifted
    count = matches.sum((1, 2))
    order = np.where(count > 0, n, order)
    share = matches / np.maximum(count, 1)[:, None, None]
    weights = np.where((count > 0)[:, None, None], share, weights)
  return order, weights


class Mixture:
  """Scores rows as `evaluate.NatsFn`, with the neighbors' help.

  Args:
    token_nats: row without neighbors -> [B, L] nats of each target.
    chunk_length: M.

  Attributes:
    weights: [MAX_ORDER + 1] w_n; zeros until `fit`.
  """

  def __init__(
    self, token_nats: Callable[[pipeline.Row], np.ndarray], chunk_length: int
  ):
    self._token_nats = token_nats
    self._chunk_length = chunk_length
    self._seen = []
    self.weights = np.zeros(MAX_ORDER + 1)

  def __call__(self, row: pipeline.Row) -> Float[np.ndarray, 'B L']:
    """Nats of each target."""
    bare = pipeline.without_neighbors(row)
    nats = np.array(self._token_nats(bare), np.float64)
    order, share = foretell(row, self._chunk_length)
    read = (order >= 0) & np.asarray(row['loss_mask'], bool)
    seen = nats[read], order[read], share[read]
    self._seen.append(seen)
    weight = self.weights[seen[1]]
    nats[read] = -np.log((1 - weight) * np.exp(-seen[0]) + weight * seen[2])
    return nats

  def fit(self) -> None:
    """Set the weights that minimize the loss of all rows scored so far."""
    nats, order, share = map(np.concatenate, zip(*self._seen, strict=True))
    for n in range(MAX_ORDER + 1):
      model, copy = np.exp(-nats[order == n]), share[order == n]
      if len(model):
        mixed = [-np.log((1 - w) * model + w * copy).sum() for w in _WEIGHTS]
        self.weights[n] = _WEIGHTS[int(np.argmin(mixed))]
    self._seen = []
