# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every REALM config: its arguments, its flags, its shapes, a step of it."""

import contextlib
import dataclasses
import importlib
import inspect
import math
import pathlib

from absl import flags
import jax
from ml_collections import config_flags
import numpy as np
import pytest

from configs.bases import realm_base
from experiments.engine import configs, optimizers, program as program_lib
from experiments.realm import block_task, refresh, task as realm_task
from realm_jax.data import examples, folder as realm_data
from realm_jax.nn import config as config_lib
from realm_jax.objectives import losses
from realm_jax.serving import model_configs
from retrieval import searchers
from retrieval.index import index
from retrieval.nn import (
  bert,
  embedders,
  sharding,
)
from retrieval.text import blocks, corpus, salient, taggers
from tests.retrieval.text import tiny_blocks

NAMES = sorted(
  path.stem
  for path in pathlib.Path(realm_base.__file__)
  .parents[1]
  .glob('realm_pretrain_*')
)
# Fields at the top that an argument changes; of ict, besides those of base.
CHANGED = {
  'uniform': {'masker'},
  'span': {'masker'},
  'stale': {'refresh'},
  'frozen': {'refresh'},
  'async': {'refresh'},
}
_WARM_START = {
  'task',
  'batch_size',
  'num_steps',
  'optimizer',
  'checkpoint_every',
}
WARM_STARTS = {'ict': {*_WARM_START, 'ict'}, 'mlm': _WARM_START}
DEVICES = {'realm_pretrain_base': 64}  # of the others: one


def _config(name, arg='base'):
  return importlib.import_module(f'configs.{name}').get_config(arg)


def _parsed(*args):
  """The base config with flags applied as a command would."""
  values = flags.FlagValues()
  config_flags.DEFINE_config_file(
    'config',
    realm_base.__file__,
    lock_config=True,
    flag_values=values,
    sys_argv=['command', *args],
  )
  values(['command', *args])
  return values.config


def _differ(a, b):
  a, b = a.to_dict(), b.to_dict()
  assert set(a) == set(b)
  return {name for name in a if a[name] != b[name]}


def test_there_are_configs():
  assert len(NAMES) >= 3 and set(DEVICES) < set(NAMES)
  assert set(realm_base.KINDS) == {*CHANGED, *WARM_STARTS, 'base'}


@pytest.mark.parametrize('name', NAMES)
def test_arguments_change_what_they_are_for(name):
  base, test = _config(name), _config(name, 'test')
  for kind, changed in CHANGED.items():
    assert _differ(base, _config(name, kind)) == changed
    assert _differ(test, _config(name, f'{kind}_test')) == changed
  assert _config(name, 'stale').refresh.staleness == 30


@pytest.mark.parametrize('kind', sorted(WARM_STARTS))
@pytest.mark.parametrize('name', NAMES)
def test_arguments_of_warm_starts(name, kind):
  base, test = _config(name), _config(name, 'test')
  found, may_differ = _config(name, kind), WARM_STARTS[kind]
  assert (
    {'task', 'batch_size', 'optimizer'} <= _differ(base, found) <= may_differ
  )
  assert _differ(test, _config(name, f'{kind}_test')) <= may_differ
  settings = base.warm_start[kind]
  for key in ('num_steps', 'batch_size'):
    assert found[key] == settings[key]
  assert found.optimizer.learning_rate == settings.learning_rate
  assert not found.optimizer.part_scales
  assert found.optimizer.accumulate_steps == 1


@pytest.mark.parametrize('name', NAMES)
def test_an_unknown_argument_is_named(name):
  with pytest.raises(ValueError, match="'huge'.*'async_test'.*'ict_test'"):
    _config(name, 'huge')


def _fields(of):
  return {field.name for field in dataclasses.fields(of)}


def test_every_choice_is_listed():
  config = realm_base.get_config()
  model = _fields(config_lib.RealmConfig) - {'embedder', 'encoder'}
  assert set(config.model) == model
  own = {'vocab_size', 'type_vocab_size', 'pooler'}  # given by something else
  fields = _fields(bert.BertConfig) - own
  for section in (config.embedder, config.encoder):
    assert set(section) == fields | {'checkpoint'}
  assert config.refresh.to_dict() == dataclasses.asdict(refresh.RefreshConfig())
  scann = dataclasses.asdict(searchers.ScannConfig())
  assert config.index.scann.to_dict() == scann
  for section in (config.corpus, config.masked_corpus):
    assert set(section) == _fields(corpus.CorpusConfig)
  assert set(config.optimizer) == _fields(optimizers.OptimizerConfig)
  assert set(config.index) < _fields(index.IndexConfig)
  assert set(config.layout) < _fields(examples.Layout)
  assert set(config.spans.tagger) < _fields(taggers.TaggerConfig)
  for section, function in (
    (config.loss, losses.loss),
    (config.blocks, blocks.build_block_store),
    (set(config.spans) - {'tagger'}, salient.build_salient_store),
  ):
    assert {*section} < {*inspect.signature(function).parameters}


