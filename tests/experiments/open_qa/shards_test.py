# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A reader whose blocks' index is in shards answers as with one index."""

import pytest

from experiments.open_qa import trained_reader
from realm_jax.data import folder as realm_data
from realm_jax.trained import index_builder
from tests.experiments.open_qa import ask_test, tiny_open_qa


def _answered(root, shards):
  data, workdir = tiny_open_qa.make_data(root / 'data'), root / 'run'
  config = tiny_open_qa.get_config(data, **{'index.shards': shards})
  trained = tiny_open_qa.reader_of(config, realm_data.DataFolder(data))
  folder = workdir / index_builder.INDEX
  version = trained.as_realm().open_index(folder).version
  assert getattr(version.index.searcher, 'num_shards', 1) == shards
  tiny_open_qa.save(workdir, trained, config, index_version=version.name)
  version.close()
  answerer = trained_reader.open_reader(workdir).open_answerer(
    answers=3, batch_size=8
  )
  [found] = answerer.answer([ask_test.ASKED])
  return found.record(3)


@pytest.mark.slow
def test_answers_do_not_depend_on_the_shards(tmp_path):
  one, three = (_answered(tmp_path / str(n), n) for n in (1, 3))
  assert one['prediction'] and one == three
