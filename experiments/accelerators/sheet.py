# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure the programs of one accelerator beside the compiler's roofline.

  python -m experiments.accelerators.sheet

Runs the programs of `sheet_rows` on random input in minutes, on the first device. A
row takes the largest of its batches that fits. Predicted seconds are the longer of
those by FLOPs and by memory. PyTorch is timed where it is installed. --dry_run rehearses all of it at tiny sizes, on
a CPU, too. --topology=h100:1 predicts what such a device would take, where its
compiler is installed. Writes <workdir>/accelerator.json and accelerator.md.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import math
import pathlib
import re
import statistics
import time
from typing import Any

from absl import flags, logging
import jax
import jax.numpy as jnp

from experiments.accelerators import (
  chips,
  compile as compile_lib,
  sheet_parity,
  sheet_rows,
)
from experiments.engine import command, reports
from retrieval.kernels import backend

FILE, TABLE = 'accelerator.json', 'accelerator.md'
HEADS = (
  'program',
  'batch',
  'seconds',
  'predicted',
  'predicted / measured',
  'MFU',
  'rate',
)
# Arguments that hold words, and how many different ones (as in small vocabularies).
_WORDS = re.compile(r"'(tokens|targets|neighbors|\w+_tokens|mlm_targets)'")
_MOST_WORDS = 1000
_FILL = 0.92  # of the memory that a program may plan for
_READ_BYTES = {False: 2**32, True: 2**22}  # by --dry_run
# An unknown device: nothing is predicted.
_UNKNOWN = chips.Chip('', 1e30, 1e30, 1e30, 1e30)


def random_input(compiled: jax.stages.Compiled, device: jax.Device) -> tuple:
  """Return arguments for a compiled program.

  Small random floats, ones, and words as frequent as in text (p ~ 1 / rank).
  """

  def make(path, info):
    kind, shape = info.dtype, info.shape
    if jnp.issubdtype(kind, jax.dtypes.prng_key):
      return jnp.broadcast_to(jax.random.key(0), shape)
    if _WORDS.search(jax.tree_util.keystr(path)):
      share = jax.random.uniform(jax.random.key(1), shape)
      return jnp.exp(share * math.log(_MOST_WORDS)).astype(kind)
    if not jnp.issubdtype(kind, jnp.floating):
      return jnp.ones(shape, kind)
    return jax.random.uniform(jax.random.key(1), shape, kind, 0, 0.02)

  with jax.default_device(device):
    return jax.tree_util.tree_map_with_path(make, compiled.args_info[0])


def seconds_of(
  compiled: jax.stages.Compiled, arguments: tuple, rounds: int
) -> float:
  """Return the median seconds of a run; donated arguments become its results."""
  leaves, tree = jax.tree.flatten(arguments)
  infos = jax.tree.leaves(compiled.args_info)
  places = jax.tree.leaves(
    compiled.input_shardings[0], is_leaf=lambda x: x is None
  )
  leaves = [  # None: an argument that the program does not use
    x if place is None else jax.device_put(x, place)
    for x, place in zip(leaves, places, strict=True)
  ]
  taken = []
  for _ in range(rounds + 1):
    start = time.perf_counter()
    results = jax.tree.leaves(compiled(*jax.tree.unflatten(tree, leaves)))
    jax.block_until_ready(results)
    taken.append(time.perf_counter() - start)
    for place, info in enumerate(infos):
      if info.donated:
        leaves[place] = next(
          results.pop(i)
          for i, x in enumerate(results)
          if (x.shape, x.dtype) == (info.shape, info.dtype)
        )
  return statistics.median(taken[1:])  # the first warms up


def measure(
  row: sheet_rows.Row,
  place: str,
  chip: chips.Chip,
  device: jax.Device,
  rounds: int,
) -> dict[str, Any]:
  """Compile a row at the largest batch that fits, and time it.

  Args:
    place: name of the device.
    rounds: timed runs; 0 for a device that is not there.

  Raises:
    TooLargeError, JaxRuntimeError: where none of its batches fits.
  """
  for batch in row.batches:
    try:
      return _measure(row, batch, place, chip, device, rounds)
    except (compile_lib.TooLargeError, jax.errors.JaxRuntimeError) as error:
      refused = 'RESOURCE_EXHAUSTED' in str(error)
      if not refused or batch == row.batches[-1]:
        raise
    logging.info('%s: a batch of %d does not fit.', row.what, batch)
  raise ValueError(f'{row.what}: no batches.')


def _measure(row, batch, place, chip, device, rounds) -> dict[str, Any]:
  config = sheet_rows.config_of(row, batch)
  report, compiled = compile_lib.compiled_for(
    config, place, row.program, chip, [device], **row.sizes
  )
  needed = report.arguments_bytes + report.temporary_bytes
  if needed > _FILL * chip.memory:
    raise compile_lib.TooLargeError(f'RESOURCE_EXHAUSTED: {needed:,} bytes.')
  # The report counts once the loop up to the end of a chunk.
  turns = sheet_rows.CHUNK if row.program == 'decode' else 1
  found = {
    'batch': batch,
    'unit': row.unit,
    'compile_sec': report.compile_sec,
    'model_flops': report.model_flops,
    'executed_flops': report.executed_flops,
    'traffic_bytes': report.traffic_bytes,
    'needed_bytes': needed,
  }
  if chip is not _UNKNOWN:
    found['predicted_sec'] = turns * max(report.flops_sec, report.traffic_sec)
  if not rounds:
    return found
  arguments = row.given(random_input(compiled, device))
  found['seconds'] = seconds = seconds_of(compiled, arguments, rounds)
  found['units_per_sec'] = row.units(batch) / seconds
  if chip is not _UNKNOWN:
    found['mfu'] = turns * report.model_flops / chip.flops / seconds
  if row.torch and (theirs := sheet_rows.torch_rate(row.torch, batch)):
    found['torch_per_sec'] = theirs
  return found


