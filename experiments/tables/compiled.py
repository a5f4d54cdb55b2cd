# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports of experiments.accelerators.compile as a table."""

from collections.abc import Mapping
import json
import pathlib

from experiments.tables import paper_table

FILE = 'compile.json'
HEADS = [
  'program',
  'chips',
  'arguments + temporaries, GiB',
  'of',
  'executed / model FLOPs',
  'seconds by FLOPs',
  'by memory',
  'by network',
  'MFU bound',
  'seconds to trace',
  'to compile',
  'lines of HLO',
]


def cells(name: str, folder: pathlib.Path) -> list[str]:
  """Return the row of one report; a refused program has none."""
  if not (folder / FILE).is_file():
    return [name, paper_table.NOT_RUN, *[''] * (len(HEADS) - 2)]
  found = json.loads((folder / FILE).read_text(encoding='utf-8'))
  gib = 2**30
  sizes = [found[f'{x}_bytes'] for x in ('arguments', 'temporary', 'output')]
  fits = '' if sum(sizes) <= found['memory_bytes'] else ': does not fit'
  times = [found[f'{x}_sec'] for x in ('flops', 'traffic', 'network')]
  is_step = found['program'] == 'train'
  return [
    name,
    found['topology'],
    f'{sizes[0] / gib:.2f} + {sizes[1] / gib:.2f}{fits}',
    f'{found["memory_bytes"] / gib:.2f}',
    f'{found["executed_flops"] / found["model_flops"]:.2f}',
    *(f'{x:.3g}' for x in times),
    f'{found["mfu_bound"]:.2f}' if is_step else '-',
    *(f'{found[f"{x}_sec"]:.0f}' for x in ('trace', 'compile')),
    f'{found["lines"]:,}',
  ]


def rows(runs: Mapping[str, pathlib.Path]) -> list[list[str]]:
  """Return a row for each folder of a report."""
  return [cells(name, folder) for name, folder in runs.items()]