def test_choices_are_flags():
  config = _parsed(
    '--config.model.pooling=cls',
    '--config.model.projection_size=0',
    '--config.model.projection_init=normal',
    '--config.model.share_embedders=False',
    '--config.embedder.checkpoint=',
    '--config.encoder.checkpoint=',
    '--config.embedder.num_layers=3',
    '--config.encoder.dropout_rate=0.0',
    '--config.encoder.activation=gelu_tanh',
    '--config.layout.num_candidates=5',
    '--config.refresh.schedule=async',
    '--config.refresh.builder=external',
    '--config.loss.objective=emdr2',
    '--config.masked_corpus.kind=jsonl',
    '--config.spans.tagger.kind=file:spans.jsonl',
    "--config.evaluate.questions=('a.jsonl','b.tsv')",
    '--config.evaluate.workdir=run',
    '--config.optimizer.name=adamw',
  )
  model = model_configs.realm_config(config, 100)
  assert model.pooling == 'cls' and model.vector_size == 768
  assert not model.share_embedders
  assert (model.embedder.num_layers, model.encoder.num_layers) == (3, 12)
  assert (model.embedder.dropout_rate, model.encoder.dropout_rate) == (0.1, 0.0)
  assert model.encoder.activation == 'gelu_tanh'
  assert model.embedder.vocab_size == model.encoder.vocab_size == 100
  layout = examples.Layout(block_length=9, **config.layout)
  assert layout.num_candidates == 5
  settings = realm_task.refresh_config(config)
  assert (settings.schedule, settings.builder) == ('async', 'external')
  assert dict(config.loss)['objective'] == 'emdr2'
  assert realm_data.has_other_masked_corpus(config)
  assert config.spans.tagger.kind == 'file:spans.jsonl'
  assert config.evaluate.questions == ('a.jsonl', 'b.tsv')
  assert config.evaluate.workdir == 'run'
  assert (
    configs.section(
      optimizers.OptimizerConfig, config.optimizer, 'optimizer'
    ).name
    == 'adamw'
  )
  with pytest.raises(AttributeError, match='projection_sise'):
    _parsed('--config.model.projection_sise=3')


@pytest.mark.parametrize('arg', ['base', 'ict'])
@pytest.mark.parametrize('name', NAMES)
def test_batches_divide_over_the_mesh(name, arg):
  config = _config(name, arg)
  devices = DEVICES.get(name, 1)
  sizes = dict(config.mesh)
  sizes['data'] = devices // (sizes['fsdp'] * sizes['tensor'])
  assert math.prod(sizes.values()) == devices
  mesh = jax.sharding.AbstractMesh(
    tuple(sizes[axis] for axis in sharding.MESH_AXES), sharding.MESH_AXES
  )
  parts = config.optimizer.accumulate_steps
  sharding.batch_sharding(mesh, config.batch_size, parts)
  parts = config.ict.gradient_cache_parts
  sharding.batch_sharding(mesh, config.warm_start.ict.batch_size, parts)
  rules = sharding.make_rules(config.sharding_rules)
  assert rules == sharding.make_rules()
  optimizers.make_optimizer(
    configs.section(optimizers.OptimizerConfig, config.optimizer, 'optimizer'),
    config.num_steps,
  )


@pytest.mark.parametrize(
  ('arg', 'parts'),
  [
    ('base', {'embedder', 'encoder'}),
    ('ict', {'embedder'}),
    ('mlm', {'encoder'}),
  ],
)
@pytest.mark.parametrize('name', NAMES)
def test_full_size_by_shapes(name, arg, parts):
  config = _config(name, arg)
  if realm_data.MINILM in (
    config.embedder.checkpoint,
    config.encoder.checkpoint,
  ):
    try:
      embedders.find_minilm()
    except (FileNotFoundError, ImportError, ValueError) as e:
      pytest.skip(f'The packaged BERT is not installed: {e}')
  model = model_configs.realm_config(config, 30_522)
  boxed = jax.eval_shape(
    lambda key: realm_task.init_params(
      key,
      config=config,
      model_cfg=model,
      parts='all' if len(parts) > 1 else min(parts),
    ),
    jax.random.key(0),
  )
  shapes = sharding.unbox(boxed)
  assert set(shapes) == parts
  large = name == 'realm_pretrain_base'  # two BERTs base, else two MiniLMs
  both = (108e6, 111e6) if large else (22e6, 24e6)
  sizes = {'embedder': both, 'encoder': both}
  if name == 'realm_pretrain_shallow':  # one layer and the embeddings
    sizes['embedder'] = 13e6, 14e6
  for part, (least, most) in sizes.items():
    total = sum(x.size for x in jax.tree.leaves(shapes.get(part)))
    assert part not in parts or least < total < most
  if 'embedder' in parts:
    kernel = shapes['embedder']['projection']['kernel']
    assert kernel.shape == (model.embedder.d_model, model.vector_size)
  for leaf in jax.tree.leaves(shapes):
    assert leaf.dtype == np.float32
  sizes = {'fsdp': 2, 'tensor': 2, 'data': 2}
  mesh = sharding.make_mesh(**sizes)
  rules = sharding.make_rules(config.sharding_rules)
  placed = sharding.tree_shardings(boxed, mesh, rules)
  words = placed[min(parts)]['bert']['embeddings']['word']['embedding']
  assert words.shard_shape((30_522, model.embedder.d_model)) == (
    30_522 // 2,
    model.embedder.d_model // 2,
  )


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  """A data folder that every config's `test` value can read."""
  root = tmp_path_factory.mktemp('data')
  rng = np.random.default_rng(0)
  made = tiny_blocks.make(root, rng, num_documents=40, max_length=48)
  salient.build_salient_store(
    root / 'spans', made.blocks, taggers.TaggerConfig(kind='dates')
  )
  return realm_data.DataFolder(root)


