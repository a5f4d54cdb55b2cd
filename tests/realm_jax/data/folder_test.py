# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The data folder of REALM: its stores, and what does not fit a config."""

import dataclasses
import types

import ml_collections
import numpy as np
import pytest

from realm_jax.data import examples, folder
from retrieval.store import checkpoints
from tests.retrieval.text import tiny_blocks


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  root = tmp_path_factory.mktemp('workdir') / 'data'
  return tiny_blocks.make(root, np.random.default_rng(0), num_documents=4)


def _config(kind='', max_length=32):
  return types.SimpleNamespace(
    data_dir='',
    blocks=types.SimpleNamespace(max_length=max_length),
    layout=examples.Lengths(query_length=9, num_candidates=3),
    masked_corpus=types.SimpleNamespace(kind=kind),
  )


def test_layout_has_the_config_lengths_and_the_tokenizer_specials(made):
  data = folder.DataFolder(made.root)
  found = dataclasses.asdict(data.layout(_config()))
  lengths = {'query_length': 9, 'block_length': 32, 'num_candidates': 3}
  ids = {
    f'{name}_id': tiny_blocks.SPECIALS.index(f'[{name.upper()}]')
    for name in ('cls', 'sep', 'mask', 'pad')
  }
  assert found == lengths | ids | {'max_targets': 10}
  with pytest.raises(ValueError, match='most 32 wordpieces.*max_length is 31'):
    data.layout(_config(max_length=31))


def test_another_masked_corpus(made, tmp_path):
  data = folder.DataFolder(tmp_path)
  data.check_masked(_config())
  with pytest.raises(ValueError, match="not exist, but .* is 'jsonl'; run exp"):
    data.check_masked(_config('jsonl'))
  tiny_blocks.make(tmp_path, None, given=made.documents)
  other = tiny_blocks.make(tmp_path / 'masked', None, given=made.documents[:2])
  data.check_masked(_config('jsonl'))
  with pytest.raises(ValueError, match="masked: exists, but .* is ''"):
    data.check_masked(_config())
  assert data.masked_blocks.fingerprint == other.blocks.fingerprint
  assert data.blocks.fingerprint == made.blocks.fingerprint


def test_a_checkpoint_needs_the_tokenizer_of_its_data(made, tmp_path):
  saved = checkpoints.Saved(
    ml_collections.ConfigDict({'data_dir': ''}),
    0,
    {'tokenizer': made.tokenizer.fingerprint},
    {},
  )
  assert folder.open_saved(saved, made.root.parent).root == made.root
  assert folder.open_saved(saved, tmp_path, str(made.root)).root == made.root
  saved.fingerprints['tokenizer'] = 'another'
  with pytest.raises(ValueError, match='trained with tokenizer another'):
    folder.open_saved(saved, made.root.parent)
