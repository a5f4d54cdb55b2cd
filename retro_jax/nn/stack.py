# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The decoder's layers as loops over equal ones, and what a backward pass recomputes.

A loop's program is that of one turn: it and its compilation do not grow with depth.

Dimension key: B batch, L tokens, D model width.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flax import linen as nn
import jax
from jax import checkpoint_policies as policies
import jax.numpy as jnp
from jaxtyping import Array, Float

from retrieval.nn import backend, partitioning, sharding
from retro_jax.nn import layers
from retro_jax.nn.config import RetroConfig

# RetroConfig.remat -> what the backward pass finds in memory; None is everything.
_POLICIES = {
  'full': policies.nothing_saveable,
  'dots': policies.dots_saveable,
  'dots_without_batch': policies.dots_with_no_batch_dims_saveable,
  'offload': policies.offload_dot_with_no_batch_dims('device', 'pinned_host'),
}


class Turns(NamedTuple):
  """Layers of a loop: `times` turns of `period` layers, from `first` on."""

  first: int
  period: int
  times: int


def recomputed(
  module: type[nn.Module], config: RetroConfig, train_index: int
) -> type[nn.Module]:
  """Return a branch whose backward pass recomputes what `config.remat` says."""
  if config.remat == 'none':
    return module
  policy = _POLICIES[config.remat]
  return nn.remat(module, static_argnums=(train_index,), policy=policy)


def is_scanned(config: RetroConfig) -> bool:
  """Whether equal layers are to be one loop."""
  if config.layers == 'auto':
    return not backend.is_cpu()
  return config.layers == 'scanned'


def plan(config: RetroConfig, reads: bool, scanned: bool) -> list[Turns]:
  """Cut the decoder's layers into loops and single layers.

  The first layer with chunked cross-attention stands alone: its activations
  condition the encoder. The others repeat with the period that leaves the fewest
  layers to write out.

  Args:
    reads: whether neighbors are read.
    scanned: False leaves every layer alone.
  """
  every = range(1, config.num_layers + 1)
  if not scanned:
    return [Turns(p, 1, 1) for p in every]
  if not reads:
    return _cut(every, lambda p: False)
  first = min(config.cca_layers)
  return [
    *_cut(every[: first - 1], lambda p: False),
    Turns(first, 1, 1),
    *_cut(every[first:], lambda p: p in config.cca_layers),
  ]


def _cut(some: Sequence[int], kind: Callable[[int], bool]) -> list[Turns]:
  """Cut layers into one loop, if there is a second turn, and the rest."""
  kinds = [kind(p) for p in some]
  count = len(kinds)

  def covered(period):
    """Layers in whole turns from the first on, if they repeat."""
    same = next(
      (i for i, k in enumerate(kinds) if k != kinds[i % period]), count
    )
    return same // period * period

  if not count:
    return []
  period = min(
    range(1, count + 1), key=lambda period: period + count - covered(period)
  )
  looped = covered(period)
  rest = _cut(some[looped:], kind)
  return [Turns(some[0], period, looped // period), *rest]


def run(
  config: RetroConfig,
  params: Mapping[str, Any],
  x: Float[Array, 'B L D'],
  turns: Turns,
  *,
  segments: tuple[jax.Array, jax.Array] | None,
  positions: jax.Array | None,
  read: tuple | None,
  train: bool,
  key: jax.Array | None,
) -> Float[Array, 'B L D']:
  """Return the output of the layers of `turns`.

  Args:
    params: of the decoder, by branch.
    x: [B, L, D]. Input of the first of them.
    segments: as of layers.Attention.
    positions: as of layers.Attention.
    read: as of layers.ReadNeighbors; None if no neighbors are read.
    train: whether dropout acts.
    key: of the dropout.
  """
  c = config
  policy = None if c.remat == 'none' else _POLICIES[c.remat]

  def branches(p):
    """Names and modules of a layer, with their other arguments."""
    yield (
      'attn',
      layers.Attention(
        c, c.decoder_attention(), True, c.dropout_rate, parent=None
      ),
      (None, segments, train, positions),
    )
    if read is not None and p in c.cca_layers:
      yield 'cca', layers.ReadNeighbors(c, parent=None), (train, *read)
    yield (
      'ffw',
      layers.FeedForward(c, c.d_ff, c.branches, c.dropout_rate, parent=None),
      (train,),
    )

  def layer(p):
    def apply(x, params, key):
      for i, (name, module, rest) in enumerate(branches(p)):
        rngs = None if key is None else {'dropout': jax.random.fold_in(key, i)}
        x = module.apply({'params': params[name]}, x, *rest, rngs=rngs)
      return partitioning.constrain(x, 'batch', 'length', None)

    return apply if policy is None else jax.checkpoint(apply, policy=policy)

  def stacked(p):
    """Parameters of the layers p, p + period, ..."""
    every = range(p, p + turns.period * turns.times, turns.period)
    return {
      name: jax.tree.map(
        lambda *of: _stack(of, c.dtype),
        *(params[f'layer_{i}_{name}'] for i in every),
      )
      for name, *_ in branches(p)
    }

  group = range(turns.first, turns.first + turns.period)

  def turn(x, xs):
    params, keys = xs
    for i, p in enumerate(group):
      x = layer(p)(x, params[i], None if keys is None else keys[i])
    return x, None

  keys = key
  if key is not None:
    keys = jax.random.split(key, (turns.times, turns.period))
  params = sharding.unbox(params)
  return jax.lax.scan(turn, x, ([stacked(p) for p in group], keys))[0]


def _stack(of: Sequence[jax.Array], dtype: str) -> jax.Array:
  """Stack matrices in the dtype in which they are multiplied; vectors as they are."""
  return jnp.stack([x if x.ndim == 1 else x.astype(dtype) for x in of])
