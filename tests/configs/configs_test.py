# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every config, at full size by shapes alone and at test size for real."""

import importlib
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import retro_published
from experiments.engine import program as program_lib
from experiments.retro import task as retro_task
from retrieval import tokenization
from retrieval.index import published_index as index_lib
from retrieval.nn import sharding
from retrieval.text import chunks as chunks_lib, tokens as tokens_lib
from retro_jax.data import folder as retro_data
from retro_jax.nn import initial, presets
from retro_jax.trained import loading
from tests import xla_flags
from tests.experiments.retro import tiny_config
from tests.retrieval.text import json_corpus
from tests.retro_jax.data import tiny_data

NAMES = sorted(
  path.stem
  for kind in ('pretrain_', 'retrofit_', 'wikitext103')
  for path in pathlib.Path(retro_published.__file__).parent.glob(
    f'retro_{kind}*'
  )
)
# (file, argument of RETRO, argument of its baseline) at full size.
FULL = [(name, 'base', 'baseline') for name in NAMES] + [
  ('retro_published', size, f'{size}_baseline')
  for size in retro_published.SIZES
]
# Devices that each header states; the others take what there is.
DEVICES = {'172m': 8, '425m': 8, '1b5': 64, '7b5': 256, 'retro_wikitext103': 8}


def _config(name, arg):
  return importlib.import_module(f'configs.{name}').get_config(arg)


@pytest.mark.parametrize(
  'name, arg, other',
  [
    *FULL,
    *((x, 'test', 'baseline_test') for x in (*NAMES, 'retro_published')),
  ],
)
def test_the_baseline_differs_in_one_field(name, arg, other):
  base, baseline = (_config(name, x).to_dict() for x in (arg, other))
  assert {k for k in base if base[k] != baseline[k]} == {'retrieval'}


def test_the_short_quickstart_holds_out_what_its_start_has_not_read():
  config = tiny_config.of('retro_pretrain_quickstart', 'short')
  _, start = loading.find_run(config.start_from)
  for name in ('valid_fraction', 'test_fraction', 'tokens'):
    assert getattr(config, name) == getattr(start, name)
  assert config.model == start.model
  assert not config.corpus.path and not start.corpus.path  # the packaged ones


@pytest.mark.parametrize('name, arg, unused_baseline', FULL)
def test_batches_divide_over_the_mesh(name, arg, unused_baseline):
  config = tiny_config.of(name, arg)
  evaluate = tiny_config.section('evaluate', name, arg)
  devices = DEVICES.get(name, DEVICES.get(arg, 1))
  sizes = dict(vars(config.mesh))
  sizes['data'] = devices // (sizes['fsdp'] * sizes['tensor'])
  assert math.prod(sizes.values()) == devices
  mesh = jax.sharding.AbstractMesh(
    tuple(sizes[axis] for axis in sharding.MESH_AXES), sharding.MESH_AXES
  )
  parts = config.optimizer.accumulate_steps
  rows = sharding.batch_sharding(mesh, config.batch_size, parts)
  sharding.batch_sharding(mesh, evaluate.batch_size)
  # On one device, the logits of a microbatch and their gradient.
  held = rows.shard_shape((config.batch_size // parts, 1))[0]
  length = config.sequence_chunks * config.model.chunk_length
  logits_bytes = 4 * held * length * config.tokenizer.vocab_size
  assert 2 * logits_bytes / sizes['tensor'] < 9e9


@pytest.mark.parametrize('name', NAMES)
def test_full_size_by_shapes(name):
  config = tiny_config.of(name, 'base')
  model_cfg = loading.model_config(config, config.tokenizer.vocab_size)
  shapes = jax.eval_shape(
    lambda key: initial.init_params(key, model_cfg), jax.random.key(0)
  )
  total = sum(x.size for x in jax.tree.leaves(shapes))
  # One token alone is multiplied once by each matrix of the decoder.
  assert 2 * total > presets.flops_per_token(model_cfg, 1)


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  """Stores that every config's `test` value can read, neighbors at random."""
  root = tmp_path_factory.mktemp('data')
  rng = np.random.default_rng(0)
  documents = [
    {
      'id': str(i),
      'title': '',
      'text': ' '.join(rng.choice(tiny_data.WORDS, 90)),
    }
    for i in range(40)
  ]
  corpus = json_corpus.write(root, documents)
  texts = [document['text'] for document in documents]
  tokenization.train_sentencepiece(texts, root / 'tokenizer/model', 300)
  tokens = tokens_lib.build_token_store(
    root / 'tokens', corpus, root / 'tokenizer', documents_per_shard=20
  )
  config = _config(NAMES[0], 'test')
  chunks = {
    split: chunks_lib.build_chunk_store(
      root / f'chunks-{split}',
      tokens,
      chunk_length=config.model.chunk_length,
      split=split,
      valid_fraction=config.valid_fraction,
    )
    for split in ('train', 'valid')
  }
  for split in chunks:
    tiny_data.write_neighbors(root, split, chunks[split], chunks['train'], rng)
  index_lib.build_index(
    root / 'index',
    rng.standard_normal((chunks['train'].num_chunks, 8), np.float32),
    'none',
    index_lib.IndexConfig(searcher='exact'),
  )
  return retro_data.DataFolder(root)


@pytest.fixture(scope='module')
def one_step(data):
  """Takes configs through one step; equal ones are compiled once."""
  taken = {}

  def take(config):
    key = repr(config)
    if key not in taken:
      taken[key] = _one_step(config, data)
    return taken[key]

  return take


def _one_step(config, data):
  """(batch, parameters before, state after, metrics)."""
  task = retro_task.make_task(config, data)
  program = program_lib.make_program(task, config, devices=jax.devices()[:1])
  batch = next(iter(task.dataset('train')))
  # Initial values operation by operation: all configs share these programs.
  made = jax.tree.map(
    np.asarray, sharding.unbox(task.init(jax.random.key(config.seed)))
  )
  with program.context():
    step = program.step.lower(program.abstract, batch)
    state = jax.tree.map(
      lambda x: jnp.zeros(x.shape, x.dtype), program.abstract.opt_state
    )
    state = program_lib.TrainState(
      jnp.zeros((), jnp.int32), made, state, jax.random.key(0)
    )
    shardings = jax.tree.map(lambda x: x.sharding, program.abstract)
    state = jax.device_put(state, shardings)
    state, metrics = step.compile(compiler_options=xla_flags.OPTIONS)(
      state, batch
    )
  return batch, made, state, jax.device_get(metrics)


@pytest.mark.parametrize('name', [*NAMES, 'retro_published'])
def test_one_step_of_training(name, data, one_step):
  batch, before, state, metrics = one_step(tiny_config.of(name, 'test'))
  assert 'neighbors' in batch
  assert any(key.endswith('_cca') for key in before)
  uniform = math.log(data.tokens.vocab_size)
  assert metrics['loss'] == pytest.approx(uniform, abs=0.5)
  assert 0 < metrics['grad_norm'] < 100
  assert int(state.step) == 1
  # The warm-up begins at 1e-7, which is as far as Adam's first step goes.
  moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), before, state.params)
  assert 5e-8 < max(jax.tree.leaves(moved)) < 5e-7
