# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Notebooks, run cell by cell."""

import pathlib

import pytest

_ROOT = pathlib.Path(__file__).parents[1]


def run(name: str, timeout: int) -> tuple[list, str]:
  """Runs all cells of a notebook without an error.

  Args:
    timeout: of a cell, in seconds.

  Returns:
    The outputs of all cells, and what they printed.
  """
  nbformat = pytest.importorskip('nbformat')
  nbclient = pytest.importorskip('nbclient')
  path = _ROOT / 'notebooks' / f'{name}.ipynb'
  notebook = nbformat.read(path, as_version=4)
  nbformat.validate(notebook)
  nbclient.NotebookClient(
    notebook,
    timeout=timeout,
    kernel_name='python3',
    resources={'metadata': {'path': str(_ROOT)}},
  ).execute()
  outputs = [o for cell in notebook.cells for o in cell.get('outputs', [])]
  assert not [o for o in outputs if o.output_type == 'error']
  printed = ''.join(o.text for o in outputs if o.get('name') == 'stdout')
  return outputs, printed.replace('│', ' ')  # borders of a table
