# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The decoder's layers as loops over equal ones, and what a backward pass recomputes.

A loop's program is that of one turn: it and its compilation do not grow with depth.
Parameters come in two forms. Flat ones have the names layer_{i}_{branch}, one of
each layer. Stacked ones, which the training state holds where layers are loops, have
layers_{p}_{branch}: the layers p, p + period, ... of a loop on a new leading axis.

Dimension key: B batch, L tokens, D model width.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flax import linen as nn
import jax
from jax import checkpoint_policies as policies
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from retrieval.nn import backend, fused_attention, partitioning, sharding
from retro_jax.nn import layers
from retro_jax.nn.config import RetroConfig

# RetroConfig.remat -> what the backward pass finds in memory; None is everything.
_POLICIES = {
  'full': policies.nothing_saveable,
  'attention': policies.save_only_these_names(fused_attention.KEPT),
  'dots': policies.dots_saveable,
  'dots_without_batch': policies.dots_with_no_batch_dims_saveable,
  'offload': policies.offload_dot_with_no_batch_dims('device', 'pinned_host'),
}


_NO_NAME = {nn.PARTITION_NAME: None}  # of the stacked axis


class Turns(NamedTuple):
  """Layers of a loop: `times` turns of `period` layers, from `first` on."""

  first: int
  period: int
  times: int

  @property
  def group(self) -> range:
    """Layers of the first turn."""
    return range(self.first, self.first + self.period)

  def layers(self, p: int) -> range:
    """Layers that take the place of `p`, of the first turn, in all turns."""
    return range(p, p + self.period * self.times, self.period)


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


def is_stacked(params: Mapping[str, Any]) -> bool:
  """Whether parameters of a model are stacked."""
  return any(name.startswith('layers_') for name in params)


def for_training(
  config: RetroConfig, params: Mapping[str, Any]
) -> dict[str, Any]:
  """Return flat parameters in the form that the training state holds."""
  return stack_params(config, params) if is_scanned(config) else dict(params)


def stack_params(
  config: RetroConfig, params: Mapping[str, Any]
) -> dict[str, Any]:
  """Stack flat parameters, all or some branches of the decoder.

  Args:
    params: arrays or boxes; a box names the new axis None. Numpy arrays stay in
      the host's memory.
  """
  params = dict(params)
  for name, parts in _loops(config):
    if parts[0] in params:
      params[name] = _stack([params.pop(part) for part in parts])
  return params


def unstack_params(
  config: RetroConfig, params: Mapping[str, Any]
) -> dict[str, Any]:
  """Inverse of `stack_params`; flat parameters stay as they are."""
  params = dict(params)
  for name, parts in _loops(config):
    if name in params:
      whole = nn.meta.remove_axis(params.pop(name), 0, _NO_NAME)
      for i, part in enumerate(parts):
        params[part] = jax.tree.map(lambda x, i=i: x[i], whole)
  return params


def _loops(config: RetroConfig) -> Iterator[tuple[str, list[str]]]:
  """Stacked name of each branch in loops, with the flat ones."""
  for turns in plan(config, bool(config.cca_layers), scanned=True):
    for p in turns.group if turns.times > 1 else ():
      for name in ('attn', 'cca', 'ffw'):
        yield f'layers_{p}_{name}', _flat_names(turns, p, name)


def _flat_names(turns: Turns, p: int, name: str) -> list[str]:
  return [f'layer_{i}_{name}' for i in turns.layers(p)]


def _stack(trees: Sequence[Any]) -> Any:
  def join(*of):
    return (np if isinstance(of[0], np.ndarray) else jnp).stack(of)

  return nn.meta.add_axis(jax.tree.map(join, *trees), 0, _NO_NAME)


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
    params: of the decoder, stacked or flat.
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
    """Matrices in the dtype in which they are multiplied; vectors as they are."""
    found = {}
    for name, *_ in branches(p):
      whole = params.get(f'layers_{p}_{name}')
      if whole is None:
        whole = _stack([params[part] for part in _flat_names(turns, p, name)])
      found[name] = jax.tree.map(
        lambda x: x if x.ndim < 3 else x.astype(c.dtype), whole
      )
    return found

  def turn(x, xs):
    params, keys = xs
    for i, p in enumerate(turns.group):
      x = layer(p)(x, params[i], None if keys is None else keys[i])
    return x, None

  keys = key
  if key is not None:
    keys = jax.random.split(key, (turns.times, turns.period))
  params = sharding.unbox(params)
  return jax.lax.scan(turn, x, ([stacked(p) for p in turns.group], keys))[0]
