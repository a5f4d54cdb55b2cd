# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The other side of benchmark_embed, run by the baseline's own Python.

Arguments: side (sentence-transformers or onnxruntime), folder of the model, file
of the texts (JSON), file for the vectors (.npy). Embeds once, writes the vectors,
prints "ready", then embeds again for each line of standard input and prints the
seconds it took.
"""

import json
import pathlib
import sys
import tempfile
import time

import numpy as np

BATCH_SIZE = 32
MAX_LENGTH = 128


def sentence_transformers(model: str):
  """Returns texts -> vectors by sentence-transformers on torch."""
  import sentence_transformers

  encoder = sentence_transformers.SentenceTransformer(model, device='cpu')
  encoder.max_seq_length = MAX_LENGTH
  return lambda texts: encoder.encode(
    texts, batch_size=BATCH_SIZE, show_progress_bar=False
  )


def onnxruntime(model: str):
  """Returns texts -> vectors by onnxruntime, batches sorted by length too."""
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
    """The last hidden states alone."""

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


def main() -> None:
  """Serves until standard input ends."""
  side, model, texts_file, vectors_file = sys.argv[1:]
  sides = {
    'sentence-transformers': sentence_transformers,
    'onnxruntime': onnxruntime,
  }
  encode = sides[side](model)
  texts = json.loads(pathlib.Path(texts_file).read_text())
  np.save(vectors_file, encode(texts))
  print('ready', flush=True)
  for _ in sys.stdin:
    start = time.perf_counter()
    encode(texts)
    print(time.perf_counter() - start, flush=True)


if __name__ == '__main__':
  main()
