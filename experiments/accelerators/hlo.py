# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads memory traffic and exchanges of a compiled program from its optimized HLO.

`Compiled.cost_analysis` counts a loop once; here loops count as often as they run,
where their condition tells. Shapes are those of one device.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import math
import re

import numpy as np

_BITS = {'pred': 8, 'token': 0, 'tuple': 0, 'opaque': 0}
_BITS |= {'bf16': 16, 'c64': 64, 'c128': 128}
_COMPUTATION = re.compile(r'^(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*|=.*)?\{$')
_INSTRUCTION = re.compile(r'^\s+(ROOT )?%?([\w.\-]+) = (.*)$')
_ARRAY = re.compile(r'(\w+)\[([\d,<=]*)\](?:\{([^{}]*)\})?')
_ELSEWHERE = re.compile(r'S\(\d+\)')  # in a layout: not in the device's memory
_PARTS = re.compile(r'(.*?) ([a-z][\w\-]*)\((.*)$')  # type, opcode, rest
_OPERAND = re.compile(r'%([\w.\-]+)')
_CALLED = re.compile(r'(calls|body|condition|to_apply)=%?([\w.\-]+)')
_BRANCHES = re.compile(r'branch_computations=\{([^}]*)\}')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_IOTA = r'\[([\d,]+)\](?:<=\[([\d,]+)\])?(?:T\(([\d,]+)\))?'
_GROUPS = re.compile(
  rf'replica_groups=(?:mesh\[([^\]]*)\](?:, device_ids=\({_IOTA}\))? '
  rf'\{{([^}}]*)\}}|{_IOTA}|(\{{\{{.*?\}}\}}))'
)
_CHANNEL = re.compile(r'channel_id=(\d+)')
# Names only, no data of their own.
_FREE = {
  'parameter', 'constant', 'tuple', 'get-tuple-element', 'bitcast', 'while',
  'conditional', 'call', 'after-all', 'partition-id', 'replica-id', 'iota',
  'opt-barrier', 'domain', 'async-done', 'copy-done', 'slice-done',
  'all-gather-done', 'all-reduce-done', 'collective-permute-done',
}  # fmt: skip
_SLICES = {'dynamic-slice', 'slice'}
_COLLECTIVES = {
  'all-gather', 'all-reduce', 'reduce-scatter', 'all-to-all',
  'collective-permute',
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Instruction:
  """One operation of a computation."""

  name: str
  opcode: str
  sizes: tuple[float, ...]  # bytes of each result
  stored: tuple[bool, ...]  # whether the result is in the device's memory
  operands: tuple[str, ...]
  called: dict[str, str]  # role -> name of a computation
  text: str  # all after the opcode
  is_root: bool

  @property
  def whole(self) -> float:
    """Bytes of its results, wherever they are."""
    return sum(self.sizes)

  @property
  def in_memory(self) -> float:
    """Bytes of its results in the device's memory."""
    return sum(x for x, y in zip(self.sizes, self.stored, strict=True) if y)


Computation = dict[str, Instruction]


@dataclasses.dataclass(frozen=True)
class Collective:
  """Exchanges of one kind between the same devices."""

  kind: str  # one of _COLLECTIVES
  axes: tuple[str, ...]  # of the mesh; () where the devices are no axes of it
  size: int  # devices that take part together
  count: float  # times
  num_bytes: float  # of the largest operand or result, of all times

  def seconds(self, network: float) -> float:
    """Return the time at a bandwidth in bytes a second and direction, of a ring."""
    rounds = 2 if self.kind == 'all-reduce' else 1
    if self.kind != 'collective-permute':
      rounds *= (self.size - 1) / self.size
    return rounds * self.num_bytes / network


class Program:
  """The computations of a compiled module."""

  def __init__(self, text: str):
    """Parse `compiled.as_text()`."""
    self._computations: dict[str, Computation] = {}
    entry, current = '', {}
    for line in text.splitlines():
      if found := _COMPUTATION.match(line):
        current = self._computations.setdefault(found[2], {})
        entry = found[2] if found[1] else entry
      elif found := _INSTRUCTION.match(line):
        current[found[2]] = _instruction(found[2], found[3], bool(found[1]))
    self._run = [*self._walk(entry, 1.0)]

  def _walk(
    self, name: str, times: float
  ) -> Iterator[tuple[Instruction, Computation, float]]:
    """Yield each instruction that runs, its computation and how often."""
    computation = self._computations[name]
    for one in computation.values():
      yield one, computation, times
      if one.opcode == 'while':
        yield from self._walk(one.called['body'], times * self._trips(one))
      elif one.opcode == 'call':
        yield from self._walk(one.called['to_apply'], times)
      elif one.opcode == 'conditional' and (
        found := _BRANCHES.search(one.text)
      ):
        branches = _OPERAND.findall(found[1])
        yield from self._walk(
          max(branches, key=lambda x: len(self._computations[x])), times
        )

  def _trips(self, loop: Instruction) -> float:
    if found := _TRIPS.search(loop.text):
      return float(found[1])
    condition = self._computations[loop.called['condition']].values()
    bounds = [
      re.match(r'(\d+)\)', x.text) for x in condition if x.opcode == 'constant'
    ]
    return float(max((int(x[1]) for x in bounds if x), default=1))

  def traffic(self) -> float:
    """Return the bytes that one device reads from and writes to its memory."""
    return sum(
      times * self._bytes(instruction, computation)
      for instruction, computation, times in self._run
    )

  def _bytes(self, one: Instruction, computation: Computation) -> float:
    operands = [computation[x] for x in one.operands if x in computation]
    if one.opcode in ('copy-start', 'slice-start'):  # (source, result, ...)
      places = *(x.stored[0] for x in operands[:1]), one.stored[1]
      return sum(places) * one.sizes[1]
    if (
      one.opcode in _FREE
      or (one.opcode.endswith('-start') and one.opcode != 'async-start')
      or 'custom_call_target="AllocateBuffer"' in one.text
    ):
      return 0
    sizes = [x.in_memory for x in operands]
    if one.opcode in _SLICES or one.opcode == 'gather':
      return one.in_memory + min(sizes[0], one.whole)
    if one.opcode == 'dynamic-update-slice':
      return sizes[1] + min(one.in_memory, operands[1].whole)
    if one.opcode == 'fusion':
      return self._fused_bytes(self._inside(one), sizes, one.in_memory)
    return sum(sizes) + one.in_memory

  def _inside(self, fusion: Instruction) -> Computation:
    return self._computations.get(fusion.called['calls'], {})

  def _fused_bytes(
    self, inner: Computation, sizes: Sequence[float], result: float
  ) -> float:
    """Bytes of a fused kernel: of operands that it slices, the slices alone."""
    for one in inner.values():
      if one.is_root and one.opcode == 'dynamic-update-slice':
        update = inner[one.operands[1]].whole
        result = update + min(result, update)
    return result + sum(
      min(size, self._read(inner, number)) for number, size in enumerate(sizes)
    )

  def _read(self, inner: Computation, number: int) -> float:
    """Bytes of a parameter that its users read; infinite for all of it."""
    names = [
      x.name
      for x in inner.values()
      if x.opcode == 'parameter' and x.text.partition(')')[0] == str(number)
    ]
    users = [x for x in inner.values() if names and names[0] in x.operands]
    total = 0.0
    for user in users:
      is_first = user.operands[0] == names[0]
      if user.opcode in _SLICES or (user.opcode == 'gather' and is_first):
        total += user.whole
      elif user.opcode == 'fusion':
        for place, operand in enumerate(user.operands):
          if operand == names[0]:
            total += self._read(self._inside(user), place)
      elif user.opcode != 'dynamic-update-slice' or not is_first:
        return math.inf
    return total if users else math.inf

  def collectives(self, mesh: dict[str, int]) -> list[Collective]:
    """Return the exchanges by kind and axes of a mesh, the largest first."""
    found: dict[tuple, list[float]] = {}
    for kind, one, computation, times in self._exchanges():
      operands = [computation[x] for x in one.operands if x in computation]
      largest = max(x for y in (one, *operands) for x in y.sizes)
      total = found.setdefault((kind, *_axes(one.text, mesh)), [0.0, 0.0])
      total[0] += times
      total[1] += times * largest
    made = [Collective(*key, *total) for key, total in found.items()]
    return sorted(made, key=lambda x: -x.num_bytes)

  def _exchanges(self) -> Iterator[tuple[str, Instruction, Computation, float]]:
    """Yield each exchange: kind, instruction, computation and how often."""
    seen = set()
    for one, computation, times in self._run:
      if one.opcode != 'fusion':
        kind = one.opcode.removesuffix('-start')
        if kind in _COLLECTIVES:
          yield kind, one, computation, times
        continue
      # One that goes on beside others stands in several fused kernels.
      inner = self._inside(one)
      scatters = one.called['calls'].startswith('all-reduce-scatter')
      for fused in inner.values():
        channel = _CHANNEL.search(fused.text)
        key = id(computation), channel and channel[1]
        if fused.opcode in _COLLECTIVES and not (channel and key in seen):
          seen.add(key)
          kind = 'reduce-scatter' if scatters else fused.opcode
          yield kind, fused, inner, times


def _instruction(name: str, text: str, is_root: bool) -> Instruction:
  """Split '<type> opcode(operands), attributes'."""
  found = _PARTS.match(text)
  kind, opcode, rest = found.groups() if found else ('', text, '')
  arrays = _ARRAY.findall(kind)
  return Instruction(
    name,
    opcode,
    tuple(_num_bytes(dtype, dims) for dtype, dims, _ in arrays),
    tuple(not _ELSEWHERE.search(layout) for *_, layout in arrays),
    tuple(_OPERAND.findall(rest.partition(')')[0])),
    dict(_CALLED.findall(rest)),
    rest,
    is_root,
  )


def _num_bytes(dtype: str, dims: str) -> float:
  digits = re.search(r'\d+', dtype)
  bits = _BITS.get(dtype, int(digits[0]) if digits else 0)
  return bits * math.prod(_numbers(dims.replace('<=', ''))) / 8


def _axes(text: str, mesh: dict[str, int]) -> tuple[tuple[str, ...], int]:
  """Axes of the mesh over which a collective goes, and devices of a group."""
  groups = _groups(text, math.prod(mesh.values()))
  if groups is None:
    return (), 1
  places = np.stack(np.unravel_index(groups, tuple(mesh.values())), -1)
  varies = (places != places[:, :1]).any((0, 1))
  axes = tuple(name for name, moves in zip(mesh, varies, strict=True) if moves)
  return axes, groups.shape[1]


def _groups(text: str, num_devices: int) -> np.ndarray | None:
  """Devices of each group: [groups, size]."""
  if pairs := re.search(r'source_target_pairs=\{(.*?)\}\}', text):
    numbers = [int(x) for x in re.findall(r'\d+', pairs[1])]
    return np.array(numbers).reshape(-1, 2)
  found = _GROUPS.search(text)
  if not found:
    return None
  sizes, *places, over, shape, order, transpose, listed = found.groups()
  if listed:
    return np.array([_numbers(x) for x in re.findall(r'\{([\d,]+)\}', listed)])
  if shape:
    return _iota(shape, order, transpose, num_devices)
  named = dict(re.findall(r"'([^']+)'=(\d+)", sizes))
  ids = _iota(*places, num_devices).reshape([int(x) for x in named.values()])
  moved = [list(named).index(x) for x in re.findall(r"'([^']+)'", over)]
  rest = [i for i in range(ids.ndim) if i not in moved]
  group = math.prod(ids.shape[i] for i in moved)
  return ids.transpose([*rest, *moved]).reshape(-1, group)


def _iota(
  shape: str | None, order: str | None, transpose: str | None, num_devices: int
) -> np.ndarray:
  """Devices in the order of '[shape]<=[order]T(transpose)'; None is left out."""
  ids = np.arange(num_devices)
  if order or shape:
    ids = ids.reshape(_numbers(order or shape))
  if transpose:
    ids = ids.transpose(_numbers(transpose))
  return ids.reshape(_numbers(shape)) if shape and order else ids


def _numbers(text: str) -> list[int]:
  return [int(x) for x in text.split(',') if x]
