# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The mesh, and the rule table from logical axes to mesh axes.

Models name logical axes (`partitioning.AXES`); the mesh has the axes data, fsdp
and tensor. Parameters are boxed with their names only inside init.
"""

from collections.abc import Sequence
import math
from typing import Any

from absl import logging
from flax.core import meta
from flax.linen import spmd
import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import numpy as np

from retrieval.nn import partitioning

MESH_AXES = ('data', 'fsdp', 'tensor')
BATCH_AXES = ('data', 'fsdp')
RULES = {
  'batch': ('data', 'fsdp'),
  'length': None,
  'embed': 'fsdp',
  'heads': 'tensor',
  'kv': None,
  'mlp': 'tensor',
  'vocab': 'tensor',
  'ngrams': 'tensor',
}


def make_mesh(
  data: int = -1,
  fsdp: int = 1,
  tensor: int = 1,
  *,
  devices: Sequence[jax.Device] | None = None,
) -> jax.sharding.Mesh:
  """Build a mesh with Auto axes for linen's constraints.

  One size may be -1: the remaining devices.

  Args:
    data: devices over which the batch is split and parameters are copied.
    fsdp: devices over which batch and parameters are split.
    tensor: devices over which heads, mlp and vocab are split.
    devices: devices of the mesh; None is all.

  Raises:
    ValueError: if the sizes do not use every device exactly once.
  """
  devices = jax.devices() if devices is None else list(devices)
  sizes = dict(zip(MESH_AXES, (data, fsdp, tensor), strict=True))
  shown = ', '.join(f'{name}={size}' for name, size in sizes.items())
  free = [name for name, size in sizes.items() if size == -1]
  if len(free) > 1 or any(s < 1 for s in sizes.values() if s != -1):
    raise ValueError(
      f'mesh({shown}): sizes are positive and at most one is -1 (the rest).'
    )
  fixed = math.prod(size for size in sizes.values() if size != -1)
  if free:
    sizes[free[0]] = len(devices) // fixed
  if math.prod(sizes.values()) != len(devices):
    raise ValueError(
      f'mesh({shown}) does not fit {len(devices)} device(s): the product must '
      f'be {len(devices)}, with one size -1 for what is left.'
    )
  return jax.make_mesh(
    tuple(sizes.values()),
    MESH_AXES,
    axis_types=(AxisType.Auto,) * len(MESH_AXES),
    devices=devices,
  )


def make_rules(
  overrides: Any = None,
) -> tuple[tuple[str, str | tuple[str, ...] | None], ...]:
  """Return `RULES` with changes, in flax's form and order of precedence.

  `overrides` maps logical axes to a mesh axis, a list of mesh axes, or '' for
  none. Where a mesh axis is already taken by an earlier dimension of the same
  array, the later one is replicated. ValueError for an unknown axis.
  """
  table = dict(RULES)
  for name, axes in dict(overrides or {}).items():
    if name not in partitioning.AXES:
      raise ValueError(
        f'Sharding rule for unknown logical axis {name!r}; '
        f'known: {sorted(partitioning.AXES)}.'
      )
    named = (axes,) if isinstance(axes, str) else tuple(axes or ())
    named = tuple(axis for axis in named if axis)
    if set(named) - set(MESH_AXES):
      raise ValueError(
        f'Sharding rule {name!r} -> {axes!r}: mesh axes are {MESH_AXES}.'
      )
    table[name] = named if len(named) > 1 else (named[0] if named else None)
  return (*table.items(), *((name, None) for name in table))


def _spec(path: Any, box: Any, mesh: jax.sharding.Mesh, rules: Any) -> P:
  if not isinstance(box, meta.AxisMetadata):
    return P()
  axes = list(spmd.logical_to_mesh_axes(box.names, rules))
  for dim, (size, axis) in enumerate(zip(box.value.shape, axes, strict=True)):
    named = (axis,) if isinstance(axis, str) else axis or ()
    ways = math.prod(mesh.shape[x] for x in named)
    if size % ways:
      logging.warning(
        'Parameter %s: dimension %d (%s) of size %d does not divide over the '
        '%d devices of %s; it is replicated.',
        jax.tree_util.keystr(path),
        dim,
        box.names[dim],
        size,
        ways,
        axis,
      )
      axes[dim] = None
  return P(*axes)


def _is_box(x: Any) -> bool:
  return isinstance(x, meta.AxisMetadata)


def tree_shardings(
  abstract: Any, mesh: jax.sharding.Mesh, rules: Any = None
) -> Any:
  """Return the unboxed tree with a NamedSharding at each leaf.

  A leaf without a box is replicated, and with a warning a dimension that does
  not divide over its mesh axis.

  Args:
    abstract: `jax.eval_shape` of an init; leaves boxed with logical names.
    rules: rules of `make_rules`; None is the default table.
  """
  rules = make_rules() if rules is None else rules
  return jax.tree_util.tree_map_with_path(
    lambda path, box: NamedSharding(mesh, _spec(path, box, mesh, rules)),
    abstract,
    is_leaf=_is_box,
  )


def unbox(tree: Any) -> Any:
  """Take arrays out of their boxes, without constraining them."""
  return jax.tree.map(
    lambda x: x.unbox(apply_constraint=False) if _is_box(x) else x,
    tree,
    is_leaf=_is_box,
  )


def abstract(boxed: Any, shardings: Any) -> Any:
  """Return shapes, dtypes and shardings of a boxed abstract tree, unboxed."""
  return jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
    unbox(boxed),
    shardings,
  )


def place(tree: Any, shardings: Any) -> Any:
  """Put arrays onto the devices; every process holds them whole."""

  def put(x, sharding):
    host = np.asarray(x)
    return jax.make_array_from_callback(host.shape, sharding, host.__getitem__)

  return jax.tree.map(put, tree, shardings)


def replicated(mesh: jax.sharding.Mesh) -> NamedSharding:
  """Return the sharding of an array that every device holds whole."""
  return NamedSharding(mesh, P())


def batch_sharding(
  mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh,
  batch_size: int | None = None,
  accumulate_steps: int = 1,
) -> NamedSharding:
  """Return the sharding of a batch: its rows over data and fsdp.

  ValueError if `batch_size` rows do not divide over the mesh, for each of the
  `accumulate_steps` microbatches, or the mesh not over the processes.
  """
  ways = math.prod(mesh.shape[axis] for axis in BATCH_AXES)
  if batch_size is not None and batch_size % (ways * accumulate_steps):
    raise ValueError(
      f'batch_size={batch_size} does not divide over accumulate_steps='
      f'{accumulate_steps} microbatch(es) on data x fsdp = {ways} device(s) of the mesh.'
    )
  if ways % jax.process_count():
    raise ValueError(
      f'data x fsdp = {ways} must be a multiple of the {jax.process_count()} '
      'processes, each of which reads other rows.'
    )
  return NamedSharding(mesh, P(BATCH_AXES))


def global_batch(batch: Any, sharding: NamedSharding) -> Any:
  """Turn this process's rows [batch / processes, ...] into arrays over all devices."""

  def place(x):
    x = np.asarray(x)
    shape = (x.shape[0] * jax.process_count(), *x.shape[1:])
    return jax.make_array_from_process_local_data(sharding, x, shape)

  return jax.tree.map(place, batch)
