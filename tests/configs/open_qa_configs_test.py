# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every config of question answering: its arguments and what they change."""

import importlib
import pathlib

from absl import flags
from ml_collections import config_flags
import pytest

from configs.bases import open_qa_base
from experiments.engine import configs, optimizers
from experiments.open_qa import task as qa_task
from experiments.realm import refresh
from realm_jax.data import reader_rows
from realm_jax.nn import open_qa
from realm_jax.serving import beams

NAMES = sorted(
  path.stem
  for path in pathlib.Path(open_qa_base.__file__)
  .parents[1]
  .glob('open_qa_*.py')
  if path.stem != 'open_qa_base'
)


def _config(name, arg='base'):
  return importlib.import_module(f'configs.{name}').get_config(arg)


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('arg', open_qa_base.ARGS)
def test_fields_are_those_of_what_they_set(name, arg):
  config = _config(name, arg)
  configs.section(optimizers.OptimizerConfig, config.optimizer, 'optimizer')
  refresh.RefreshConfig(**config.refresh)
  assert config.retriever in beams.KINDS
  qa_task._check(config)
  settings = config.lookup
  assert settings.reader_beam <= settings.retriever_beam
  layout = reader_rows.ReaderLayout(
    row_length=settings.row_length,
    question_length=settings.question_length,
    max_span_width=config.reader.max_span_width,
  )
  # Question and specials leave room for a whole block, or most of it.
  assert layout.row_length >= config.blocks.max_length
  fields = {
    f for f in open_qa.OpenQaConfig.__dataclass_fields__ if f != 'realm'
  }
  assert set(config.reader) <= fields
  # A frozen side needs no refresh, a trained one does.
  assert (config.refresh.schedule == 'frozen') != config.train_blocks


@pytest.mark.parametrize('name', NAMES)
def test_arguments_change_what_they_name(name):
  base = _config(name)
  assert _config(name, 'bm25').retriever == 'bm25'
  assert _config(name, 'random').retriever == 'random'
  blocks = _config(name, 'blocks')
  assert blocks.train_blocks and not base.train_blocks
  assert blocks.refresh.schedule == 'sync'
  dpr = _config(name, 'dpr')
  assert dpr.num_steps == base.warm_start.dpr.num_steps
  assert dpr.optimizer.accumulate_steps == 1
  with pytest.raises(ValueError, match="Config argument 'mlm'"):
    _config(name, 'mlm')


def test_flags_change_fields():
  values = flags.FlagValues()
  args = [
    '--config.questions.train=("webquestions:train=a.json",)',
    '--config.lookup.reader_beam=20',
    '--config.realm_from=runs/realm',
  ]
  config_flags.DEFINE_config_file(
    'config',
    open_qa_base.__file__,
    lock_config=True,
    flag_values=values,
    sys_argv=['command', *args],
  )
  values(['command', *args])
  assert values.config.questions.train == ('webquestions:train=a.json',)
  assert values.config.lookup.reader_beam == 20
  assert values.config.realm_from == 'runs/realm'
