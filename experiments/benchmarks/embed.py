# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Embedding speed against its peers: same chunks, machine and run.

  python -m experiments.benchmarks.embed --data=runs/quickstart/data \
    --baseline_python=VENV/bin/python

VENV holds torch, sentence-transformers, onnx and onnxruntime. The sides take
turns on the same 64-token chunks, so that none runs while another is timed.
Prints chunks/s, the ratios of medians and each side's smallest cosine to our
vectors. Without --baseline_python only ours is timed; --baselines names fewer.
"""

import collections
import json
import os
import pathlib
import subprocess
import tempfile
import time

from absl import flags
import numpy as np
import rich.table

from experiments.engine import command
from experiments.engine import progress
from retrieval.nn import embedders
from retro_jax.data import folder as retro_data

_WORKER = pathlib.Path(__file__).with_name('embed_worker.py')
BASELINES = ('sentence-transformers', 'onnxruntime')


class _Baseline:
  """Another library in its own process and environment."""

  def __init__(
    self, python: str, name: str, model: pathlib.Path, folder: pathlib.Path
  ):
    self._vectors = folder / f'{name}.npy'
    self._process = subprocess.Popen(
      [python, _WORKER, name, model, folder / 'texts.json', self._vectors],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      env=os.environ | {'HF_HUB_OFFLINE': '1'},
    )
    if self._process.stdout.readline().strip() != 'ready':
      raise ValueError(f'{python}: {name} does not run there; see above.')

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
  """Times all sides in turn and prints the table."""
  del argv
  command.keep_memory()
  values = flags.FLAGS
  texts = _read_texts(values.data, values.chunks)
  model = embedders.find_minilm()
  ours = embedders.Embedder.load('minilm', max_length=128)
  vectors = ours.embed_texts(texts)  # compiles
  seconds = collections.defaultdict(list)
  cosines = {}
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    (folder / 'texts.json').write_text(json.dumps(texts))
    names = values.baselines if values.baseline_python else ()
    baselines = {
      name: _Baseline(values.baseline_python, name, model, folder)
      for name in names
    }
    for _ in range(values.repeats):
      start = time.perf_counter()
      ours.embed_texts(texts)
      seconds['ours'].append(time.perf_counter() - start)
      for name, baseline in baselines.items():
        seconds[name].append(baseline.time())
    for name, baseline in baselines.items():
      cosines[name] = float((vectors * baseline.vectors()).sum(1).min())
      baseline.close()
  _print(seconds, len(texts), cosines)


def _print(
  seconds: dict[str, list[float]], count: int, cosines: dict[str, float]
) -> None:
  table = rich.table.Table(
    *('side', 'chunks/s, median', 'best', 'ours / side', 'smallest cosine'),
    title=f'{count:,} chunks',
  )
  ours = np.median(seconds['ours'])
  for side, times in seconds.items():
    rates = count / np.asarray(times)
    table.add_row(
      side,
      f'{np.median(rates):.1f}',
      f'{rates.max():.1f}',
      f'{np.median(times) / ours:.2f}',
      f'{cosines[side]:.7f}' if side in cosines else '',
    )
  progress.console().print(table)


if __name__ == '__main__':
  flags.DEFINE_string('data', 'runs/quickstart/data', 'Prepared data folder.')
  flags.DEFINE_string('baseline_python', '', 'Python with the baseline.')
  flags.DEFINE_multi_enum(
    'baselines', BASELINES, BASELINES, 'Which of them, once for each.'
  )
  flags.DEFINE_integer('chunks', 512, 'Chunks of one pass.')
  flags.DEFINE_integer('repeats', 5, 'Timed rounds.')
  command.main_of_script(main)
