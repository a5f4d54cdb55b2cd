# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure the programs of one accelerator beside the compiler's roofline.

  python -m experiments.accelerators.sheet

Runs the programs of `experiments.accelerators` on random input: training of RETRO
and its baseline, decoding, embedding, a step of REALM, exact search; in minutes, on
the first device. A row takes the largest of its batches that fits. Predicted seconds
are the longer of those by FLOPs and by memory. Machines with accelerators are often
bare: JAX, Flax, Optax, Orbax, ml-collections, jaxtyping and NumPy suffice; PyTorch is
timed where it is installed. --topology=h100:1 predicts what such a device would take,
where its compiler is installed. Writes <workdir>/accelerator.json and accelerator.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
  absent,
  chips,
  compile as compile_lib,
  sheet_parity,
  sheet_rows,
  sheet_torch,
)
from experiments.engine import command, reports
from retrieval.kernels import backend

FILE, TABLE = 'accelerator.json', 'accelerator.md'
# Arguments that hold words, and how many different ones (as in small vocabularies).
_WORDS = re.compile(r"'(tokens|targets|neighbors|\w+_tokens|mlm_targets)'")
_MOST_WORDS = 1000
_FILL = 0.92  # of the memory that a program may plan for
# An unknown device: nothing is predicted.
_UNKNOWN = chips.Chip(
  platform='', flops=1e30, memory=1e30, bandwidth=1e30, network=1e30
)


def random_input(compiled: Any, device: jax.Device) -> tuple:
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

  positional, named = compiled.args_info
  assert not named
  with jax.default_device(device):
    return jax.tree_util.tree_map_with_path(make, positional)


def seconds_of(compiled: Any, arguments: tuple, rounds: int) -> float:
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
  for number in range(rounds + 1):  # the first warms up
    start = time.perf_counter()
    results = jax.tree.leaves(compiled(*jax.tree.unflatten(tree, leaves)))
    jax.block_until_ready(results)
    if number:
      taken.append(time.perf_counter() - start)
    for place, info in enumerate(infos):
      if info.donated:
        leaves[place] = next(
          results.pop(i)
          for i, x in enumerate(results)
          if (x.shape, x.dtype) == (info.shape, info.dtype)
        )
  return statistics.median(taken)


def largest(
  row: sheet_rows.Row, place: str, chip: chips.Chip, device: jax.Device
) -> tuple[int, compile_lib.Report, Any]:
  """Compile a row at the largest batch that fits: batch, report, program.

  Raises:
    compile.TooLargeError: where none of its batches fits.
  """
  for batch in row.batches:
    config = sheet_rows.config_of(row, batch)
    try:
      report, compiled = compile_lib.compiled_for(
        config, place, row.program, chip, [device]
      )
      needed = report.arguments_bytes + report.temporary_bytes
      if needed <= _FILL * chip.memory:
        return batch, report, compiled
      raise compile_lib.TooLargeError(f'{row.what}: {needed:,} bytes.')
    except compile_lib.TooLargeError:
      if batch == row.batches[-1]:
        raise
    logging.info('%s: a batch of %d does not fit.', row.what, batch)
  raise AssertionError(row.batches)


def describe(
  row: sheet_rows.Row,
  batch: int,
  report: compile_lib.Report,
  has_chip: bool,
) -> dict[str, Any]:
  """Return what the compiler tells of a row."""
  found = {
    'batch': batch,
    'unit': row.unit,
    'compile_sec': report.compile_sec,
    'model_flops': report.model_flops,
    'executed_flops': report.executed_flops,
    'traffic_bytes': report.traffic_bytes,
    'needed_bytes': report.arguments_bytes + report.temporary_bytes,
  }
  if has_chip:
    runs = _runs(row)
    found['predicted_sec'] = runs * max(report.flops_sec, report.traffic_sec)
  return found


def _runs(row: sheet_rows.Row) -> int:
  """Turns of a loop up to the end of a chunk, which the report counts once."""
  return sheet_rows.CHUNK if row.program == 'decode' else 1


def measure(
  row: sheet_rows.Row, device: jax.Device, rounds: int
) -> dict[str, Any]:
  """Compile and time a row at the largest batch that fits.

  Raises:
    compile.TooLargeError: where none of its batches fits.
  """
  chip = chips.of_device(device)
  # The compiler tunes what it compiles for a device that is there.
  place = dataclasses.replace(chip or _UNKNOWN, options={})
  while True:
    batch, report, compiled = largest(row, device.device_kind, place, device)
    try:
      seconds = _seconds(row, compiled, device, rounds)
      break
    except jax.errors.JaxRuntimeError as error:
      smaller = tuple(x for x in row.batches if x < batch)
      if 'RESOURCE_EXHAUSTED' not in str(error) or not smaller:
        raise
      row = dataclasses.replace(row, batches=smaller)
  units = row.units(batch) if row.units else batch
  found = describe(row, batch, report, chip is not None)
  found |= {'seconds': seconds, 'units_per_sec': units / seconds}
  if chip:
    found['mfu'] = _runs(row) * report.model_flops / chip.flops / seconds
  if row.torch:
    theirs = sheet_torch.chunks_per_sec(**row.torch, tokens=batch)
    if theirs:
      found['torch_per_sec'] = theirs
  return found


