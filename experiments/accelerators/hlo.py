# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads memory traffic and exchanges of a compiled program from its optimized HLO.

Loops count as often as they run, where their condition tells. Shapes are those of
one device.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import functools
import math
import re

import numpy as np

_BITS = {'pred': 8, 'token': 0, 'tuple': 0, 'opaque': 0}
_BITS |= {'bf16': 16, 'c64': 64, 'c128': 128}
_COMPUTATION = re.compile(r'^(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*|=.*)?\{$')
_INSTRUCTION = re.compile(r'^\s+(ROOT )?%?([\w.\-]+) = (.*)$')
_ARRAY = re.compile(r'(\w+)\[([\d,<=]*)\](?:\{([^{}]*)\})?')
_ELSEWHERE = re.compile(r'S\(\d+\)')  # in a layout: not in the device's memory
_OPCODE = re.compile(r'^([\w\-]+)\((.*)$')
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
COLLECTIVES = (
  'all-gather',
  'all-reduce',
  'reduce-scatter',
  'all-to-all',
  'collective-permute',
)


@dataclasses.dataclass(frozen=True)
class Instruction:
  """One operation of a computation."""

  name: str
  opcode: str
  shapes: tuple[tuple[str, tuple[int, ...]], ...]  # of its results
  operands: tuple[str, ...]
  text: str  # all after the opcode
  is_root: bool
  stored: tuple[bool, ...]  # whether the results are in the device's memory

  @functools.cached_property
  def num_bytes(self) -> int:
    """Bytes of its results in the device's memory."""
    return (
      sum(
        _bits(kind) * math.prod(shape)
        for (kind, shape), stored in zip(self.shapes, self.stored, strict=True)
        if stored
      )
      // 8
    )


@dataclasses.dataclass(frozen=True)
class Collective:
  """Exchanges of one kind between the same devices."""

  kind: str  # one of COLLECTIVES
  axes: tuple[str, ...]  # of the mesh; () where the devices are no axes of it
  size: int  # devices that take part together
  count: float  # times
  num_bytes: float  # of the largest operand or result, of all times

  def seconds(self, network: float) -> float:
    """Return the time at a bandwidth in bytes a second and direction, of a ring."""
    rounds = 2 if self.kind == 'all-reduce' else 1
    share = (
      1 if self.kind == 'collective-permute' else (self.size - 1) / self.size
    )
    return rounds * share * self.num_bytes / network


