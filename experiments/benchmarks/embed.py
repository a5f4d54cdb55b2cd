# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Embedding 64-token chunks by MiniLM: sentence-transformers, by torch and onnx."""

import json
import pathlib
from typing import Any

import numpy as np

from experiments.benchmarks import comparison
from retrieval.nn import bert_checkpoint, embedders
from retro_jax.data import folder as retro_data

_PEERS = ('torch', 'onnx')


def prepare(sizes: dict[str, Any]) -> dict[str, Any]:
  """Write the texts of some chunks of prepared data."""
  folder = retro_data.DataFolder(pathlib.Path(sizes['data']))
  chunks = folder.chunks('train')
  ids = np.linspace(0, chunks.num_chunks - 1, sizes['chunks']).astype(np.int64)
  texts = chunks.texts(np.unique(ids))
  file = pathlib.Path(sizes['folder']) / 'texts.json'
  file.write_text(json.dumps(texts))
  return {'model': str(bert_checkpoint.find_minilm())}


def build(side: str, sizes: dict[str, Any]):
  """Return our 'embed', a function that embeds all texts once."""
  embedder = embedders.Embedder.load('minilm', max_length=128)
  folder = pathlib.Path(sizes['folder'])
  texts = json.loads((folder / 'texts.json').read_text())

  def embed():
    np.save(folder / f'{side}.npy', embedder.embed_texts(texts))
    return {'items': len(texts)}

  return {'embed': embed}


TASKS = {
  'embed': comparison.Task(
    build=build,
    sizes={'data': 'runs/quickstart/data', 'chunks': 512},
    steps=lambda _: {'embed': ('ours', *_PEERS)},
    peers=dict.fromkeys(_PEERS, 'embed_worker'),
    prepare=prepare,
  )
}
