# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Limits of a plan: the need of each resource against its supply.

Each limit is a quotient of two numbers. Above 1 it breaks.
"""

from collections.abc import Iterator
import dataclasses
import math

from experiments.accelerators import chips
from experiments.scale import cost_model, job as job_lib
from experiments.scale.rates import Rates

_ARRAYS = 10  # of a shard of a token store, a file each
_MOST_FILES = 1e6  # of a folder
_SEEN_BYTES = 64  # of a document in the table of ids seen
_SHORT = 0.01  # hours that are not worth a line
_MOST_ROWS = 2**31 - 1  # of a ScaNN, whose ids have 32 bits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limit:
  """One thing that can break."""

  what: str
  needed: float
  there: float
  unit: str  # 'bytes', 'hours', 'files' or 'rows'
  change: str  # what helps

  @property
  def breaks(self) -> bool:
    """Whether more is needed than is there."""
    return self.ratio > 1

  @property
  def stops(self) -> bool:
    """Whether it breaks and ends the work, which time alone does not."""
    return self.breaks and self.unit != 'hours'

  @property
  def ratio(self) -> float:
    """Need divided by supply."""
    return self.needed / self.there if self.there else math.inf

  @property
  def order(self) -> tuple[int, float]:
    """Sort key: limits that stop by ratio, limits that slow by hours, the rest."""
    if self.stops or not self.breaks:
      return 0 if self.stops else 2, -self.ratio
    return 1, self.there - self.needed


def find(
  job: job_lib.Job,
  rates: Rates,
  stages: list[cost_model.Stage],
  refreshed: list[cost_model.Stage],
) -> list[Limit]:
  """Return all limits: what stops, what slows, the rest; worst first."""
  found = [*_memory(job, stages), *_files(job)]
  for stage in stages:
    found += _waits(job, stage)
  if refreshed:
    found.append(_refresh(job, rates, refreshed))
  return sorted(found, key=lambda x: x.order)


def _memory(
  job: job_lib.Job, stages: list[cost_model.Stage]
) -> Iterator[Limit]:
  by_name = {x.name: x for x in stages}
  on_chips = cost_model.CHIPS in by_name['neighbors'].times
  codes = job.chunks * job.code_bytes
  have = job.hosts * job.ram
  if on_chips:
    have = job.all_chips * chips.CHIPS[job.chip].memory
  least = math.ceil(codes / have * job.hosts)
  yield Limit(
    what=f'{job.codes} codes in the memory of all '
    + ('chips' if on_chips else 'hosts'),
    needed=codes,
    there=have,
    unit='bytes',
    change=f'{least:,} hosts or more'
    + ('' if job.codes == 'scann' else ', or --codes=scann'),
  )
  if job.codes == 'scann':
    yield Limit(
      what='memory of a host that builds a shard of ScaNN',
      needed=by_name['index'].ram,
      there=job.ram,
      unit='bytes',
      change='more --shards',
    )
    yield Limit(
      what='rows of a shard of ScaNN',
      needed=job.chunks / job.num_shards,
      there=_MOST_ROWS,
      unit='rows',
      change='more --shards',
    )
  yield Limit(
    what='chunks counted by document in each process that finds neighbors',
    needed=job.documents * cost_model.COUNTED_BYTES,
    there=job.ram,
    unit='bytes',
    change='counts as a memory-mapped store',
  )
  yield Limit(
    what='ids seen, a table that a reader keeps to refuse duplicates, against '
    "its host's memory",
    needed=job.documents * _SEEN_BYTES / job.readers,
    there=job.ram,
    unit='bytes',
    change='more --readers, each with ids of its own',
  )
  yield Limit(
    what='disk of all hosts',
    needed=sum(x.disk for x in stages),
    there=job.hosts * 1e12 * job.disk_tb,
    unit='bytes',
    change='more --disk_tb or hosts, or a smaller --vectors_dtype',
  )


def _files(job: job_lib.Job) -> Iterator[Limit]:
  shards = math.ceil(job.documents / job.documents_per_shard)
  wanted = 2 ** math.ceil(math.log2(job.documents * _ARRAYS / _MOST_FILES + 1))
  yield Limit(
    what='files in the folder of the token store',
    needed=_ARRAYS * shards,
    there=_MOST_FILES,
    unit='files',
    change=f'--documents_per_shard={max(wanted, job.documents_per_shard):,}',
  )


def _change(job: job_lib.Job, stage: cost_model.Stage, ratio: float) -> str:
  """Return a change for a stage that exceeds its time `ratio` times."""
  at = stage.bottleneck
  hosts = f'{math.ceil(ratio * job.hosts):,} hosts'
  if at == cost_model.DRIVER and stage.name == 'index':
    return '--shards_to_search=0, where the search takes longer'
  if at == cost_model.DRIVER:
    readers = math.ceil(ratio * job.readers)
    change = f'--readers={readers:,}, each with files of its own'
    if job.split_reading:
      return change
    return f'uncompressed JSON lines, which workers read, or {change}'
  if at == cost_model.FEEDING:
    cores = math.ceil(ratio * job.cores)
    return f'{cores:,} cores a host, or wordpieces that are stored once'
  if at == cost_model.STORAGE and stage.name == 'neighbors':
    return (
      'vectors in the memory of the hosts that search, as scoring again reads a '
      'page for each row'
    )
  if stage.name == 'neighbors' and job.codes == 'scann':
    return (
      f'{hosts}, or fewer --leaves_searched or --shards_to_search at a measured '
      'recall'
    )
  if at in (cost_model.CORES, cost_model.CHIPS):
    other = '--codes=scann' if stage.name == 'neighbors' else 'accelerators'
    return f'{hosts}, or {other}'
  return f'{ratio:.1f} times the {at}'


def _waits(job: job_lib.Job, stage: cost_model.Stage) -> Iterator[Limit]:
  """Yield the limits of a stage's time: resources its workers wait for, and hours."""
  at, hours = stage.bottleneck, stage.seconds / 3600
  if hours < _SHORT:
    return
  works = [x for x in (cost_model.CHIPS, cost_model.CORES) if x in stage.times]
  busiest = max(works, key=stage.times.__getitem__)
  if at != busiest:
    there = stage.times[busiest] / 3600
    yield Limit(
      what=f'{stage.name}: {at} against the work of all {busiest}',
      needed=hours,
      there=there,
      unit='hours',
      change=_change(job, stage, hours / there),
    )
  searches = ''
  if stage.name == 'neighbors':
    count = job.chunks * job.shards_asked
    searches = f' of {count:,.0f} searches, each in one shard'
  yield Limit(
    what=f'{stage.name}: hours{searches}, most of them of {at}',
    needed=hours,
    there=job.within_hours,
    unit='hours',
    change=_change(job, stage, hours / job.within_hours),
  )


def _refresh(
  job: job_lib.Job, rates: Rates, refreshed: list[cost_model.Stage]
) -> Limit:
  step = rates['realm_step'].value
  return Limit(
    what=f'REALM: a refresh against {job.refresh_every} steps of its trainer '
    f'(compiled: {step:g} s a step on {rates["realm_step"].machine})',
    needed=sum(x.seconds for x in refreshed) / 3600,
    there=job.refresh_every * step / 3600,
    unit='hours',
    change='a larger --refresh_every, or more hosts and accelerators',
  )
