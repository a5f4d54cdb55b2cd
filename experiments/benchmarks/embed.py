# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Embed chunks by MiniLM; sentence-transformers' Python runs this file, too."""

import functools
import json
import pathlib

import numpy as np


def prepare(sizes):
  """Write the texts of some chunks of 64 tokens of prepared data."""
  from retrieval.nn import bert_checkpoint
  from retro_jax.data import folder

  chunks = folder.DataFolder(pathlib.Path(sizes['data'])).chunks('train')
  ids = np.linspace(0, chunks.num_chunks - 1, sizes['chunks']).astype(np.int64)
  file = pathlib.Path(sizes['folder']) / 'texts.json'
  file.write_text(json.dumps(chunks.texts(np.unique(ids))))
  return {'model': str(bert_checkpoint.find_minilm())}


def _steps(sizes, side):
  """Return a side's step 'embed', which compares its vectors with ours."""
  folder = pathlib.Path(sizes['folder'])
  texts = json.loads((folder / 'texts.json').read_text())
  if side == 'ours':
    from retrieval.nn import embedders

    encode = embedders.Embedder.load('minilm', max_length=128).embed_texts
  else:
    import sentence_transformers

    how = {'device': 'cpu', 'backend': side}
    model = sentence_transformers.SentenceTransformer(sizes['model'], **how)
    model.max_seq_length = 128
    encode = functools.partial(model.encode, show_progress_bar=False)

  def embed():
    vectors, file = encode(texts), folder / 'ours.npy'
    if side == 'ours':
      np.save(file, vectors)
    cosine = (vectors * np.load(file)).sum(1).min()
    return {'items': len(texts), 'smallest cosine': float(cosine)}

  return {'embed': embed}


SIZES = {'data': 'runs/quickstart/data', 'chunks': 512}
PEERS = ('torch', 'onnx')
SIDES = {x: functools.partial(_steps, side=x) for x in ('ours', *PEERS)}
