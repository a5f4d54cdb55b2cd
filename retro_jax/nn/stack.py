# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The decoder's layers as loops, and what a backward pass recomputes.

A loop's program is that of one turn: it and its compilation do not grow with depth.
Parameters come in two forms. Flat ones have the names layer_{i}_{branch}. Stacked
ones, which the training state holds where layers are loops, have layers_{branch}:
that branch of all layers which have it, on a new leading axis.

Dimension key: B batch, L tokens, D model width.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import itertools
import math
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from retrieval.kernels import backend
from retrieval.nn import partitioning, sharding
from retro_jax.nn import layers
from retro_jax.nn.config import RetroConfig

_NO_NAME = {nn.PARTITION_NAME: None}  # of the stacked axis


def is_scanned(config: RetroConfig) -> bool:
  """Whether equal layers are to be one loop."""
  if config.joint or config.ngrams.layers:
    return False
  if config.layers == 'auto':
    return not backend.is_cpu()
  return config.layers == 'scanned'


def runs_loops(module: nn.Module) -> bool:
  """Whether a model's layers run as a scan; impossible while collecting.

  Raises:
    ValueError: for stacked parameters where they do not.
  """
  c = module.config
  collections = ('params', 'cache', 'intermediates', 'weights')
  scanned = is_scanned(c) and not any(
    map(module.is_mutable_collection, collections)
  )
  if not scanned and is_stacked(module.variables.get('params', {})):
    raise ValueError(
      'The parameters of layers are stacked, but each layer runs alone '
      f'(layers={c.layers!r}; or the call may change one of {collections}): '
      'expected those of stack.unstack_params.'
    )
  return scanned


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

  They are arrays or boxes; NumPy arrays stay in the host's memory.
  """
  params = dict(params)
  for name, parts in _branches(config):
    if parts[0] in params:
      params[name] = _stack([params.pop(part) for part in parts])
  return params


def unstack_params(
  config: RetroConfig, params: Mapping[str, Any]
) -> dict[str, Any]:
  """Inverse of `stack_params`; flat parameters stay as they are."""
  params = dict(params)
  for name, parts in _branches(config):
    if name in params:
      whole = nn.meta.remove_axis(params.pop(name), 0, _NO_NAME)
      for i, part in enumerate(parts):
        params[part] = jax.tree.map(lambda x, i=i: x[i], whole)
  return params


def _branches(config: RetroConfig) -> Iterator[tuple[str, list[str]]]:
  """Stacked name of each branch, with the flat ones."""
  every = range(1, config.num_layers + 1)
  having = {'attn': every, 'cca': config.cca_layers, 'ffw': every}
  for branch, numbers in having.items():
    if numbers:
      yield f'layers_{branch}', [f'layer_{p}_{branch}' for p in numbers]


def _stack(trees: Sequence[Any]) -> Any:
  def join(*of):
    return (np if isinstance(of[0], np.ndarray) else jnp).stack(of)

  return nn.meta.add_axis(jax.tree.map(join, *trees), 0, _NO_NAME)


def groups(config: RetroConfig) -> list[tuple[int, int, int]]:
  """Cut what follows the first layer that reads neighbors into loops.

  Returns:
    (first, turns, width) of each loop. A turn reads neighbors in a layer, `first`
    in the first turn, and goes on with the feed-forward branch of this layer, the
    attention of the next one and so on, `width` of each.
  """
  reading = config.cca_layers
  # The last layer has no attention after it.
  ends = *reading[1:], config.num_layers
  widths = [end - p for p, end in zip(reading, ends, strict=True)]
  loops, start = [], 0
  for width, equal in itertools.groupby(widths):
    turns = len(list(equal))
    loops.append((reading[start], turns, width))
    start += turns
  return loops


def _branch_parameters(config, params, key) -> dict[str, Any]:
  """Return parameters and keys of each branch, of all layers that have it.

  Matrices are in the dtype in which they are multiplied, vectors as they are.
  """
  branches = {}
  for i, (name, parts) in enumerate(_branches(config)):
    whole = params.get(name)
    if whole is None:
      whole = _stack([params[part] for part in parts])
    narrow = jax.tree.map(
      lambda x: x if x.ndim < 3 else x.astype(config.dtype), whole
    )
    keys = key
    if key is not None:
      keys = jax.random.split(jax.random.fold_in(key, i), len(parts))
    branches[name.removeprefix('layers_')] = narrow, keys
  return branches


def run(
  config: RetroConfig,
  params: Mapping[str, Any],
  x: Float[Array, 'B L D'],
  encode: Callable[[Float[Array, 'B L D']], tuple] | None,
  *,
  segments: tuple[jax.Array, jax.Array] | None,
  positions: jax.Array | None,
  train: bool,
  key: jax.Array | None,
) -> Float[Array, 'B L D']:
  """Return the output of the decoder's layers.

  Args:
    params: of the decoder, stacked or flat.
    x: input of the first layer.
    encode: H, the activations that condition the encoder -> the arrays that
      layers.ReadNeighbors reads; None if no neighbors are read.
    segments: as of layers.Attention, like `positions`.
    train: whether dropout acts, with `key`.
  """
  c = config
  whole = _branch_parameters(c, sharding.unbox(params), key)
  of_attention = None, segments, train, positions
  modules = {
    'attn': (layers.Attention(c, parent=None), of_attention),
    'ffw': (layers.FeedForward(c, parent=None), (train,)),
  }

  def some(branch, start, *shape):
    """Return parameters and keys of a branch, cut from `start` on to [*shape]."""
    stop = start + math.prod(shape)
    return jax.tree.map(
      lambda x: x[start:stop].reshape(*shape, *x.shape[1:]), whole[branch]
    )

  def apply(name, x, parameters_and_key):
    def branch(x, parameters, key):
      module, arguments = modules[name]
      rngs = None if key is None else {'dropout': key}
      x = module.apply({'params': parameters}, x, *arguments, rngs=rngs)
      return partitioning.constrain(x, 'batch', 'length', None)

    if c.remat != 'none':
      branch = jax.checkpoint(branch, policy=layers.POLICIES[c.remat])
    return branch(x, *parameters_and_key)

  def loop(names, x, xs, **settings):
    def turn(x, xs):
      for name in names:
        x = apply(name, x, xs[name])
      return x, None

    return jax.lax.scan(turn, x, xs, **settings)[0]

  before = c.num_layers if encode is None else min(c.cca_layers) - 1
  if before:
    xs = {name: some(name, 0, before) for name in ('attn', 'ffw')}
    x = loop(('attn', 'ffw'), x, xs)
  if encode is None:
    return x
  x = apply('attn', x, some('attn', before))
  modules['cca'] = layers.ReadNeighbors(c, parent=None), (train, *encode(x))

  def turn(x, xs):
    reading, pairs = xs
    x = apply('cca', x, reading)
    if pairs:
      # A loop in a loop is compiled sooner; written out, it moves fewer bytes.
      x = loop(('ffw', 'attn'), x, pairs, unroll=not backend.is_tpu())
    return x, None

  for first, turns, width in groups(c):
    reading = some('cca', c.cca_layers.index(first), turns)
    pairs = {}
    if width:
      pairs['ffw'] = some('ffw', first - 1, turns, width)
      pairs['attn'] = some('attn', first, turns, width)
    x, _ = jax.lax.scan(turn, x, (reading, pairs))
  return apply('ffw', x, some('ffw', c.num_layers - 1))
