# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Attention for TPUs and GPUs that never writes its logits.

Kernels go over the keys block by block (Dao et al. 2022, arXiv 2205.14135), forward
and backward, and add logits by the distance of query and key (Dai et al. 2019,
appendix B).

Dimension key: M rows of keys, N = C M rows of queries, Q queries, S keys, H heads, K
head width, T distances.
"""

import functools
import math

from flax import linen as nn
import jax
from jax import ad_checkpoint
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec as P
from jaxtyping import Array, Float, Int
import numpy.typing as npt

from retrieval.kernels import attention_arrays as common, backend

KEPT = 'attention'  # name of what the backward pass needs of the forward pass


def _kernels():
  """Import and return the kernels of the device."""
  if backend.is_tpu():
    from retrieval.kernels import attention_tpu as kernels
  else:
    from retrieval.kernels import attention_gpu as kernels
  return kernels


def suits(
  queries: tuple[int, ...],
  keys: tuple[int, ...],
  key_length: int,
  dtype: npt.DTypeLike,
) -> bool:
  """Whether there are kernels for queries [H, N, Q, K] and keys [H, M, S, K].

  Rows and heads have to divide over the devices of the mesh.
  """
  mesh = jax.sharding.get_abstract_mesh().shape
  by_heads, by_rows = (math.prod(mesh[x] for x in axes) for axes in _axes())
  return (
    not backend.is_cpu()
    and jnp.dtype(dtype).itemsize <= 4
    and queries[0] % by_heads == 0
    and keys[1] % by_rows == 0
    and _kernels().suits(queries, keys, key_length)
  )


def attend(
  queries: Float[Array, 'H N Q K'],
  keys: Float[Array, 'H M S K'],
  values: Float[Array, 'H M S K'],
  query_segments: Int[Array, 'N Q'],
  key_segments: Int[Array, 'M S'],
  *,
  positions: tuple[Float[Array, 'H N Q K'], Float[Array, 'H T K']]
  | None = None,
  causal: bool = False,
  key_length: int = 0,
) -> Float[Array, 'H N Q K']:
  """Return softmax(queries keys^T + position logits) values, in the queries' dtype.

  Args:
    queries: [H, N, Q, K]. Already scaled; rows n C, ..., n C + C - 1 share the
      keys of row n.
    keys, values: [H, M, S, K].
    query_segments: [N, Q], not negative.
    key_segments: [M, S]. A query sees the keys of its segment; one that sees no
      key gets zeros.
    positions: queries [H, N, Q, K] and relative keys [H, T, K]; the logit of query
      i and key j of a copy is the product with relative key Q - 1 - i + j.
    causal: whether a query sees only the keys up to its position.
    key_length: keys of one copy, which share the position logits; default S.
  """
  num_queries, width = queries.shape[2:]
  key_length = key_length or keys.shape[2]
  copies = keys.shape[2] // key_length
  sizes = _kernels().sizes_of(
    num_queries, key_length, width, causal, positions is not None
  )

  def pad_keys(x, value=0):
    shape = x.shape[:-2]
    x = x.reshape(*shape, copies, key_length, x.shape[-1])
    x = _pad(x, -2, 0, sizes.key_length - key_length, value)
    return x.reshape(*shape, copies * sizes.key_length, x.shape[-1])

  def pad_queries(x, axis):
    return _pad(x, axis, 0, sizes.num_queries - num_queries)

  arrays = [pad_queries(queries, 2), pad_keys(keys), pad_keys(values)]
  if positions is not None:
    front = sizes.num_queries - num_queries
    relative = positions[1][:, : sizes.num_distances - front]
    back = sizes.num_distances - front - relative.shape[1]
    relative = _pad(relative, 1, front, back)
    arrays += [pad_queries(positions[0], 2), relative]
  arrays = [_pad(x, -1, 0, sizes.width - width) for x in arrays]
  segments = common.Segments(
    pad_queries(query_segments, 1)[:, None],
    pad_keys(key_segments[..., None], -1)[:, None, :, 0],
  )
  out = _attend(sizes, common.Arrays(*arrays), segments)
  return out[:, :, :num_queries, :width]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(sizes, arrays, segments):
  return _forward(sizes, arrays, segments)[0]


def _forward(sizes, arrays, segments):
  """Return the output and the logarithm of each query's sum: [H, N, 1, Q]."""
  call = functools.partial(_kernels().forward, sizes)
  return _on_devices(call, (arrays, segments), _places(None))


def _attend_forward(sizes, arrays, segments):
  out, sums = (
    ad_checkpoint.checkpoint_name(x, KEPT)
    for x in _forward(sizes, arrays, segments)
  )
  return out, (arrays, segments, out, sums)


def _attend_backward(sizes, residuals, g):
  """Return the cotangents of the arrays."""
  axes = _axes()[1]

  def call(arrays, *rest):
    d = _kernels().backward(sizes, arrays, *rest)
    if d.relative_keys is not None and axes:
      d = d._replace(relative_keys=jax.lax.psum(d.relative_keys, axes))
    return jax.tree.map(lambda x, of: x.astype(of.dtype), d, arrays)

  written = _places(residuals[0])
  return _on_devices(call, (*residuals, g), written), None


_attend.defvjp(_attend_forward, _attend_backward)


def _pad(x, axis, front, back, value=0):
  widths = [(0, 0)] * x.ndim
  widths[axis] = front, back
  return jnp.pad(x, widths, constant_values=value)


def _is_alone() -> bool:
  """Whether the program is one device's: there is no mesh, or it is mapped over."""
  mesh = jax.sharding.get_abstract_mesh()
  return mesh.empty or set(mesh.axis_types) == {AxisType.Manual}


def _axes() -> tuple[tuple[str, ...], tuple[str, ...]]:
  """Mesh axes of heads and of rows."""
  if _is_alone():
    return (), ()
  each = nn.logical_to_mesh_axes(('heads', 'batch')) or (None, None)
  return tuple(
    () if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)
    for axes in each
  )


def _places(x):
  """Where arguments of the kernels go on the mesh: [H, N, ...], [H, ...], [N, ...]."""
  heads, rows = (axes or None for axes in _axes())
  whole = P(heads, rows)
  if isinstance(x, common.Arrays):
    return common.Arrays(whole, whole, whole, whole, P(heads))
  return P(rows) if isinstance(x, common.Segments) else whole


def _on_devices(call, arguments, written):
  """Run `call` on each device's part of the arguments."""
  if _is_alone():
    return call(*arguments)
  return jax.shard_map(
    call,
    in_specs=tuple(map(_places, arguments)),
    out_specs=written,
    check_vma=False,
  )(*arguments)
