# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every RETRO config by shapes at full size; the quickstart and the notebook
for real at test size, on a corpus that the test writes itself."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import pytest

from retrieval.nn import bert_checkpoint
from retro_jax.nn import initial, presets
from retro_jax.trained import (
  loading,
)
from tests import run_notebook, xla_flags
from tests.experiments.engine import tiny_corpus
from tests.experiments.retro import tiny_config

ROOT = pathlib.Path(__file__).parents[3]
NAMES = sorted(
  path.stem
  for kind in ('pretrain', 'retrofit')
  for path in (ROOT / 'configs').glob(f'retro_{kind}_*')
)


_config = tiny_config.of


@pytest.mark.parametrize('name', NAMES)
def test_full_size_by_shapes(name):
  config = _config(name, 'base')
  model_cfg = loading.model_config(config, config.tokenizer.vocab_size)
  shapes = jax.eval_shape(
    lambda key: initial.init_params(key, model_cfg), jax.random.key(0)
  )
  total = sum(x.size for x in jax.tree.leaves(shapes))
  # One token alone is multiplied once by each matrix of the decoder.
  assert 2 * total > presets.flops_per_token(model_cfg, 1)


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  """The quickstart, run as a command at test size."""
  _needs_minilm()
  root = tmp_path_factory.mktemp('quickstart')
  tiny_corpus.write(root, 50)
  result = _command(
    'quickstart',
    f'--config={ROOT}/configs/retro_pretrain_quickstart.py:test',
    '--config.corpus.kind=jsonl',
    f'--config.corpus.path={root}/documents.jsonl',
    '--config.tokenizer.vocab_size=300',
    f'--workdir={root}/run',
  )
  assert result.returncode == 0, result.stderr[-3000:]
  return root / 'run', result.stdout


def _command(name, *args):
  env = {**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': xla_flags.FAST}
  return subprocess.run(
    [sys.executable, '-m', f'experiments.{name}', *args],
    cwd=ROOT,
    env=env,
    capture_output=True,
    text=True,
    timeout=400,
  )


def _needs_minilm():
  try:
    bert_checkpoint.find_minilm()
  except (FileNotFoundError, ImportError, ValueError) as e:
    pytest.skip(f'The packaged BERT is not installed: {e}')


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
def test_notebook_runs(workdir, tmp_path):
  path, _ = workdir
  os.environ |= {'RETRO_WORKDIR': str(path), 'RETRO_SIZE': 'test'}
  try:
    outputs, _ = run_notebook.run('retro', timeout=300)
  finally:
    del os.environ['RETRO_WORKDIR'], os.environ['RETRO_SIZE']
  assert any('text/html' in o.get('data', {}) for o in outputs)
