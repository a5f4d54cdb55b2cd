# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading a trained RETRO: onto devices, and only with its own tokenizer."""

import pytest

from experiments.retro import task as retro_task
from retro_jax.data import folder as retro_data
from retro_jax.trained import language_model
from tests.experiments.engine import tiny_run
from tests.experiments.retro import tiny_config
from tests.retro_jax.data import tiny_data


def _task(root):
  config = tiny_config.tiny(data_dir=str(root))
  return retro_task.make_task(config, retro_data.DataFolder(root)), config


@pytest.fixture(scope='module')
def workdir(root, tmp_path_factory):
  """A checkpoint of step 1, as the loop saves it."""
  return tiny_run.make_run(tmp_path_factory.mktemp('run'), root)


def test_the_index_is_known_without_opening_it(root):
  task, _ = _task(root)
  assert not (root / 'index').exists()
  made_with = retro_data.DataFolder(root).neighbors('train').store.fields
  assert task.index_version == made_with['index'] == 'none'


def test_another_tokenizer_of_equal_size_is_refused(workdir, tmp_path):
  other = tiny_data.make(tmp_path, num_documents=20)
  assert retro_data.DataFolder(other).tokens.vocab_size == 300
  with pytest.raises(
    ValueError, match='trained with tokenizer .* but the data'
  ):
    language_model.load(workdir, str(other))
