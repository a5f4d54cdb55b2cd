# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The section of a config, and the model that an index remembers."""

import ml_collections
import pytest

from retrieval.nn import colbert_encoder
from retrieval.search import colbert_index, late_interaction
from tests.retrieval.search import tiny_encoder

TEXTS = ['word1 word2', 'word3', 'word2 word3 word4']


@pytest.fixture
def loaded(monkeypatch):
  """Folders from which a model was loaded."""
  found = []

  def load(path):
    found.append(str(path))
    return tiny_encoder.Words()

  monkeypatch.setattr(colbert_encoder, 'load', load)
  return found


@pytest.fixture
def path(tmp_path):
  section = colbert_index.Section(model=str(tmp_path / 'run'), num_bits=4)
  words, texts = tiny_encoder.Words(), tiny_encoder.texts_of(TEXTS)
  index = colbert_index.build(tmp_path / 'index', section, words, texts)
  assert index.num_blocks == 3 and index.fields['num_bits'] == 4
  return tmp_path / 'index'


def test_a_section_is_read_and_checked():
  empty = ml_collections.ConfigDict()
  assert colbert_index.section_of(empty) == colbert_index.Section()
  config = ml_collections.ConfigDict(
    {'colbert_index': {'model': 'run', 'search': {'num_probes': 3}}}
  )
  section = colbert_index.section_of(config)
  assert (section.model, section.search.num_probes) == ('run', 3)
  config.colbert_index.num_centroids = -1
  with pytest.raises(ValueError, match='config.colbert_index.num_centroids=-1'):
    colbert_index.section_of(config)


def test_an_index_remembers_its_model(path, loaded, tmp_path):
  search = late_interaction.SearchConfig(num_rescored=2)
  section = colbert_index.Section(search=search)  # no model, other settings
  index = colbert_index.load(path, section)
  assert loaded == [str(tmp_path / 'run')]
  assert index.search(['word3'], 1)[0] == 1
  section = colbert_index.Section(model='other')
  colbert_index.load(path, section)
  assert loaded[1:] == ['other']


def test_what_is_missing_is_named(path, tmp_path):
  section = colbert_index.Section()
  with pytest.raises(ValueError, match="model='': late interaction needs"):
    colbert_index.load_encoder(section)
  with pytest.raises(FileNotFoundError, match='no colbert_tokens store here'):
    colbert_index.load(tmp_path, section)
  said = f'Expected the ColBERT that made {path}'
  with pytest.raises(FileNotFoundError, match=said) as error:
    colbert_index.load(path, section)
  assert str(tmp_path / 'run') in str(error.value)
  assert '\n' not in str(error.value)
