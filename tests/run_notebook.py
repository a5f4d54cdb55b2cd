# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Notebooks, run cell by cell.

  python -m tests.run_notebook NAME ...

runs notebooks and keeps their outputs in them, which a page of a repository shows.
"""

import pathlib
import re
import sys

import pytest

_ROOT = pathlib.Path(__file__).parents[1]
_COLOR = re.compile(r'\x1b\[[\d;]*m')
_MOST = 1 << 14  # characters of a page that is kept


def _execute(name, timeout):
  nbformat = pytest.importorskip('nbformat')
  nbclient = pytest.importorskip('nbclient')
  path = _ROOT / 'notebooks' / f'{name}.ipynb'
  notebook = nbformat.read(path, as_version=4)
  nbformat.validate(notebook)
  nbclient.NotebookClient(
    notebook,
    timeout=timeout,
    kernel_name='python3',
    record_timing=False,
    resources={'metadata': {'path': str(_ROOT)}},
  ).execute()
  return path, notebook


def run(name: str, timeout: int) -> tuple[list, str]:
  """Runs all cells of a notebook without an error.

  Args:
    timeout: of a cell, in seconds.

  Returns:
    The outputs of all cells, and what they printed.
  """
  _, notebook = _execute(name, timeout)
  outputs = [o for cell in notebook.cells for o in cell.get('outputs', [])]
  assert not [o for o in outputs if o.output_type == 'error']
  printed = ''.join(o.text for o in outputs if o.get('name') == 'stdout')
  return outputs, printed.replace('│', ' ')  # borders of a table


def write(name: str, timeout: int) -> None:
  """Runs a notebook and writes it with its texts, small pages and pictures."""
  import nbformat

  path, notebook = _execute(name, timeout)
  notebook.metadata.language_info = {'name': 'python'}
  for cell in notebook.cells:
    if cell.cell_type == 'code':
      cell.outputs = _shown(cell.outputs)
  nbformat.write(notebook, path)


def _shown(outputs):
  shown = []
  for output in outputs:
    if output.get('name') == 'stdout':
      output.text = _COLOR.sub('', output.text)
      if shown and 'text' in shown[-1]:
        shown[-1].text += output.text
        continue
    if len(output.get('data', {}).get('text/html', '')) > _MOST:
      del output.data['text/html']
    if output.get('name') != 'stderr':
      shown.append(output)
  return shown


if __name__ == '__main__':
  for name in sys.argv[1:]:
    write(name, timeout=1800)
