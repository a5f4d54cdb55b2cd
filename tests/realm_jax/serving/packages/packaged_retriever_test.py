# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The packaged embedder and vectors: rounding, files, whose blocks they are."""

import types
from unittest import mock

import ml_collections
import numpy as np
import pytest

from realm_jax.serving import model_configs
from realm_jax.serving.packages import (
  packaged_reader,
  packaged_retriever,
  packaged_run,
)
from retrieval.text import blocks as blocks_lib


def _blocks(fingerprint):
  return mock.Mock(spec=blocks_lib.BlockStore, fingerprint=fingerprint)


@pytest.fixture
def made(tmp_path, monkeypatch):
  """A retriever of five blocks, saved where the package has its own."""
  rng = np.random.default_rng(0)
  kernel = rng.normal(size=(4, 3)).astype(np.float32)
  params = {'embedder': {'dense': {'kernel': kernel}}}
  blocks = _blocks('of five blocks')
  vectors = rng.normal(size=(5, 3)).astype(np.float32)
  vectors[2] = 0
  packaged_retriever.save(tmp_path, params, blocks, vectors)
  monkeypatch.setattr(packaged_reader, 'FOLDER', tmp_path)
  return types.SimpleNamespace(
    folder=tmp_path, params=params, blocks=blocks, vectors=vectors
  )


def test_each_vector_is_rounded_by_its_own_scale(made):
  loaded = packaged_retriever.load()
  found = packaged_retriever.vectors_of(loaded, made.blocks)
  assert found.dtype == np.float32
  largest = np.abs(made.vectors).max(axis=1, keepdims=True)
  error = np.abs(found - made.vectors)
  assert (error <= largest / 254 * 1.0001).all() and error.max() > 0
  assert not found[2].any()


def test_vectors_are_those_of_its_own_embedder_and_blocks(made):
  loaded = packaged_retriever.load()
  wanted = packaged_retriever.rounded(made.params)
  kernel = loaded['embedder']['dense']['kernel']
  np.testing.assert_array_equal(kernel, wanted['embedder']['dense']['kernel'])
  others = _blocks('of other blocks')
  assert packaged_retriever.covers(made.blocks)
  assert not packaged_retriever.covers(others)
  assert packaged_retriever.vectors_of(loaded, others) is None
  # The parameters of before they were rounded are another embedder's.
  assert packaged_retriever.vectors_of(made.params, made.blocks) is None


def test_a_package_without_a_retriever_covers_nothing(made):
  (made.folder / 'retriever.json').unlink()
  assert not packaged_retriever.exists()
  assert not packaged_retriever.covers(made.blocks)


def test_a_damaged_file_is_named(made):
  path = made.folder / 'vectors.safetensors'
  path.write_bytes(path.read_bytes()[:-1] + b'!')
  loaded = packaged_retriever.load()
  with pytest.raises(ValueError, match=r'vectors\.safetensors.*pack'):
    packaged_retriever.vectors_of(loaded, made.blocks)


def test_the_packages_own_retriever_fits_its_readers_config():
  made = packaged_reader.load_config()
  vocabulary = 30522  # of BERT's uncased WordPiece
  config = model_configs.realm_config(
    ml_collections.ConfigDict(made['config']), vocabulary
  )
  params = packaged_run.start_embedder(config)
  words = params['embedder']['bert']['embeddings']['word']['embedding']
  assert words.shape == (vocabulary, config.embedder.d_model)
  files = [*packaged_reader.FOLDER.iterdir()]
  assert sum(file.stat().st_size for file in files) < 80e6
