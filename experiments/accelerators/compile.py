# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compile a program for absent TPUs or GPUs; report its memory and time.

  python -m experiments.accelerators.compile --topology=v5e:4x4 \
    --config=configs/retro_published.py:172m

compiles the very step that training runs, with its shardings, and prints XLA's
account of a device's memory, and the seconds of the step at the chip's peaks.
Exit code 1 when a device could not hold it. --program=evaluate compiles the validation.
Writes <workdir>/compile.json. The compilers are installed apart: `pip install -e
'.[tpu-compile]'` and `'.[gpu-compile]'`, each in another environment.
"""

from collections.abc import Sequence
import math
import pathlib
import time
from typing import Any

from absl import flags
import jax

from experiments.accelerators import chips, programs
from experiments.engine import command, reports

FILE = 'compile.json'


class TooLargeError(ValueError):
  """A device cannot hold the program."""


def compiled_for(
  config: Any,
  name: str,
  chip: chips.Chip,
  devices: Sequence[jax.Device],
  **sizes: int,
) -> tuple[dict[str, Any], jax.stages.Compiled]:
  """Compile a program of a config for devices, present or not.

  Args:
    sizes: as of `programs.trace`.

  Returns:
    Bytes, work and seconds of one run on one device. model_flops are those of all
    devices, by RETRO's formula, 0 for other models. In XLA's counts a loop counts once;
    0 where it does not tell. peak_sec is the longest of these three at the chip's peaks.

  Raises:
    TooLargeError: when the compiler refuses it for want of memory.
    ValueError: for an unknown program.
  """
  program = programs.trace(config, devices, name, **sizes)
  start, lowered = time.monotonic(), program.traced.lower()
  try:
    compiled = lowered.compile(compiler_options=dict(chip.options))
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    raise TooLargeError(' '.join(str(error).split())[:500]) from error
  compile_sec = time.monotonic() - start
  plan, work = compiled.memory_analysis(), compiled.cost_analysis() or {}
  flops, traffic = (work.get(x, 0.0) for x in ('flops', 'bytes accessed'))
  share = program.model_flops / math.prod(program.mesh.values())
  held = {
    'arguments_bytes': plan.argument_size_in_bytes,
    'temporary_bytes': plan.temp_size_in_bytes,
    # beside donated arguments
    'output_bytes': plan.output_size_in_bytes - plan.alias_size_in_bytes,
  }
  report = {
    'program': name,
    'mesh': dict(program.mesh),
    **held,
    'needed_bytes': sum(held.values()),
    'memory_bytes': chip.memory,
    'model_flops': program.model_flops,
    'xla_flops': flops,
    'xla_traffic_bytes': traffic,
    'peak_sec': max(
      share / chip.flops, flops / chip.flops, traffic / chip.bandwidth
    ),
    'compile_sec': compile_sec,
  }
  return report, compiled


def run(config: Any, workdir: str) -> None:
  """Compile, print and write the report."""
  topology, name = flags.FLAGS.topology, flags.FLAGS.program
  chip, devices = chips.of(topology), chips.devices(topology)
  report, _ = compiled_for(config, name, chip, devices)
  report = {'topology': topology, **report}
  reports.write_json(pathlib.Path(workdir) / FILE, report)
  rows = []
  for key, value in report.items():
    if key.endswith('_bytes'):
      key, value = f'{key.removesuffix("_bytes")}_GiB', value / 2**30
    text = f'{value:,.4g}' if isinstance(value, float) else f'{value}'
    rows.append((key.replace('_', ' '), text))
  title = f'{name} of {config.task} on {topology}, a device'
  reports.print_table(('quantity', 'value'), rows, title, wrap=True)
  if report['needed_bytes'] > report['memory_bytes']:
    raise TooLargeError(f'{topology}: {name} does not fit.')


if __name__ == '__main__':
  flags.DEFINE_string(
    'topology', None, 'CHIP:SHAPE, such as v5e:4x4 or h100:8.'
  )
  flags.DEFINE_string('program', 'train', 'Program of the config.')
  flags.mark_flag_as_required('topology')
  command.main(
    run,
    default_workdir='runs/compile',
    writes=FILE,
  )
