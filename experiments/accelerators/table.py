# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compile the published sizes and all else for TPUs and GPUs; write the table.

  python -m experiments.accelerators.table --workdir=runs/compile

Each row is compiled in a process of its own and kept as <workdir>/<row>.json, so
that the same command goes on after a stop, and in the environment of the other
compiler. Rows whose compiler is not installed are left out. --only names rows by a
regular expression. Writes <workdir>/table.md.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any

from absl import flags, logging

from experiments.accelerators import chips, compile as compile_lib
from experiments.engine import command, reports
from experiments.tables import paper_table

_COMMAND = 'python -m experiments.accelerators.table'
_PUBLISHED = 'retro_published.py'
_NARROW = {'embedder.dtype': 'bfloat16', 'encoder.dtype': 'bfloat16'}


@dataclasses.dataclass(frozen=True)
class Row:
  """A program of a config, to be compiled for a topology."""

  what: str
  config: str  # in configs/, with its argument
  topology: str
  program: str = 'train'
  fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def name(self) -> str:
    """A file's name."""
    return re.sub(r'\W+', '_', f'{self.what} {self.topology}'.lower())

  @property
  def flags(self) -> list[str]:
    """Arguments of `experiments.accelerators.compile`."""
    fields = [f'--config.{name}={x}' for name, x in self.fields.items()]
    given = f'--topology={self.topology}', f'--program={self.program}'
    return [f'--config=configs/{self.config}', *fields, *given]


def _sizes() -> list[Row]:
  """The published sizes and their baselines, on the smallest pods that fit."""
  steps = 'optimizer.accumulate_steps'
  places = {
    '172m': {'v5e:2x2': {}, 'h100:1': {}},
    '425m': {
      'v5e:2x2': {steps: 16, 'mesh.fsdp': 4},
      'h100:1': {steps: 16},
    },
    '1b5': {'v5e:4x8': {}, 'h100:8': {steps: 4}},
    '7b5': {
      'v5e:16x16': {},
      # The mesh of the config, 32 x 2, does not lie on the axes of this torus.
      'v5p:4x4x4': {'mesh.fsdp': 64, 'mesh.tensor': 1},
      'h100:64': {'mesh.fsdp': 32},
    },
  }
  return [
    Row(
      f'RETRO {size.replace("b5", ".5B")}{kind.replace("_", " ")}',
      f'{_PUBLISHED}:{size}{kind}',
      topology,
      fields=fields,
    )
    for kind in ('', '_baseline')
    for size, found in places.items()
    for topology, fields in found.items()
  ]


ROWS = [
  *_sizes(),
  *(
    Row(f'RETRO {size}, validation', f'{_PUBLISHED}:{size}', where, 'evaluate')
    for size, where in (('172m', 'v5e:2x2'), ('172m', 'h100:8'))
  ),
  *(
    Row(
      f'RETRO {size}, a token of {rows}',
      f'{_PUBLISHED}:{size}',
      where,
      'decode',
      {'batch_size': rows},
    )
    for size in ('172m', '425m')
    for rows in (1, 32)
    for where in ('v5e:2x2', 'h100:1')
  ),
  *(
    Row(what, config, where, program, fields)
    for what, config, program, fields in (
      (
        'RETROfit of SmolLM2-135M',
        'retro_retrofit_smollm2.py',
        'train',
        {
          'retrofit_from': 'runs/smollm2',
          'model.dtype': 'bfloat16',
          'optimizer.accumulate_steps': 1,
        },
      ),
      ('REALM', 'realm_pretrain_base.py', 'train', {}),
      ('ICT', 'realm_pretrain_base.py:ict', 'train', {}),
      (
        'reader, beam 5,000',
        'open_qa_released.py',
        'train',
        _NARROW | {'batch_size': 8},
      ),
      ('blocks embedded', 'realm_pretrain_base.py', 'embed', {}),
    )
    for where in ('v5e:4x4', 'h100:8')
  ),
  *(
    Row(
      f'13,353,718 vectors searched, k = {k:,}',
      'open_qa_released.py',
      where,
      program,
      {
        'batch_size': 64,
        'lookup.retriever_beam': k,
        'refresh.vectors_dtype': 'bfloat16',
      },
    )
    for k in (5, 5000)
    for where, program in (
      ('v5e:2x2', 'search_alone'),
      ('v5e:4x4', 'search'),
      ('h100:1', 'search_alone'),
      ('h100:8', 'search'),
    )
  ),
]


