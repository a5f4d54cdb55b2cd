# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The files of the packaged reader."""

from flax import linen as nn
import jax
import ml_collections
import numpy as np
import pytest

from realm_jax.nn import open_qa
from realm_jax.serving import model_configs
from realm_jax.serving.packages import packaged_reader
from retrieval import tokenization
from retrieval.formats import packed


@pytest.fixture
def params():
  kernel = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
  return {'dense': {'kernel': kernel, 'bias': kernel[0]}}


@pytest.fixture
def tokenizer():
  return tokenization.load_tokenizer(packaged_reader.FOLDER)


def test_files_are_read_as_they_were_written(params, tokenizer, tmp_path):
  folder = tmp_path / 'new'
  made = {'config': {}, 'step': 1, 'tokenizer': 'abc'}
  packaged_reader.save(folder, params, tokenizer, made)
  found = packaged_reader.load(folder)['reader']
  wanted = packed.dequantize(packed.quantize(params))
  for part, values in wanted.items():
    for name, value in values.items():
      np.testing.assert_array_equal(found[part][name], value)
  assert packaged_reader.load_config(folder) == made
  (folder / 'config.json').write_text('{}')
  with pytest.raises(ValueError, match=r'config\.json: lacks .*config'):
    packaged_reader.load_config(folder)


def test_the_packages_own_reader_fits_its_config(tokenizer):
  made = packaged_reader.load_config()
  reader = packaged_reader.load()['reader']
  assert tokenizer.fingerprint == made['tokenizer']
  config = model_configs.reader_config(
    ml_collections.ConfigDict(made['config']), tokenizer.vocab_size
  )
  shapes = jax.eval_shape(
    lambda: nn.unbox(open_qa.random_params(jax.random.key(0), config))['reader']
  )
  assert jax.tree.map(np.shape, reader) == jax.tree.map(
    lambda x: x.shape, shapes
  )
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(reader))


def test_faults_are_named(params, tokenizer, tmp_path):
  with pytest.raises(
    FileNotFoundError, match=r'no packaged model here \(reader'
  ):
    packaged_reader.load(tmp_path)
  packaged_reader.save(tmp_path, params, tokenizer, {})
  path = tmp_path / 'reader.safetensors'
  path.write_bytes(path.read_bytes()[:-9])
  with pytest.raises(ValueError, match=r'reader\.safetensors: damaged'):
    packaged_reader.load(tmp_path)


@pytest.mark.parametrize('name', ['reader.safetensors', 'config.json'])
def test_a_flipped_bit_is_found(params, tokenizer, tmp_path, name):
  made = {'config': {}, 'step': 1, 'tokenizer': 'abc'}
  packaged_reader.save(tmp_path, params, tokenizer, made)
  data = bytearray((tmp_path / name).read_bytes())
  place = data.index(b'"step": 1') + 8 if name == 'config.json' else -1
  data[place] ^= 1
  (tmp_path / name).write_bytes(data)
  with pytest.raises(ValueError, match=rf'{name}: damaged \(checksum'):
    packaged_reader.load_config(tmp_path)
    packaged_reader.load(tmp_path)
  assert not [*tmp_path.parent.glob('.*.verified')]
