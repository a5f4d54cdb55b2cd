# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""sentence-transformers' sides of the benchmark `embed`: torch and onnxruntime.

The peer's interpreter runs this module, which imports nothing of this project.
"""

import json
import pathlib

import numpy as np


def build(side, sizes):
  """Return 'embed', which compares its vectors with ours, written before."""
  import sentence_transformers

  encoder = sentence_transformers.SentenceTransformer(
    sizes['model'], device='cpu', backend=side
  )
  encoder.max_seq_length = 128
  folder = pathlib.Path(sizes['folder'])
  texts = json.loads((folder / 'texts.json').read_text())

  def embed():
    vectors = encoder.encode(texts, batch_size=32, show_progress_bar=False)
    cosines = (vectors * np.load(folder / 'ours.npy')).sum(1)
    return {'items': len(texts), 'smallest cosine': float(cosines.min())}

  return {'embed': embed}
