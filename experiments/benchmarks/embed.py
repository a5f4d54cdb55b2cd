# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Time embedding against sentence-transformers and onnxruntime on the same chunks.

  python -m experiments.benchmarks.embed --data=runs/quickstart/data \
    --baseline_python=VENV/bin/python

VENV holds torch, sentence-transformers, onnx and onnxruntime. The sides take turns
on the same 64-token chunks. Prints chunks/s, the ratios of medians and each
baseline's smallest cosine to our vectors. Without --baseline_python only ours is
timed; --baselines names fewer.
"""

import json
import pathlib
import tempfile
from typing import Any

from absl import flags
import numpy as np

from experiments.benchmarks import comparison
from experiments.engine import command, progress
from retrieval.nn import embedders
from retro_jax.data import folder as retro_data

BASELINES = ('sentence-transformers', 'onnxruntime')


def _read_texts(data: str, count: int) -> list[str]:
  folder = retro_data.DataFolder(pathlib.Path(data))
  chunks = folder.chunks('train')
  ids = np.linspace(0, chunks.num_chunks - 1, count).astype(np.int64)
  return chunks.texts(np.unique(ids), folder.tokenizer)


def build(sizes: dict[str, Any]):
  """Return our 'embed', a function that embeds all texts once."""
  embedder = embedders.Embedder.load('minilm', max_length=128)
  path = pathlib.Path(sizes['folder'])
  texts = json.loads((path / 'texts.json').read_text())
  np.save(path / f'{comparison.OURS}.npy', embedder.embed_texts(texts))
  return {'embed': lambda: embedder.embed_texts(texts)}


def main(argv: list[str]) -> None:
  """Time all sides in turn and print the table."""
  del argv
  values = flags.FLAGS
  if comparison.serve(build):
    return
  names = values.baselines if values.baseline_python else ()
  with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary)
    texts = _read_texts(values.data, values.chunks)
    (folder / 'texts.json').write_text(json.dumps(texts))
    results = comparison.measure(
      'experiments.benchmarks.embed',
      {'model': str(embedders.find_minilm()), 'folder': temporary},
      values.baseline_python,
      {name: ('embed_worker.py', name) for name in names},
      {'embed': True},
      values.repeats,
      env={'HF_HUB_OFFLINE': '1'},
    )
    vectors = np.load(folder / f'{comparison.OURS}.npy')
    theirs = {name: np.load(folder / f'{name}.npy') for name in names}
  comparison.show(results, 'Embedding', {'embed': (len(texts), 'chunks')})
  ours = results['embed'][comparison.OURS]
  for name in names:
    ratio = results['embed'][name]['wall_sec'] / ours['wall_sec']
    cosine = float((vectors * theirs[name]).sum(1).min())
    progress.console().print(
      f'{name}: {ratio:.2f} times the time of ours, smallest cosine '
      f'{cosine:.7f}',
      highlight=False,
    )
  comparison.write({'chunks': len(texts), 'steps': results})


if __name__ == '__main__':
  comparison.define_flags('sentence-transformers, onnx and onnxruntime', 5)
  flags.DEFINE_string('data', 'runs/quickstart/data', 'Prepared data folder.')
  flags.DEFINE_multi_enum(
    'baselines', BASELINES, BASELINES, 'A baseline to time.'
  )
  flags.DEFINE_integer('chunks', 512, 'Chunks of one pass.')
  command.main_of_script(main)