def read_seconds(device: jax.Device, rounds: int, num_bytes: int) -> float:
  """Return the seconds in which a device reads bytes of its memory."""
  with jax.default_device(device):
    rows = jnp.ones(num_bytes // 2, jnp.bfloat16)
    compiled = jax.jit(lambda x: x.max()).lower(rows).compile()
    return seconds_of(compiled, (rows,), rounds)


def cells(row: sheet_rows.Row, found: Mapping[str, Any]) -> list[str]:
  """Return a row of the table."""

  def text(value: float | None, form: str) -> str:
    return f'{value:{form}}' if value else '-'

  taken, predicted = found.get('seconds'), found.get('predicted_sec')
  rate = found.get('why', '-')
  if taken:
    rate = f'{found["units_per_sec"]:,.0f} {found["unit"]}/s'
  if theirs := found.get('torch_per_sec'):
    rate += f', PyTorch {theirs:,.0f}'
  return [
    row.what,
    str(found.get('batch', '-')),
    text(taken, '.4g') if taken else 'not measured',
    text(predicted, '.4g'),
    text(predicted and taken and predicted / taken, '.2f'),
    text(found.get('mfu') if row.program == 'train' else None, '.2f'),
    rate,
  ]


def _write(found: Mapping[str, Any], workdir: pathlib.Path) -> list[list[str]]:
  """Write the report of what was measured by now; return the table."""
  rows = [x for x in sheet_rows.ROWS if x.what in found['rows']]
  lines = [cells(row, found['rows'][row.what]) for row in rows]
  table = [HEADS, ['---'] * len(HEADS), *lines]
  text = '\n'.join(f'| {" | ".join(line)} |' for line in table)
  reports.write_json(workdir / FILE, found)
  (workdir / TABLE).write_text(f'{text}\n\nOn {found["device"]}.\n')
  return lines


def main(argv: Sequence[str]) -> None:
  """Measure, print and write."""
  del argv
  options = flags.FLAGS
  rows = [x for x in sheet_rows.ROWS if re.search(options.only, x.what)]
  if not rows:
    raise ValueError(f'--only={options.only!r}: names no row.')
  if options.dry_run:
    rows = [sheet_rows.tiny(row) for row in rows]
    jax.config.update('jax_disable_most_optimizations', True)
  found: dict[str, Any] = {
    'jax': jax.__version__,
    'dry_run': options.dry_run,
    'parity': [],
    'rows': {},
  }
  if options.topology:
    found['device'], rounds = options.topology, 0
    device = chips.devices(options.topology)[0]
    chip = chips.of(options.topology)
  else:
    device, rounds = backend.devices()[0], options.rounds
    if device.platform == 'cpu' and not options.dry_run:
      raise ValueError(
        'No accelerator: JAX computes on the CPU; expected --dry_run there.'
      )
    found['device'] = device.device_kind
    if options.dry_run:
      found['device'] += ', tiny sizes'
    # The compiler tunes what it compiles for a device that is there.
    chip = chips.of_device(device) or _UNKNOWN
    chip = dataclasses.replace(chip, options={}) if chip.options else chip
    num_bytes = _READ_BYTES[options.dry_run]
    seconds = read_seconds(device, rounds, num_bytes)
    found['bytes_read_per_sec'] = num_bytes / seconds
  measured = functools.partial(
    measure, place=found['device'], chip=chip, device=device, rounds=rounds
  )
  for row in rows:
    logging.info('%s.', row.what)
    try:
      found['rows'][row.what] = measured(row)
    except Exception as error:  # One row must not cost the others.
      why = ' '.join(f'{type(error).__name__}: {error}'.split())[:300]
      found['rows'][row.what] = {'why': why}
    lines = _write(found, pathlib.Path(options.workdir))
  if rounds:  # compiles four programs, so it comes last
    try:
      found['parity'] = sheet_parity.measure(device)
    except Exception as error:
      logging.error('Parity: %s: %s', type(error).__name__, error)
    _write(found, pathlib.Path(options.workdir))
  reports.print_table(HEADS, lines, found['device'], wrap=True)
  if read := found.get('bytes_read_per_sec'):
    print(f'Memory is read at {read / 1e9:,.0f} GB/s.')
  for x in found['parity']:
    print(
      f'{x["model"]} in {x["dtype"]}: largest error {x["error"]:.2g} of values '
      f'up to {x["largest"]:.3g}.'
    )


if __name__ == '__main__':
  flags.DEFINE_string(
    'topology',
    '',
    'Device that is not there, such as h100:1: predict, measure nothing.',
  )
  command.define_output(
    'workdir', 'runs/accelerator', 'Folder of the report.', is_folder=True
  )
  flags.DEFINE_string('only', '', 'Rows, a regular expression.')
  flags.DEFINE_bool('dry_run', False, 'Tiny sizes: rehearse, measure nothing.')
  flags.DEFINE_integer('rounds', 5, 'Timed runs of a program.', 1)
  command.main_of_script(main)
