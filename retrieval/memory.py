# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Memory held against what an array will take, before it is allocated."""

import bisect
from collections.abc import Callable, Sequence
import pathlib
import resource
import sys

import jax

from retrieval import settings

_CGROUP = pathlib.Path('/sys/fs/cgroup')
_MEMINFO = pathlib.Path('/proc/meminfo')
_STATM = pathlib.Path('/proc/self/statm')
# Of a container's memory, in memory.stat: what the kernel takes back at need.
_GIVEN_BACK = ('inactive_file', 'active_file', 'slab_reclaimable')
_PROCESS_BYTES = 128 << 20  # of a new Python process with numpy and JAX


def available_bytes() -> int | None:
  """Return the memory that this process may still take; None where unknown."""
  return _least(_free_of_machine(), _free_of_cgroup(), _free_of_process())


def device_bytes(devices: Sequence[jax.Device] | None = None) -> int | None:
  """Return the free memory of one device, the least of several; None: unknown.

  Devices of a CPU share the machine's memory.
  """
  devices = devices or jax.local_devices()
  if devices[0].platform == 'cpu':
    free = available_bytes()
    return None if free is None else free // len(devices)
  stats = [device.memory_stats() or {} for device in devices]
  if any('bytes_limit' not in x for x in stats):
    return None
  return min(x['bytes_limit'] - x.get('bytes_in_use', 0) for x in stats)


def check(
  field: str,
  value: int,
  each_bytes: int | float,
  free_bytes: int | None,
  *,
  fixed_bytes: int | float = 0,
) -> None:
  """Refuse a number of things that memory cannot hold.

  Args:
    field: name of the setting.
    each_bytes: least bytes that one of the `value` things takes.
    free_bytes: of `available_bytes` or `device_bytes`; None checks nothing.
    fixed_bytes: bytes that are taken beside the things.

  Raises:
    settings.SettingsError: naming the largest number that fits.
  """
  check_growth(field, value, lambda n: fixed_bytes + n * each_bytes, free_bytes)


def check_growth(
  field: str,
  value: int,
  needed_bytes: Callable[[int], float],
  free_bytes: int | None,
) -> None:
  """Refuse a number of things that take more than each its own.

  Args:
    field: name of the setting.
    needed_bytes: least bytes of a number of things; grows with the number.
    free_bytes: of `available_bytes` or `device_bytes`; None checks nothing.

  Raises:
    settings.SettingsError: naming the largest number that fits.
  """
  needed = needed_bytes(value)
  if free_bytes is None or needed <= free_bytes:
    return
  fits = bisect.bisect_right(
    range(1, min(value, sys.maxsize)), free_bytes, key=needed_bytes
  )
  expected = f'at most {fits:,}' if fits else 'smaller ones'
  raise settings.SettingsError(
    field,
    value,
    f'{expected}: it takes {gib(needed)} or more, and {gib(free_bytes)} are '
    'free',
  )


def check_processes(field: str, value: int) -> None:
  """Refuse a number of new processes that the machine cannot hold.

  Raises:
    settings.SettingsError: naming the largest number that fits.
  """
  check(
    field, value, _PROCESS_BYTES, _least(_free_of_machine(), _free_of_cgroup())
  )


def gib(num_bytes: int | float) -> str:
  """Return a number of bytes for a message."""
  return f'{num_bytes / 2**30:,.1f} GiB'


def _least(*known: int | None) -> int | None:
  return min((x for x in known if x is not None), default=None)


def _free_of_machine() -> int | None:
  try:
    lines = _MEMINFO.read_text().splitlines()
  except OSError:
    return None
  for line in lines:
    if line.startswith('MemAvailable:'):
      return 1024 * int(line.split()[1])
  return None


def _free_of_cgroup() -> int | None:
  """Return what the container may still take; its cached files do not count."""
  try:
    limit = (_CGROUP / 'memory.max').read_text().strip()
    used = int((_CGROUP / 'memory.current').read_text())
    stat = (_CGROUP / 'memory.stat').read_text().splitlines()
  except (OSError, ValueError):
    return None
  if not limit.isdigit():
    return None
  fields = dict(line.split() for line in stat)
  given_back = sum(int(fields.get(name, 0)) for name in _GIVEN_BACK)
  return max(0, int(limit) - used + given_back)


def _free_of_process() -> int | None:
  """Return the address space left below the limit of `ulimit -v`."""
  limit = resource.getrlimit(resource.RLIMIT_AS)[0]
  if limit == resource.RLIM_INFINITY or not _STATM.exists():
    return None
  pages = int(_STATM.read_text().split()[0])
  return max(0, limit - pages * resource.getpagesize())
