# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading a trained RETRO: onto devices, and only with its own tokenizer."""

import jax
import numpy as np
import pytest

from experiments.retro import task as retro_task
from retrieval.nn import sharding
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


def test_loads_onto_one_device_or_a_mesh(root, workdir):
  one = language_model.load(workdir)
  assert one.step == 1 and one.data.root == root
  for x in jax.tree.leaves(one.params):
    assert x.devices() == {jax.local_devices()[0]}
  mesh = sharding.make_mesh(data=2, fsdp=2, tensor=2)
  spread = language_model.load(workdir, mesh=mesh)
  table = spread.params['embedding']
  assert table.sharding.shard_shape(table.shape) == (150, 16)  # of (300, 32)
  jax.tree.map(np.testing.assert_array_equal, one.params, spread.params)


def test_another_tokenizer_of_equal_size_is_refused(workdir, tmp_path):
  other = tiny_data.make(tmp_path, num_documents=20)
  assert retro_data.DataFolder(other).tokens.vocab_size == 300
  with pytest.raises(
    ValueError, match='trained with tokenizer .* but the data'
  ):
    language_model.load(workdir, str(other))
