# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compile a program for TPUs or GPUs that are not there; tell what it would take.

  python -m experiments.accelerators.compile --topology=v5e:4x4 \
    --config=configs/retro_published.py:172m

compiles the very step that training runs, with its shardings, and prints memory,
FLOPs, traffic, exchanges between devices and the time that bounds them. Exit code 1
when a device could not hold it. --program=evaluate compiles the validation. Writes
<workdir>/compile.json. The compilers are installed apart: `pip install -e
'.[tpu-compile]'` and `'.[gpu-compile]'`, each in an environment of its own.
"""

from collections.abc import Sequence
import dataclasses
import math
import pathlib
import time
from typing import Any

from absl import flags
import jax
import ml_collections

from experiments.accelerators import chips, costs, hlo, programs
from experiments.engine import command, reports

FILE = 'compile.json'
_LARGEST = 6  # arrays that are named


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
  """Memory, work and time of one step on one device of a topology."""

  topology: str
  program: str
  mesh: dict[str, int]
  arguments_bytes: int
  temporary_bytes: int
  output_bytes: int  # beside donated arguments
  memory_bytes: float  # of the chip
  model_flops: float  # of all devices, by the model's formula
  executed_flops: float  # of all devices, products of the traced program
  traffic_bytes: float
  wide_products: list[str]  # with a float32 operand, in a bfloat16 program
  exchanges: list[dict[str, Any]]
  flops_sec: float
  traffic_sec: float
  network_sec: float
  # Of model FLOPs, if the three overlap and nothing else waits.
  mfu_bound: float
  trace_sec: float
  compile_sec: float
  lines: int  # of the program before the compiler
  largest: list[str]  # arrays of the traced program, over all devices

  @property
  def fits(self) -> bool:
    """Whether a device can hold it."""
    needed = self.arguments_bytes + self.temporary_bytes + self.output_bytes
    return needed <= self.memory_bytes


class TooLargeError(ValueError):
  """The compiler found that a device cannot hold the program."""


def analyze(
  config: ml_collections.ConfigDict, topology: str, name: str
) -> Report:
  """Compile a program of a config for a topology; errors are those below."""
  chip, devices = chips.of(topology), chips.devices(topology)
  return compiled_for(config, topology, name, chip, devices)[0]


def compiled_for(
  config: Any,
  place: str,
  name: str,
  chip: chips.Chip,
  devices: Sequence[jax.Device],
  **sizes: int,
) -> tuple[Report, jax.stages.Compiled]:
  """Compile a program of a config for devices, of which there may be none here.

  Args:
    sizes: as of `programs.trace`.

  Raises:
    TooLargeError: when the compiler refuses it for want of memory.
    ValueError: for an unknown program or topology.
    ImportError: when the compiler is not installed.
  """
  start = time.monotonic()
  found = programs.trace(config, devices, name, **sizes)
  lowered = found.traced.lower()
  traced = time.monotonic()
  jaxpr = found.traced.jaxpr.jaxpr
  largest = costs.largest(jaxpr, _LARGEST)
  try:
    compiled = lowered.compile(compiler_options=dict(chip.options))
  except jax.errors.JaxRuntimeError as error:
    text = ' '.join(str(error).split())
    if 'RESOURCE_EXHAUSTED' not in text:
      raise
    raise TooLargeError(
      f'{place}: {text[:500]} The largest arrays, over all devices: '
      f'{"; ".join(largest)}.'
    ) from error
  compile_sec = time.monotonic() - traced
  plan, program = compiled.memory_analysis(), hlo.Program(compiled.as_text())
  mesh, traffic = dict(found.mesh), program.traffic()
  exchanges = [
    {**dataclasses.asdict(x), 'seconds': x.seconds(chip.network)}
    for x in program.collectives(mesh)
  ]
  products = [*costs.products(jaxpr)]
  wide = {
    f'{a.str_short()} x {b.str_short()}'
    for a, b in (x.operands for x in products if x.is_wide)
  }
  # A topology may have more devices than the program uses.
  flops_a_second = chip.flops * math.prod(mesh.values())
  executed = costs.flops(products)
  seconds = {
    'flops_sec': executed / flops_a_second,
    'traffic_sec': traffic / chip.bandwidth,
    'network_sec': sum(x['seconds'] for x in exchanges),
  }
  report = Report(
    topology=place,
    program=name,
    mesh=mesh,
    arguments_bytes=plan.argument_size_in_bytes,
    temporary_bytes=plan.temp_size_in_bytes,
    output_bytes=plan.output_size_in_bytes - plan.alias_size_in_bytes,
    memory_bytes=chip.memory,
    model_flops=found.model_flops,
    executed_flops=executed,
    traffic_bytes=traffic,
    wide_products=sorted(wide) if found.dtype != 'float32' else [],
    exchanges=exchanges,
    **seconds,
    mfu_bound=found.model_flops / flops_a_second / max(seconds.values()),
    trace_sec=traced - start,
    compile_sec=compile_sec,
    lines=lowered.as_text().count('\n'),
    largest=largest,
  )
  return report, compiled


def _rows(found: Report) -> list[tuple[str, str]]:
  """Return every field of a report in words and units."""
  rows = [('executed / model FLOPs', found.executed_flops / found.model_flops)]
  for name, value in dataclasses.asdict(found).items():
    if name == 'exchanges':
      for x in value:
        size, sec = x['num_bytes'] / 1e9, x['seconds']
        text = f'{x["count"]:,.0f} of {size:,.2f} GB, {sec:.4f} s'
        rows.append((f'{x["kind"]} over {x["axes"]}', text))
    elif name.endswith('_bytes'):
      size = f'{value / 2**30:,.2f}'
      rows.append((f'{name.removesuffix("_bytes")}, GiB a device', size))
    elif isinstance(value, list):
      rows.append((name.replace('_', ' '), '; '.join(value) or 'none'))
    else:
      rows.append((name.replace('_', ' '), value))
  return [
    (name, f'{x:,.4g}' if isinstance(x, float) else f'{x}') for name, x in rows
  ]


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Compile, print and write the report."""
  topology, name = flags.FLAGS.topology, flags.FLAGS.program
  found = analyze(config, topology, name)
  reports.write_json(pathlib.Path(workdir) / FILE, dataclasses.asdict(found))
  title = f'{name} of {config.task} on {topology}'
  reports.print_table(('quantity', 'value'), _rows(found), title, wrap=True)
  if not found.fits:
    raise TooLargeError(
      f'{topology}: {name} does not fit; the largest arrays, over all devices: '
      f'{"; ".join(found.largest)}.'
    )


def _define_flags() -> None:
  flags.DEFINE_string(
    'topology', None, 'CHIP:SHAPE, such as v5e:4x4 or h100:8.'
  )
  flags.DEFINE_string('program', 'train', 'Program of the config.')
  flags.mark_flag_as_required('topology')


if __name__ == '__main__':
  command.main(
    run,
    define_flags=_define_flags,
    default_workdir='runs/compile',
    writes=FILE,
  )
