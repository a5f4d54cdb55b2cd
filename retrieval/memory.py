# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Memory held against what an array will take, before it is allocated."""

from collections.abc import Sequence
import pathlib

import jax

from retrieval import settings

_CGROUP = pathlib.Path('/sys/fs/cgroup')
_MEMINFO = pathlib.Path('/proc/meminfo')


def available_bytes() -> int | None:
  """Return the memory that this process may still take; None where unknown."""
  found = [x for x in (_free_of_machine(), _free_of_cgroup()) if x is not None]
  return min(found, default=None)


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
  if free_bytes is None or fixed_bytes + value * each_bytes <= free_bytes:
    return
  fits = max(0, int((free_bytes - fixed_bytes) // each_bytes))
  needed = (fixed_bytes + value * each_bytes) / 2**30
  raise settings.SettingsError(
    field,
    value,
    f'at most {fits:,}: it takes {needed:,.1f} GiB or more, and '
    f'{free_bytes / 2**30:,.1f} GiB are free',
  )


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
  return max(0, int(limit) - used + int(fields.get('inactive_file', 0)))