class Program:
  """The computations of a compiled module."""

  def __init__(self, text: str):
    """Parse `compiled.as_text()`."""
    self.computations: dict[str, dict[str, Instruction]] = {}
    self.entry = ''
    current: dict[str, Instruction] = {}
    for line in text.splitlines():
      if found := _COMPUTATION.match(line):
        current = self.computations.setdefault(found[2], {})
        self.entry = found[2] if found[1] else self.entry
      elif found := _INSTRUCTION.match(line):
        instruction = _instruction(found[2], found[3], bool(found[1]))
        current[instruction.name] = instruction

  @functools.cached_property
  def run(self) -> list[tuple[Instruction, dict[str, Instruction], float]]:
    """Each instruction that runs, with its computation and how often."""
    return [*self._run(self.entry, 1.0)]

  def _run(self, name: str, times: float) -> Iterator:
    computation = self.computations[name]
    for instruction in computation.values():
      yield instruction, computation, times
      for called, trips in self._called(instruction):
        yield from self._run(called, times * trips)

  def _called(self, instruction: Instruction) -> list[tuple[str, float]]:
    """Computations that an instruction runs, other than within one kernel."""
    names = dict(_CALLED.findall(instruction.text))
    if instruction.opcode == 'while':
      return [(names['body'], self._trips(instruction, names['condition']))]
    if instruction.opcode == 'call':
      return [(names['to_apply'], 1.0)]
    if instruction.opcode == 'conditional':
      found = _BRANCHES.search(instruction.text)
      branches = _OPERAND.findall(found[1]) if found else []
      largest = max(
        branches, key=lambda x: len(self.computations[x]), default=''
      )
      return [(largest, 1.0)] if largest else []
    return []

  def _trips(self, instruction: Instruction, condition: str) -> float:
    if found := _TRIPS.search(instruction.text):
      return float(found[1])
    computation = self.computations[condition]
    bounds = [
      re.match(r'(\d+)\)', x.text)
      for x in computation.values()
      if x.opcode == 'constant'
    ]
    bounds = [int(x[1]) for x in bounds if x]
    return float(max(bounds, default=1))

  def traffic(self) -> float:
    """Return the bytes that one device reads from and writes to its memory."""
    return sum(
      times * self._bytes(instruction, computation)
      for instruction, computation, times in self.run
    )

  def _bytes(
    self, instruction: Instruction, computation: dict[str, Instruction]
  ) -> float:
    opcode = instruction.opcode
    operands = [
      computation[x] for x in instruction.operands if x in computation
    ]
    if opcode in ('copy-start', 'slice-start'):  # (source, result, ...)
      kind, shape = instruction.shapes[1]
      places = *(x.stored[0] for x in operands[:1]), instruction.stored[1]
      return sum(places) * _bits(kind) * math.prod(shape) / 8
    if 'custom_call_target="AllocateBuffer"' in instruction.text:
      return 0
    if opcode in _FREE or opcode.endswith('-start') and opcode != 'async-start':
      return 0
    sizes = [x.num_bytes for x in operands]
    if opcode in ('dynamic-slice', 'slice', 'gather'):
      return instruction.num_bytes + min(sizes[0], _whole(instruction))
    if opcode == 'dynamic-update-slice':
      return sizes[1] + min(instruction.num_bytes, _whole(operands[1]))
    if opcode != 'fusion':
      return sum(sizes) + instruction.num_bytes
    called = dict(_CALLED.findall(instruction.text))
    inner = self.computations.get(called['calls'], {})
    return self._fused_bytes(inner, sizes, instruction.num_bytes)

  def _fused_bytes(
    self,
    inner: dict[str, Instruction],
    sizes: Sequence[float],
    result: float,
  ) -> float:
    """Bytes of a fused kernel: of operands that it slices, the slices alone."""
    total = float(result)
    for instruction in inner.values():
      if instruction.is_root and instruction.opcode == 'dynamic-update-slice':
        update = _whole(inner[instruction.operands[1]])
        total = update + min(total, update)
    return total + sum(
      min(size, self._read(inner, number)) for number, size in enumerate(sizes)
    )

  def _read(self, inner: dict[str, Instruction], number: int) -> float:
    """Bytes of a parameter that its users read; infinite for all of it."""
    for instruction in inner.values():
      if (
        instruction.opcode == 'parameter'
        and int(instruction.text.partition(')')[0]) == number
      ):
        break
    else:
      return math.inf
    total = 0.0
    name = instruction.name
    users = [x for x in inner.values() if name in x.operands]
    for user in users:
      if user.opcode in ('dynamic-slice', 'slice') or (
        user.opcode == 'gather' and user.operands[0] == name
      ):
        total += _whole(user)
      elif user.opcode == 'fusion':
        called = dict(_CALLED.findall(user.text))['calls']
        for place, operand in enumerate(user.operands):
          if operand == name:
            total += self._read(self.computations.get(called, {}), place)
      elif not (
        user.opcode == 'dynamic-update-slice' and user.operands[0] == name
      ):
        return math.inf
    return total if users else math.inf

  def collectives(self, mesh: dict[str, int]) -> list[Collective]:
    """Return the exchanges by kind and axes of a mesh, the largest first."""
    found: dict[tuple, list[float]] = {}
    for kind, instruction, computation, times in self._exchanges():
      axes, size = _axes(instruction.text, mesh)
      operands = (computation.get(x) for x in instruction.operands)
      sizes = [_largest(x) for x in operands if x]
      largest = max([_largest(instruction), *sizes])
      total = found.setdefault((kind, axes, size), [0.0, 0.0])
      total[0] += times
      total[1] += times * largest
    made = [Collective(*key, *total) for key, total in found.items()]
    return sorted(made, key=lambda x: -x.num_bytes)

  def _exchanges(self) -> Iterator:
    """Each exchange: kind, instruction, its computation and how often it runs."""
    seen = set()
    for instruction, computation, times in self.run:
      if instruction.opcode != 'fusion':
        kind = instruction.opcode.removesuffix('-start')
        if kind in COLLECTIVES:
          yield kind, instruction, computation, times
        continue
      # One that goes on beside others stands in several fused kernels.
      name = dict(_CALLED.findall(instruction.text))['calls']
      inner = self.computations.get(name, {})
      for fused in inner.values():
        channel = _CHANNEL.search(fused.text)
        key = id(computation), channel and channel[1]
        if fused.opcode in COLLECTIVES and not (channel and key in seen):
          seen.add(key)
          scatters = name.startswith('all-reduce-scatter')
          kind = 'reduce-scatter' if scatters else fused.opcode
          yield kind, fused, inner, times

  def largest(self, count: int) -> list[tuple[float, str]]:
    """Return the largest results (bytes, type and source) of what runs."""
    seen: dict[str, float] = {}
    for instruction, _, _ in self.run:
      if instruction.opcode in _FREE:
        continue
      for (kind, shape), stored in zip(
        instruction.shapes, instruction.stored, strict=True
      ):
        if not stored:
          continue
        source = re.search(r'op_name="([^"]*)"', instruction.text)
        name = (
          f'{kind}{list(shape)} {source[1] if source else instruction.opcode}'
        )
        seen[name] = _bits(kind) * math.prod(shape) / 8
    return sorted(((size, name) for name, size in seen.items()), reverse=True)[
      :count
    ]