class Fixed:
  """In place of the refresher: a version that finds the first blocks."""

  step = 0

  def __init__(self, *unused):
    pass

  def serving(self, batch_index):
    del batch_index
    return self

  def retrieve(self, query_ids, query_mask, k):
    del query_mask
    return np.tile(np.arange(k), (len(query_ids), 1))


@pytest.fixture
def fast(monkeypatch):
  """No index, and little time in the compiler."""
  monkeypatch.setattr(refresh, 'Refresher', Fixed)
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)


def _make(name, arg, data, workdir):
  """(config, task, program) of one layer, on one device."""
  config = _config(name, arg)
  for section in (config.embedder, config.encoder):
    section.num_layers = 1
  if arg in ('ict_test', 'mlm_test'):
    make = {
      'ict_test': block_task.make_ict_task,
      'mlm_test': block_task.make_mlm_task,
    }
    task = make[arg](config, data)
  else:
    task = realm_task.make_task(config, data, workdir)
  return (
    config,
    task,
    program_lib.make_program(task, config, devices=jax.devices()[:1]),
  )


@pytest.mark.usefixtures('fast')
@pytest.mark.parametrize('arg', ['uniform_test', 'ict_test', 'mlm_test'])
@pytest.mark.parametrize('name', NAMES)
def test_batches_fit_the_step(name, arg, data, tmp_path):
  config, task, program = _make(name, arg, data, tmp_path)
  batches = iter(task.dataset('train'))
  batch = next(batches)
  batches.close()
  assert {len(x) for x in batch.values()} == {config.batch_size}
  with program.context():
    state, metrics = jax.eval_shape(program.step, program.abstract, batch)
  assert jax.tree.map(lambda x: x.shape, state) == jax.tree.map(
    lambda x: x.shape, program.abstract
  )
  assert metrics['loss'].shape == ()


@pytest.mark.usefixtures('fast')
@pytest.mark.parametrize(
  ('name', 'arg'),
  [('realm_pretrain_quickstart', 'test'), ('realm_pretrain_small', 'ict_test')],
)
def test_two_steps_of_training(name, arg, data, tmp_path):
  """Two, as the first one's learning rate is 0."""
  config, task, program = _make(name, arg, data, tmp_path)
  chances = {'test': data.tokenizer.vocab_size, 'ict_test': config.batch_size}
  with program.context(), contextlib.ExitStack() as stack:
    state = program.init(jax.random.key(config.seed))
    before = jax.tree.map(np.asarray, state.params)
    batches = iter(task.dataset('train'))
    stack.enter_context(contextlib.closing(batches))
    for _ in range(2):
      state, metrics = program.step(state, next(batches))
  assert metrics['loss'] == pytest.approx(math.log(chances[arg]), abs=0.5)
  assert 0 < metrics['grad_norm'] < 100
  moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), before, state.params)
  rate = config.optimizer.learning_rate / 2
  uncorrected = config.optimizer.name == 'bert_adam'
  assert metrics['learning_rate'] == pytest.approx(rate)
  for part, values in moved.items():
    scale = rate * config.optimizer.part_scales.get(part, 1.0)
    # Without bias correction the second step is longer, with it never by much.
    least, most = (1, 10) if uncorrected else (0.9, 1.1)
    assert least * scale < max(jax.tree.leaves(values)) < most * scale


@pytest.mark.parametrize(
  ('platform', 'builder'), [('cpu', 'process'), ('tpu', 'thread')]
)
def test_accelerators_build_indices_in_a_thread(platform, builder, monkeypatch):
  config = realm_base.get_config('base')
  device = type('Device', (), {'platform': platform})()
  monkeypatch.setattr(jax, 'local_devices', lambda: [device])
  assert realm_task.refresh_config(config).builder == builder
  config.refresh.builder = 'external'
  assert realm_task.refresh_config(config).builder == 'external'
