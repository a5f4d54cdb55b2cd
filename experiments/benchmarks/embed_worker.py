# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""sentence-transformers' or onnxruntime's side of the benchmark `embed`.

The baseline's interpreter runs this script. Arguments: the side, and as JSON
the folder of the model and the folder of texts.json, in which the first pass
writes the vectors, <side>.npy.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np

BATCH_SIZE = 32
MAX_LENGTH = 128


def sentence_transformers(model: str):
  """Return texts -> vectors by sentence-transformers on torch."""
  import sentence_transformers

  encoder = sentence_transformers.SentenceTransformer(model, device='cpu')
  encoder.max_seq_length = MAX_LENGTH
  return lambda texts: encoder.encode(
    texts, batch_size=BATCH_SIZE, show_progress_bar=False
  )


def onnxruntime(model: str):
  """Return texts -> vectors by onnxruntime, with batches sorted by length."""
  import onnxruntime
  import tokenizers

  tokenizer = tokenizers.Tokenizer.from_file(f'{model}/tokenizer.json')
  tokenizer.enable_truncation(MAX_LENGTH)
  tokenizer.enable_padding()
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'model.onnx'
    _export(model, path)
    session = onnxruntime.InferenceSession(
      str(path), providers=['CPUExecutionProvider']
    )

  def encode(texts):
    order = np.argsort([-len(text) for text in texts], kind='stable')
    vectors = np.empty((len(texts), 384), np.float32)
    for start in range(0, len(texts), BATCH_SIZE):
      rows = order[start : start + BATCH_SIZE]
      batch = tokenizer.encode_batch([texts[i] for i in rows])
      ids = np.array([x.ids for x in batch], np.int64)
      mask = np.array([x.attention_mask for x in batch], np.int64)
      (hidden,) = session.run(None, {'ids': ids, 'mask': mask})
      weights = mask[..., None].astype(np.float32)
      mean = (hidden * weights).sum(1) / weights.sum(1)
      vectors[rows] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    return vectors

  return encode


def _export(model: str, path: pathlib.Path) -> None:
  import torch
  import transformers

  bert = transformers.AutoModel.from_pretrained(
    model, attn_implementation='eager'
  )

  class Hidden(torch.nn.Module):
    """BERT that returns its last hidden states alone."""

    def __init__(self):
      super().__init__()
      self.bert = bert

    def forward(self, ids, mask):
      return self.bert(input_ids=ids, attention_mask=mask).last_hidden_state

  example = torch.ones((2, 16), dtype=torch.int64)
  torch.onnx.export(
    Hidden().eval(),
    (example, example),
    str(path),
    input_names=['ids', 'mask'],
    output_names=['hidden'],
    dynamic_axes={
      'ids': {0: 'batch', 1: 'length'},
      'mask': {0: 'batch', 1: 'length'},
    },
    dynamo=False,
  )


def build(side: str, sizes: dict[str, str]):
  """Return 'embed', a function that embeds all texts once."""
  sides = {
    'sentence-transformers': sentence_transformers,
    'onnxruntime': onnxruntime,
  }
  encode = sides[side](sizes['model'])
  folder = pathlib.Path(sizes['folder'])
  texts = json.loads((folder / 'texts.json').read_text())
  np.save(folder / f'{side}.npy', encode(texts))
  return {'embed': lambda: encode(texts)}


if __name__ == '__main__':
  import turns  # beside this script

  turns.serve(build(sys.argv[1], json.loads(sys.argv[2])))
