# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Embedding speed against sentence-transformers: same chunks, machine and run.

  python -m experiments.benchmark_embed --data=runs/quickstart/data \
    --baseline_python=VENV/bin/python

VENV holds torch and sentence-transformers. The two sides take turns on the same
64-token chunks, so that neither runs while the other is timed. Prints chunks/s,
the ratio of medians and the smallest cosine between the two sides' vectors.
Without --baseline_python only ours is timed.
"""

import json
import pathlib
import subprocess
import tempfile
import time

from absl import app
from absl import flags
import numpy as np
import rich.console
import rich.table

from experiments import retro_data
from retrieval import embedders

_WORKER = """
import json, sys, time
import numpy as np, sentence_transformers
model = sentence_transformers.SentenceTransformer(sys.argv[1], device='cpu')
model.max_seq_length = 128
texts = json.load(open(sys.argv[2]))
encode = lambda: model.encode(texts, batch_size=32, show_progress_bar=False)
np.save(sys.argv[3], encode())
print('ready', flush=True)
for line in sys.stdin:
  start = time.perf_counter()
  encode()
  print(time.perf_counter() - start, flush=True)
"""


class _Baseline:
  """sentence-transformers in its own process and environment."""

  def __init__(self, python: str, model: pathlib.Path, folder: pathlib.Path):
    self._vectors = folder / 'vectors.npy'
    self._process = subprocess.Popen(
      [python, '-c', _WORKER, str(model), folder / 'texts.json', self._vectors],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      env={'HF_HUB_OFFLINE': '1'},
    )
    if self._process.stdout.readline().strip() != 'ready':
      raise ValueError(
        f'{python}: sentence-transformers does not run there; see above.'
      )

  def vectors(self) -> np.ndarray:
    """What it computed."""
    return np.load(self._vectors)

  def time(self) -> float:
    """Seconds of one pass."""
    self._process.stdin.write('go\n')
    self._process.stdin.flush()
    return float(self._process.stdout.readline())

  def close(self) -> None:
    """Ends the process."""
    self._process.stdin.close()
    self._process.wait()


def _read_texts(data: str, count: int) -> list[str]:
  folder = retro_data.DataFolder(pathlib.Path(data))
  chunks = folder.chunks('train')
  ids = np.linspace(0, chunks.num_chunks - 1, count).astype(np.int64)
  return chunks.texts(np.unique(ids), folder.tokenizer)


def main(argv: list[str]) -> None:
  """Times both sides in turn and prints the table."""
  del argv
  values = flags.FLAGS
  texts = _read_texts(values.data, values.chunks)
  model = embedders.find_minilm()
  ours = embedders.Embedder.load('minilm', max_length=128)
  vectors = ours.embed_texts(texts)  # compiles
  seconds: dict[str, list[float]] = {'ours': []}
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    (folder / 'texts.json').write_text(json.dumps(texts))
    baseline = None
    if values.baseline_python:
      baseline = _Baseline(values.baseline_python, model, folder)
      seconds['sentence-transformers'] = []
    for _ in range(values.repeats):
      start = time.perf_counter()
      ours.embed_texts(texts)
      seconds['ours'].append(time.perf_counter() - start)
      if baseline:
        seconds['sentence-transformers'].append(baseline.time())
    cosine = None
    if baseline:
      cosine = float((vectors * baseline.vectors()).sum(1).min())
      baseline.close()
  _print(seconds, len(texts), cosine)


def _print(
  seconds: dict[str, list[float]], count: int, cosine: float | None
) -> None:
  table = rich.table.Table(
    'side', 'chunks/s, median', 'best', title=f'{count:,} chunks'
  )
  for side, times in seconds.items():
    rates = count / np.asarray(times)
    table.add_row(side, f'{np.median(rates):.1f}', f'{rates.max():.1f}')
  if cosine is not None:
    a, b = (np.asarray(times) for times in seconds.values())
    table.add_row(
      'ours / sentence-transformers',
      f'{np.median(b) / np.median(a):.2f}',
      f'{b.min() / a.min():.2f}',
    )
    table.add_row('smallest cosine', f'{cosine:.7f}', '')
  rich.console.Console().print(table)


if __name__ == '__main__':
  flags.DEFINE_string('data', 'runs/quickstart/data', 'Prepared data folder.')
  flags.DEFINE_string('baseline_python', '', 'Python with the baseline.')
  flags.DEFINE_integer('chunks', 512, 'Chunks of one pass.')
  flags.DEFINE_integer('repeats', 5, 'Timed rounds.')
  app.run(main)
