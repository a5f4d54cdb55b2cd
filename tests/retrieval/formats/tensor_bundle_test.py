# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tensor bundles that TensorFlow wrote (tests/data/make_tf_bundles.py)."""

import pathlib
import shutil

import numpy as np
import pytest

from retrieval.formats import tensor_bundle
from tests.retrieval.store import tiny_stores

BUNDLES = pathlib.Path(__file__).parents[2] / 'data' / 'realm' / 'bundles'
NAMES = {
  'bert/variables/variables': 44,
  'embedder/variables/variables': 48,
  'embedder/encoded/encoded.ckpt': 1,
  'orqa/model.ckpt-20': 103,
}


@pytest.mark.parametrize('name', NAMES)
def test_values_are_those_that_tensorflow_wrote(name):
  bundle = tensor_bundle.Bundle(BUNDLES / name)
  assert len(bundle.entries) == NAMES[name]
  prefix, checked = name.replace('/', '.') + ':', 0
  with np.load(BUNDLES / 'values.npz') as values:
    for key in values:
      if key.startswith(prefix):
        variable = key.removeprefix(prefix).replace('|', '/')
        found = bundle.tensor(variable)
        assert found.dtype == values[key].dtype
        np.testing.assert_array_equal(found, values[key])
        assert isinstance(found, np.memmap) or isinstance(found.base, np.memmap)
        checked += 1
  assert checked


def test_the_index_may_be_named_with_its_suffix():
  prefix = BUNDLES / 'orqa/model.ckpt-20'
  assert tensor_bundle.exists(prefix)
  assert not tensor_bundle.exists(BUNDLES / 'orqa')
  bundle = tensor_bundle.Bundle(f'{prefix}.index')
  assert int(bundle.tensor('global_step')) == 20


def _copy(tmp_path, name='embedder/encoded/encoded.ckpt'):
  folder = (BUNDLES / name).parent
  shutil.copytree(folder, tmp_path / 'copy')
  return tmp_path / 'copy' / pathlib.Path(name).name


def test_damaged_values_are_named(tmp_path):
  prefix = _copy(tmp_path)
  tiny_stores.flip(prefix.with_name(f'{prefix.name}.data-00000-of-00001'), 9)
  bundle = tensor_bundle.Bundle(prefix)
  with pytest.raises(ValueError, match='variable block_emb: checksum'):
    bundle.tensor('block_emb')


def test_a_damaged_index_is_named(tmp_path):
  prefix = _copy(tmp_path)
  index = prefix.with_name(f'{prefix.name}.index')
  tiny_stores.flip(index, 3)
  with pytest.raises(
    ValueError, match=r'encoded.ckpt.index: checksum of the b'
  ):
    tensor_bundle.Bundle(prefix)
  index.write_bytes(b'x' * 60)
  with pytest.raises(ValueError, match='no table magic'):
    list(tensor_bundle.read_table(index))


def test_cut_and_missing_files_are_named(tmp_path):
  prefix = _copy(tmp_path)
  data = prefix.with_name(f'{prefix.name}.data-00000-of-00001')
  data.write_bytes(data.read_bytes()[:-1])
  bundle = tensor_bundle.Bundle(prefix)
  with pytest.raises(ValueError, match='which has 79'):
    bundle.tensor('block_emb')
  data.unlink()
  with pytest.raises(FileNotFoundError, match='data-00000-of-00001'):
    bundle.tensor('block_emb')
  with pytest.raises(FileNotFoundError, match='prefix of a TensorFlow'):
    tensor_bundle.Bundle(tmp_path / 'nothing')
