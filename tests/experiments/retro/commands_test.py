# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The quickstart and the notebook at test size, on a corpus of a few words."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from experiments.retro import evaluate, quickstart
from tests import run_notebook, xla_flags
from tests.experiments.engine import tiny_corpus
from tests.experiments.retro import tiny_config

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope='module')
def workdir(minilm, tmp_path_factory):
  """The quickstart, run as a command at test size."""
  root = tmp_path_factory.mktemp('quickstart')
  tiny_corpus.write(root, 50)
  result = subprocess.run(
    [
      *(sys.executable, '-m', 'experiments.quickstart'),
      f'--config={ROOT}/configs/retro_pretrain_quickstart.py:test',
      '--config.corpus.kind=jsonl',
      f'--config.corpus.path={root}/documents.jsonl',
      '--config.tokenizer.vocab_size=300',
      f'--workdir={root}/run',
    ],
    env=os.environ | {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': xla_flags.FAST},
    capture_output=True,
    text=True,
    timeout=400,
  )
  assert result.returncode == 0, result.stderr[-3000:]
  return root / 'run', result.stdout


def test_quickstart_refuses_a_long_warm_up_before_all_work(tmp_path):
  c = tiny_config.of(num_steps=2)
  with pytest.raises(ValueError, match='optimizer.warmup_steps'):
    quickstart.quickstart(c, str(tmp_path / 'q'), evaluate.Evaluate())
  assert not (tmp_path / 'q').exists()


def test_quickstart_ends_with_its_table(workdir):
  path, printed = workdir
  for row in ('RETRO, k=2', 'RETRO off', 'RETRO shuffled', 'baseline'):
    assert row in printed
  assert 'What lies where' in printed
  content = json.loads((path / 'retro' / 'evaluation.json').read_text())
  rows = {row['name']: row for row in content['rows']}
  tokens = {row['tokens'] for row in rows.values()}
  assert len(tokens) == 1 and tokens.pop() > 0
  assert all(row['bits_per_byte'] > 0 for row in rows.values())


@pytest.mark.slow
def test_notebook_runs(workdir):
  path, _ = workdir
  os.environ |= {'RETRO_WORKDIR': str(path), 'RETRO_SIZE': 'test'}
  try:
    outputs, _ = run_notebook.run('retro', timeout=300)
  finally:
    del os.environ['RETRO_WORKDIR'], os.environ['RETRO_SIZE']
  assert any('text/html' in o.get('data', {}) for o in outputs)
