# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The run of `tiny_trained`, loaded once a module."""

import pytest

from realm_jax.trained import index_builder, loading
from tests.experiments.realm import tiny_trained


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  return tiny_trained.make_data(tmp_path_factory.mktemp('data'))


@pytest.fixture(scope='module')
def workdir(data, tmp_path_factory):
  return tiny_trained.save(tmp_path_factory.mktemp('run'), data)


@pytest.fixture(scope='module')
def trained(workdir):
  return loading.load(workdir, part='realm')


@pytest.fixture(scope='module')
def index(trained, workdir):
  return trained.open_index(workdir / index_builder.INDEX)
