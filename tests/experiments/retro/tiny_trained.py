# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny RETRO and its baseline as if they were trained, over `tiny_data`."""

import dataclasses
import pathlib

import numpy as np

from retro_jax.data import (
  datastore as datastore_lib,
  folder as retro_data,
  neighbor_lookup,
)
from retro_jax.trained import language_model, loading
from tests.experiments.retro import tiny_retro


class Folder(retro_data.DataFolder):
  """A data folder whose retriever needs no embedder and no index."""

  @property
  def datastore(self):
    return Datastore(self)


class Datastore(datastore_lib.Datastore):
  """Its look-up."""

  def lookup(self, config):
    datastore = self.folder.chunks('train')
    return Lookup(datastore, config.model.neighbor_length)


class Lookup:
  """Finds chunks by the sum of the query; the second neighbor is -1."""

  def __init__(self, datastore, neighbor_length):
    self._datastore, self._length = datastore, neighbor_length

  def retrieve_tokens(self, rows, k):
    number = self._datastore.num_chunks
    ids = np.array(
      [
        [-1 if i == 1 else (int(row.sum()) + i) % number for i in range(k)]
        for row in rows
      ]
    )
    tokens, mask = self._datastore.gather(ids, self._length)
    scores = np.where(ids >= 0, 0.0, -np.inf)
    titles = [[''] * k for _ in rows]
    return neighbor_lookup.Retrieved(ids, scores, tokens, mask, titles)


def trained(
  root: pathlib.Path, baseline: bool = False, folder=retro_data.DataFolder
) -> loading.TrainedRetro:
  """One of them, with the data of `tiny_data.make(root)`."""
  found = tiny_retro.trained(root, baseline)
  return dataclasses.replace(found, data=folder(root))


def load_from(root: pathlib.Path, monkeypatch, folder=retro_data.DataFolder):
  """Makes 'retro' and 'baseline', also as ends of paths, loadable; returns them."""
  found = {
    name: trained(root, name == 'baseline', folder)
    for name in ('retro', 'baseline')
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


def evaluate(**changes):
  """How they are evaluated."""
  return tiny_retro.evaluate(num_neighbors=(1,), max_documents=3, **changes)