def _bits(kind: str) -> int:
  if kind in _BITS:
    return _BITS[kind]
  digits = re.search(r'\d+', kind)
  return int(digits[0]) if digits else 0


def _instruction(name: str, rest: str, is_root: bool) -> Instruction:
  """Split '<type> opcode(operands), attributes'."""
  if rest.startswith('('):
    end = _closing(rest)
    kind, rest = rest[: end + 1], rest[end + 2 :]
  else:
    kind, _, rest = rest.partition(' ')
  found = _OPCODE.match(rest)
  opcode, text = (found[1], found[2]) if found else (rest, '')
  arrays = _ARRAY.findall(kind)
  shapes = tuple(
    (dtype, tuple(int(x.lstrip('<=')) for x in dims.split(',') if x))
    for dtype, dims, _ in arrays
  )
  stored = tuple(not _ELSEWHERE.search(layout) for *_, layout in arrays)
  arguments = text.partition(')')[0]
  operands = tuple(_OPERAND.findall(arguments))
  return Instruction(name, opcode, shapes, operands, text, is_root, stored)


def _closing(text: str) -> int:
  """Return the place of the bracket that closes the first one."""
  depth = 0
  for i, character in enumerate(text):
    depth += (character == '(') - (character == ')')
    if not depth:
      return i
  return len(text)


def _whole(instruction: Instruction) -> float:
  """Bytes of the results, wherever they are."""
  return sum(_bits(kind) * math.prod(x) for kind, x in instruction.shapes) / 8


def _largest(instruction: Instruction) -> float:
  return max(
    (_bits(kind) * math.prod(shape) / 8 for kind, shape in instruction.shapes),
    default=0,
  )


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
    rows = re.findall(r'\{([\d,]+)\}', listed)
    return np.array([_numbers(row) for row in rows])
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
  return [int(x) for x in text.split(',')]
