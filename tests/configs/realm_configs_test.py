# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every config of models of blocks: arguments, flags, shapes, steps."""

import dataclasses
import importlib
import pathlib

import jax
import numpy as np
import pytest

from configs import realm_pretrain_quickstart
from experiments.engine import configs, rooms
from experiments.open_qa import config as qa_config, task as qa_task
from experiments.realm import config as config_lib, starts
from realm_jax.trained import model_configs
from retrieval import settings
from retrieval.nn import sharding

_FOLDER = pathlib.Path(realm_pretrain_quickstart.__file__).parent
REALMS = sorted(x.stem for x in _FOLDER.glob('realm_pretrain_*.py'))
READERS = [
  *sorted(x.stem for x in _FOLDER.glob('open_qa_*.py')),
]
# Fields at the top that an argument changes.
CHANGED = {
  'uniform': {'masker'},
  'span': {'masker'},
  'stale': {'refresh'},
  'frozen': {'refresh'},
  'async': {'refresh'},
}
_WARM_START = {'task', 'batch_size', 'num_steps', 'optimizer'}


def _config(name, arg='base', **fields):
  c = importlib.import_module(f'configs.{name}').get_config(arg)
  config = configs.build(rooms.config_class(c.task), c)
  return configs.replaced(config, **fields)


def _differ(a, b):
  return {
    x.name
    for x in dataclasses.fields(a)
    if getattr(a, x.name) != getattr(b, x.name)
  }


@pytest.mark.parametrize('name', REALMS)
def test_arguments_change_what_they_are_for(name):
  base, test = _config(name), _config(name, 'test')
  for kind, changed in CHANGED.items():
    assert _differ(base, _config(name, kind)) == changed
    assert _differ(test, _config(name, f'{kind}_test')) == changed
  assert _config(name, 'stale').refresh.every == 30 * base.refresh.every
  for kind in ('ict', 'mlm'):
    found = _config(name, kind)
    differ = _differ(base, found)
    assert differ - {'checkpoint_every'} == _WARM_START & differ
    if kind == 'mlm':
      assert config_lib.warm_start(base) == dataclasses.replace(
        found, checkpoint_every=base.checkpoint_every
      )
  with pytest.raises(ValueError, match="'huge'.*'async'.*'ict'"):
    _config(name, 'huge')


@pytest.mark.parametrize('name', READERS)
def test_arguments_of_readers(name):
  for kind in qa_config.VARIANTS:
    for arg in (kind, f'{kind}_test'):
      config = _config(name, arg)
      qa_task._check(config)
      assert config.train_blocks == (kind == 'blocks')
      assert (config.refresh.schedule == 'frozen') != config.train_blocks
      lookup = config.lookup
      assert lookup.reader_beam <= lookup.retriever_beam
      # Question and specials leave room for a whole block, or most of it.
      assert lookup.row_length >= config.blocks.max_length
      if kind in ('bm25', 'random'):
        assert config.retriever == kind
  with pytest.raises(ValueError, match="'mlm'"):
    _config(name, 'mlm')


def test_a_training_config_holds_few_fields():
  def leaves(cls):
    kinds = settings.hints(cls).values()
    return sum(leaves(x) if dataclasses.is_dataclass(x) else 1 for x in kinds)

  for task, most in (('realm', 123), ('open_qa', 134), ('retro', 144)):
    assert leaves(rooms.config_class(task)) <= most, task


@pytest.mark.parametrize(
  ('arg', 'parts'),
  [
    ('base', {'embedder', 'encoder'}),
    ('ict', {'embedder'}),
    ('mlm', {'encoder'}),
  ],
)
@pytest.mark.parametrize('name', REALMS)
def test_full_size_by_shapes(name, arg, parts, request, monkeypatch):
  config = _config(name, arg)
  if config.embedder.checkpoint:
    request.getfixturevalue('minilm')
  monkeypatch.setattr(starts, '_fitted_head', lambda *_: {})
  model = model_configs.realm_config(config, 30_522)
  init = starts.init(
    config, None, model, 'all' if len(parts) > 1 else min(parts)
  )
  boxed = jax.eval_shape(init, jax.random.key(0))
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
  for leaf in jax.tree.leaves(shapes):
    assert leaf.dtype == np.float32
  mesh = sharding.make_mesh(fsdp=2, tensor=2, data=2)
  placed = sharding.tree_shardings(
    boxed, mesh, sharding.make_rules(config.sharding_rules)
  )
  words = placed[min(parts)]['bert']['embeddings']['word']['embedding']
  d = model.embedder.d_model
  assert words.shard_shape((30_522, d)) == (30_522 // 2, d // 2)
