# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny RETRO and its twin as if they were trained, over `tiny_data`."""

import pathlib

import numpy as np

from configs import retro_base
from experiments import retro_data
from experiments import retro_task
from retrieval import retriever as retriever_lib
from retro_jax import model
from tests.retro_jax import tiny
from tests.retro_jax import tiny_data


class Folder(retro_data.DataFolder):
  """A data folder whose retriever needs no embedder and no index."""

  def retriever(self, config):
    return Retriever(self.chunks('train'), config.model.neighbor_length)


class Retriever:
  """Finds chunks by the sum of what is asked; the second neighbor is none."""

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
    return retriever_lib.Retrieved(ids, scores, tokens, mask, titles)


def trained(
  root: pathlib.Path, twin: bool = False, folder=retro_data.DataFolder
) -> retro_task.Trained:
  """One of them, with the data of `tiny_data.make(root)`."""
  sizes = tiny.config(
    vocab_size=300,
    chunk_length=tiny_data.M,
    neighbor_length=tiny_data.R,
    num_layers=2,
    cca_layers=() if twin else (2,),
    encoder_num_layers=1,
  )
  config = retro_base.finish(retro_base.get_config('test'), 'test')
  config.model.chunk_length = tiny_data.M
  config.model.neighbor_length = tiny_data.R
  config.retrieval = not twin
  config.evaluate.num_neighbors = (1,)
  return retro_task.Trained(
    config=config,
    data=folder(root),
    model=model.Retro(sizes),
    params=tiny.params(sizes),
    step=20 if twin else 10,
  )


def load_from(root: pathlib.Path, monkeypatch, folder=retro_data.DataFolder):
  """Makes 'retro' and 'twin', also as ends of paths, loadable; returns them."""
  found = {
    name: trained(root, name == 'twin', folder) for name in ('retro', 'twin')
  }

  def load(workdir, data_dir='', **unused_placement):
    return found[str(workdir).split('/')[-1]]

  monkeypatch.setattr(retro_task, 'load', load)
  return found
