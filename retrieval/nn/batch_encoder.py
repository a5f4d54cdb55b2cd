# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Encoding of rows of ids into vectors, on all devices, with little padding."""

import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
import itertools
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import numpy as np

Progress = Callable[[int, int], None]
# (params, ids [b, l] int32, lengths [b] int32) -> [b, d] float32, or of another rank
Encode = Callable[[Any, jax.Array, jax.Array], jax.Array]
Row = Sequence[int] | np.ndarray  # ids of one text

# Padded lengths: close together where texts are short, to pad little, and few
# enough to compile only a dozen programs in a long job.
_LENGTHS = (
  *range(16, 129, 16),
  *(share << doubled for doubled in range(5, 15) for share in (5, 6, 7, 8)),
)
# Batches dispatched before the first one's vectors are fetched.
_IN_FLIGHT = 3


def default_tokens(devices: Sequence[jax.Device]) -> int:
  """Return tokens of a batch on each device, padding included."""
  # The caches of a CPU hold 1,024.
  return 1024 if devices[0].platform == 'cpu' else 16_384


def compiled(
  encode: Callable, devices: Sequence[jax.Device], num_inputs: int = 2
) -> tuple[Callable, NamedSharding, NamedSharding]:
  """Jit (params, inputs...) -> results, the rows of inputs split over devices.

  Also returns the shardings of parameters and of rows.
  """
  mesh = jax.make_mesh(
    (len(devices),), ('data',), axis_types=(AxisType.Auto,), devices=devices
  )
  everywhere, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P('data'))
  inputs = range(num_inputs)
  if len(devices) > 1 or devices[0].platform != 'cpu':
    # Kernels of a device compute its rows.
    encode = jax.shard_map(
      encode,
      mesh=mesh,
      in_specs=(P(), *(P('data') for _ in inputs)),
      out_specs=P('data'),
      check_vma=False,
    )
  encode = jax.jit(
    encode,
    in_shardings=(everywhere, *(rows for _ in inputs)),
    out_shardings=rows,
  )
  return encode, everywhere, rows


class BatchEncoder:
  """Encoder of rows of ids in length-bucketed batches, sharded over devices."""

  def __init__(
    self,
    encode: Encode,
    params: Any,
    *,
    dimension: int,
    max_length: int,
    batch_tokens: int = 0,
    devices: Sequence[jax.Device] | None = None,
  ):
    """Place the parameters on the devices.

    Args:
      encode: pure function (params, ids, lengths) -> vectors.
      max_length: length of the longest row.
      batch_tokens: tokens of a batch on each device, padding included; 0 is
        `default_tokens`.
      devices: devices that encode; None is all local devices.
    """
    self.dimension = dimension
    self.max_length = max_length
    devices = jax.local_devices() if devices is None else devices
    self._num_devices = len(devices)
    self._batch_tokens = batch_tokens or default_tokens(devices)
    self._encode, replicated, self._sharding = compiled(encode, devices)
    self.params = jax.device_put(params, replicated)

  def __call__(
    self, rows: Iterable[Row], total: int, progress: Progress | None = None
  ) -> np.ndarray:
    """Return vectors [total, dimension] float32 in the order of the rows.

    These are `total` rows of at most `max_length` ids.
    """
    vectors = np.empty((total, self.dimension), np.float32)
    for indices, part in self.parts(rows, total, progress):
      vectors[indices] = part
    return vectors

  def parts(
    self, rows: Iterable[Row], total: int, progress: Progress | None = None
  ) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield the results of batches: numbers of rows [n], and [n, ...] of each.

    `encode` may return an array of any rank; arguments are those of a call. ValueError
    for a value that is not finite.
    """
    in_flight = collections.deque()
    done = 0

    def fetch():
      nonlocal done
      indices, result = in_flight.popleft()
      values = np.asarray(result)[: len(indices)]
      finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
      if not finite.all():
        raise ValueError(
          f'The vector of text {indices[int(finite.argmin())]} is not finite; '
          'check the parameters of the encoder.'
        )
      done += len(indices)
      if progress:
        progress(done, total)
      return list(indices), values

    for indices, batch_rows, length in self._batches(rows):
      batch = jax.device_put(self._pad(batch_rows, length), self._sharding)
      in_flight.append((indices, self._encode(self.params, *batch)))
      while len(in_flight) > _IN_FLIGHT:
        yield fetch()
    while in_flight:
      yield fetch()

  def _batches(
    self, texts: Iterable[Row]
  ) -> Iterator[tuple[Sequence[int], Sequence[Row], int]]:
    """Yield (indices, ids, padded length): full buckets, then the rest."""
    buckets = collections.defaultdict(list)
    for index, ids in enumerate(texts):
      length = self._bucket(len(ids))
      buckets[length].append((index, ids))
      if len(buckets[length]) == self._num_rows(length):
        yield *zip(*buckets.pop(length), strict=True), length
    left = sorted(itertools.chain(*buckets.values()), key=lambda x: len(x[1]))
    while left:
      # The last row of a batch is the longest and decides how many rows fit.
      rows = len(left)
      while rows > self._num_rows(
        length := self._bucket(len(left[rows - 1][1]))
      ):
        rows = self._num_rows(length)
      yield *zip(*left[:rows], strict=True), length
      left = left[rows:]

  def _bucket(self, length: int) -> int:
    padded = next((x for x in _LENGTHS if x >= length), length)
    return min(padded, self.max_length)

  def _num_rows(self, length: int) -> int:
    return max(1, self._batch_tokens // length) * self._num_devices

  def _pad(self, rows: Sequence[Row], length: int):
    """Pad to one of a few static shapes: a full batch, or a power of 4 rows."""
    full, num_rows = self._num_rows(length), self._num_devices
    while num_rows < len(rows):
      num_rows = min(4 * num_rows, full)
    ids = np.zeros((num_rows, length), np.int32)
    for i, row in enumerate(rows):
      ids[i, : len(row)] = row
    lengths = np.zeros(num_rows, np.int32)
    lengths[: len(rows)] = [len(row) for row in rows]
    return ids, lengths