def _seconds(
  row: sheet_rows.Row, compiled: Any, device: jax.Device, rounds: int
) -> float:
  """Seconds of a compiled row; its arguments go when it ends or fails."""
  arguments = random_input(compiled, device)
  if row.given:
    arguments = row.given(arguments)
  return seconds_of(compiled, arguments, rounds)


def predict(row: sheet_rows.Row, topology: str) -> dict[str, Any]:
  """Compile a row for a device of a topology, which is not there."""
  device = chips.devices(topology)[0]
  batch, report, _ = largest(row, topology, chips.of(topology), device)
  return describe(row, batch, report, has_chip=True)


def read_seconds(device: jax.Device, rounds: int, size: int = 2**32) -> float:
  """Return the seconds in which a device reads 4 GiB of its memory."""
  with jax.default_device(device):
    rows = jnp.ones(size // 2, jnp.bfloat16)
    compiled = jax.jit(lambda x: x.max()).lower(rows).compile()
    return seconds_of(compiled, (rows,), rounds)


def cells(row: sheet_rows.Row, found: Mapping[str, Any]) -> list[str]:
  """A row of the table."""
  if 'why' in found:
    return [row.what, '-', 'not measured', '-', '-', '-', found['why']]
  predicted = found.get('predicted_sec')
  if 'seconds' not in found:
    batch = str(found['batch'])
    return [row.what, batch, 'not measured', f'{predicted:.4g}', *['-'] * 3]
  mfu = found.get('mfu')
  theirs = found.get('torch_per_sec')
  return [
    row.what,
    str(found['batch']),
    f'{found["seconds"]:.4g}',
    f'{predicted:.4g}' if predicted else '-',
    f'{predicted / found["seconds"]:.2f}' if predicted else '-',
    f'{mfu:.2f}' if mfu and row.program == 'train' else '-',
    f'{found["units_per_sec"]:,.0f} {found["unit"]}/s'
    + (f', PyTorch {theirs:,.0f}' if theirs else ''),
  ]


HEADS = (
  'program',
  'batch',
  'seconds',
  'predicted',
  'predicted / measured',
  'MFU',
  'rate',
)


def run(
  measured: Callable[[sheet_rows.Row], dict[str, Any]],
  rows: Sequence[sheet_rows.Row],
  deadline: float,
) -> Iterator[tuple[str, dict[str, Any]]]:
  """Measure rows, yield each; what fails says why.

  Args:
    deadline: by `time.monotonic`; no row begins after it.
  """
  for row in rows:
    if time.monotonic() > deadline:
      yield row.what, {'why': 'no time left'}
      continue
    logging.info('%s.', row.what)
    try:
      yield row.what, measured(row)
    except Exception as error:  # One row must not cost the others.
      why = ' '.join(f'{type(error).__name__}: {error}'.split())[:300]
      yield row.what, {'why': why}


def main(argv: Sequence[str]) -> None:
  """Measure, print and write."""
  del argv
  options = flags.FLAGS
  deadline = time.monotonic() + options.budget_sec
  rows = [x for x in sheet_rows.ROWS if re.search(options.only, x.what)]
  if not rows:
    raise ValueError(f'--only={options.only!r}: names no row.')
  found: dict[str, Any] = {
    'jax': jax.__version__,
    'packages_missing': absent.MISSING,
    'parity': [],
  }
  if options.topology:
    found['device'] = options.topology
    measured = functools.partial(predict, topology=options.topology)
  else:
    device = backend.devices()[0]
    if device.platform == 'cpu' and not options.cpu:
      raise ValueError(
        'No accelerator: JAX computes on the CPU. --cpu measures that.'
      )
    found['device'] = device.device_kind
    found['parity'] = sheet_parity.measure(device)
    measured = functools.partial(measure, device=device, rounds=options.rounds)
    if device.platform != 'cpu':
      seconds = read_seconds(device, options.rounds)
      found['bytes_read_per_sec'] = 2**32 / seconds
  found['rows'] = {}
  workdir = pathlib.Path(options.workdir)
  for what, result in run(measured, rows, deadline):
    found['rows'][what] = result
    reports.write_json(workdir / FILE, found)  # A run cut off leaves its rows.
  lines = [cells(row, found['rows'][row.what]) for row in rows]
  table = [HEADS, ['---'] * len(HEADS), *lines]
  text = '\n'.join(f'| {" | ".join(line)} |' for line in table)
  (workdir / TABLE).write_text(f'{text}\n\nOn {found["device"]}.\n')
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
  flags.DEFINE_string('workdir', 'runs/accelerator', 'Folder of the report.')
  flags.DEFINE_string('only', '', 'Rows, a regular expression.')
  flags.DEFINE_integer('rounds', 5, 'Timed runs of a program.')
  flags.DEFINE_float('budget_sec', 480, 'No row begins after so many seconds.')
  flags.DEFINE_bool('cpu', False, 'Measure the CPU, too.')
  command.main_of_script(main)
