# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A RETRO or its baseline at test size, on the data folder of tiny_data."""

import dataclasses
import types

import numpy as np

from retro_jax.data import (
  datastore as datastore_lib,
  folder as retro_data,
  samples,
)
from retro_jax.nn import retro as model
from retro_jax.trained import language_model
from tests.experiments.retro import tiny_config
from tests.retro_jax.data import tiny_data
from tests.retro_jax.nn import tiny


class Folder(retro_data.DataFolder):
  """A data folder whose retriever needs no embedder and no index."""

  @property
  def datastore(self):
    return Datastore(self)


class Datastore(datastore_lib.Datastore):
  """Its index and look-up."""

  @property
  def index(self):
    searcher = types.SimpleNamespace(metric='squared_l2')
    return types.SimpleNamespace(searcher=searcher)

  def lookup(self, config):
    datastore = self.folder.chunks('train')

    class Fixed:
      def retrieve_tokens(self, rows, k):
        ids = np.array([[len(row), -1, 7, 9, 11][:k] for row in rows])
        tokens, mask = datastore.gather(ids, config.model.neighbor_length)
        titles = [[f'Title {i}' if i >= 0 else '' for i in r] for r in ids]
        scores = np.where(ids >= 0, -ids / 10, -np.inf)
        found = zip(ids, scores, tokens, mask, titles, strict=True)
        return [samples.ChunkNeighbors(*row, 'BM25') for row in found]

    return Fixed()


def sizes(num_layers, baseline):
  """Of a model for the tiny data, which retrieves in its last layer."""
  return tiny.config(
    vocab_size=300,
    chunk_length=tiny_data.M,
    neighbor_length=tiny_data.R,
    num_layers=num_layers,
    cca_layers=() if baseline else (num_layers,),
    encoder_num_layers=1,
  )


def trained(root, baseline=False):
  """With random parameters."""
  model_sizes = sizes(2, baseline)
  config = tiny_config.tiny(retrieval=not baseline)
  return language_model.LanguageModel(
    config=config,
    data=Folder(root),
    model=model.Retro(model_sizes),
    params=tiny.params(model_sizes),
    step=20 if baseline else 10,
  )


def evaluate(**changes):
  """How they are evaluated."""
  changes = {
    'split': 'valid',
    'max_documents': 4,
    'num_neighbors': (1, 3),
  } | changes
  return tiny_config.section('evaluate', **changes)


def load_from(root, monkeypatch):
  """Makes 'retro' and 'baseline', also as ends of paths, loadable; returns them."""
  found = {
    name: trained(root, name == 'baseline') for name in ('retro', 'baseline')
  }

  def load(workdir, data_dir='', source='', **unused_placement):
    one = found[str(workdir).split('/')[-1]]
    if not source:
      return one
    return dataclasses.replace(
      one, data=dataclasses.replace(one.data, source=source)
    )

  monkeypatch.setattr(language_model, 'load', load)
  return found


def evaluate_one(**changes):
  """How they are evaluated with one neighbor."""
  return evaluate(**{'num_neighbors': (1,), 'max_documents': 3} | changes)