def compile_row(row: Row, folder: pathlib.Path) -> None:
  """Compile a row in a process of its own, and keep its report or its refusal."""
  with tempfile.TemporaryDirectory() as temporary:
    module = 'experiments.accelerators.compile'
    argv = [sys.executable, '-m', module, *row.flags, f'--workdir={temporary}']
    # Of a failure, the last line names it.
    env = {**os.environ, 'JAX_TRACEBACK_FILTERING': 'off'}
    done = subprocess.run(
      argv, capture_output=True, text=True, check=False, env=env
    )
    file = pathlib.Path(temporary) / compile_lib.FILE
    if file.exists():
      found = json.loads(file.read_text())
    else:
      lines = done.stderr.strip().splitlines() or ['nothing was said']
      if 'exceed' not in lines[-1]:
        raise ValueError(f'{row.name}: {lines[-1]}')
      found = {'refusal': lines[-1]}
  reports.write_json(_file(folder, row), found | {'flags': row.flags})


def _file(folder: pathlib.Path, row: Row) -> pathlib.Path:
  return folder / f'{row.name}.json'


HEADS = (
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
)


def cells(row: Row, found: Mapping[str, Any]) -> list[str]:
  """A row of the table."""
  alone = row.program in ('decode', 'search_alone')  # on one device
  where = re.sub(':.*', ', one chip', row.topology) if alone else row.topology
  start = [row.what, where]
  if 'refusal' in found:
    return [*start, 'refused by the compiler', *['-'] * (len(HEADS) - 3)]
  gib = 2**30
  held = (found[f'{x}_bytes'] / gib for x in ('arguments', 'temporary'))
  seconds = [
    found[f'{x}_sec']
    for x in ('flops', 'traffic', 'network', 'trace', 'compile')
  ]
  sizes = ('arguments_bytes', 'temporary_bytes', 'output_bytes')
  fits = sum(found[size] for size in sizes) <= found['memory_bytes']
  ratio = found['executed_flops'] / found['model_flops']
  return [
    *start,
    ' + '.join(f'{x:.2f}' for x in held) + ('' if fits else ': does not fit'),
    f'{found["memory_bytes"] / gib:.2f}',
    f'{ratio:.2f}',
    *(f'{x:.3g}' for x in seconds[:3]),
    f'{found["mfu_bound"]:.2f}' if row.program == 'train' else '-',
    *(f'{x:.0f}' for x in seconds[3:]),
    f'{found["lines"]:,}',
  ]


def rows_here(only: str) -> list[Row]:
  """Return the rows of a regular expression that can be compiled here."""
  return [
    row
    for row in ROWS
    if re.search(only, row.name) and chips.is_installed(row.topology)
  ]


def main(argv: Sequence[str]) -> None:
  """Compile what is missing, print and write the table."""
  del argv
  options = flags.FLAGS
  folder = pathlib.Path(options.workdir)
  for row in rows_here(options.only):
    if not _file(folder, row).exists():
      logging.info('Compiling %s.', row.name)
      compile_row(row, folder)
  made = [
    cells(row, json.loads(_file(folder, row).read_text()))
    for row in ROWS
    if _file(folder, row).exists()
  ]
  if not made:
    raise ValueError(
      f'{folder}: nothing compiled; no compiler is installed, or no row is named '
      f'{options.only!r}.'
    )
  paper_table.write_markdown(
    folder / 'table.md', HEADS, made, f'Made by `{_COMMAND}`.'
  )
  reports.print_table(HEADS, made, wrap=True)


if __name__ == '__main__':
  flags.DEFINE_string('workdir', 'runs/compile', 'Folder of the reports.')
  flags.DEFINE_string('only', '', 'Rows, a regular expression of their names.')
  command.main_of_script(main)
