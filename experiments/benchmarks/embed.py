# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Embedding 64-token chunks by MiniLM: sentence-transformers, by torch and onnx."""

import json
import pathlib

import numpy as np

from experiments.benchmarks import turns
from retrieval.nn import bert_checkpoint, embedders
from retro_jax.data import folder as retro_data


def prepare(sizes: turns.Sizes) -> turns.Sizes:
  """Write the texts of some chunks of prepared data."""
  chunks = retro_data.DataFolder(pathlib.Path(sizes['data'])).chunks('train')
  ids = np.linspace(0, chunks.num_chunks - 1, sizes['chunks']).astype(np.int64)
  file = pathlib.Path(sizes['folder']) / 'texts.json'
  file.write_text(json.dumps(chunks.texts(np.unique(ids))))
  return {'model': str(bert_checkpoint.find_minilm())}


def build(side: str, sizes: turns.Sizes) -> turns.Steps:
  """Return our 'embed', a function that embeds all texts once."""
  embedder = embedders.Embedder.load('minilm', max_length=128)
  folder = pathlib.Path(sizes['folder'])
  texts = json.loads((folder / 'texts.json').read_text())

  def embed():
    np.save(folder / f'{side}.npy', embedder.embed_texts(texts))
    return {'items': len(texts)}

  return {'embed': embed}


TASKS = {
  'embed': turns.Task(
    build=build,
    sizes={'data': 'runs/quickstart/data', 'chunks': 512},
    sides=('ours', 'torch', 'onnx'),
    peers=dict.fromkeys(('torch', 'onnx'), 'embed_worker'),
    prepare=prepare,
  )
}
