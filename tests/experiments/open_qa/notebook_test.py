# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The notebook of question answering, run cell by cell on a tiny model."""

import pytest

from realm_jax.data import folder as realm_data
from tests import run_notebook, xla_flags
from tests.experiments.open_qa import tiny_open_qa


def _write_run(root, workdir):
  """A run before its first step."""
  data = realm_data.DataFolder(tiny_open_qa.make_data(root / 'data'))
  config = tiny_open_qa.get_config(data.root)
  tiny_open_qa.save(
    workdir, tiny_open_qa.reader_of(config, data), config, step=3
  )


@pytest.mark.slow
def test_all_cells_run_and_the_answer_follows_the_documents(
  tmp_path, monkeypatch
):
  workdir = tmp_path / 'qa'
  _write_run(tmp_path, workdir)
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  monkeypatch.setenv('XLA_FLAGS', xla_flags.FAST)
  monkeypatch.setenv('OPEN_QA_WORKDIR', str(workdir))
  outputs, printed = run_notebook.run('open_qa', timeout=200)
  pages = [
    o.data['text/html'] for o in outputs if 'text/html' in o.get('data', {})
  ]
  # The answer, its blocks, six retrievers, two questions asked again.
  assert len(pages) == 10 and all('<mark>' in page for page in pages[:3])
  devices, *lines = [' '.join(line.split()) for line in printed.splitlines()]
  assert 'CpuDevice' in devices
  assert lines[0].startswith('Step 3; 40 documents in ')
  assert {'documents added 1', 'documents deleted 1'} <= {*lines}
  reused, embedded, removed = (
    next(int(x.split()[2]) for x in lines if x.split()[:-1] == ['blocks', what])
    for what in ('reused', 'embedded', 'removed')
  )
  blocks = int(lines[0].split()[5])
  assert reused + removed == blocks and 0 < removed and 0 < embedded < 10
  deleted = next(x for x in lines if x.startswith('deleted: '))[9:]
  before, after = (
    next(x for x in lines if x.startswith(f'{when}: '))
    for when in ('before', 'after')
  )
  assert before.endswith(f'({deleted})') and not after.endswith(f'({deleted})')
