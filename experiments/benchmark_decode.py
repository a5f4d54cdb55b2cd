# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Speed of sampling: cached, by the whole model, and by retro-pytorch 0.3.9.

  python -m experiments.benchmark_decode --baseline_python=VENV/bin/python

Texts of 128, 512 and 2048 tokens from a prompt of one token, with neighbors for
every chunk that cost nothing to find. Ours with its cache (retro_jax.decode) draws
whole texts. Who has no cache pays for a token by the length of the text before it:
ours without, and the baseline's own `generate`, draw one token after texts of an
eighth, three, five and seven eighths of each length, and their mean is what a
token costs. All take turns, so that none runs while another is timed. Without
the flag only ours are timed; the baseline's environment is benchmark_retro's, and
faiss-cpu.
"""

from collections.abc import Sequence
import functools
import json
import os
import pathlib
import statistics
import time

from absl import flags
import numpy as np
import rich.table

from experiments import allocator
from experiments import benchmark_retro
from experiments import benchmark_turns
from experiments import command
from experiments import progress
from retrieval import retriever as retriever_lib
from retro_jax import decode
from retro_jax import drawing
from retro_jax import model as model_lib
from retro_jax import samples

LENGTHS = (128, 512, 2048)
EIGHTHS = (1, 3, 5, 7)


class Decoders:
  """Ours at the benchmark's sizes, with and without the cache."""

  def __init__(self, config: model_lib.RetroConfig, num_neighbors: int):
    """Makes the model, with random parameters.

    Args:
      config: of the model.
      num_neighbors: of each chunk.
    """
    from flax import linen as nn
    import jax

    self._model = model_lib.Retro(config)
    tokens = np.ones((1, config.chunk_length), np.int32)
    init = jax.jit(self._model.init)
    self._params = nn.unbox(init(jax.random.key(0), tokens)['params'])
    self._rng = np.random.default_rng(0)
    self._shape = num_neighbors, config.neighbor_length

  def _retrieve(self, rows, k) -> retriever_lib.Retrieved:
    """Random neighbors."""
    shape = (len(rows), *self._shape)
    size = self._model.config.vocab_size
    tokens = self._rng.integers(1, size, shape, np.int32)
    ids = np.zeros(shape[:2], np.int64)
    titles = [[''] * k for _ in rows]
    mask = np.ones(shape, bool)
    return retriever_lib.Retrieved(
      ids, ids.astype(np.float32), tokens, mask, titles
    )

  def cached(self, length: int, most: int | None = None) -> list[float]:
    """Draws a text of `length` tokens, or its first `most`, with the cache.

    Returns:
      Seconds of each token; the first one's fill the cache.
    """
    m = self._model.config.chunk_length
    config = drawing.SamplingConfig(
      max_new_tokens=length - 1,
      num_neighbors=self._shape[0],
      context_chunks=max(2, -(-length // m)),
    )
    events = decode.stream(
      self._model, self._params, [[1]], config, retrieve=self._retrieve
    )
    seconds, last = [], time.perf_counter()
    for event in events:
      if isinstance(event, samples.Drawn):
        now = time.perf_counter()
        seconds.append(now - last)
        last = now
        if len(seconds) == most:
          break
    return seconds

  def whole(self, length: int) -> float:
    """Seconds of one token after so many, by the whole model over all."""
    config = self._model.config
    chunks = -(-length // config.chunk_length)
    buffer = {'tokens': np.ones((1, chunks * config.chunk_length), np.int32)}
    if length >= config.chunk_length:
      complete = length // config.chunk_length
      found = self._retrieve([None] * complete, self._shape[0])
      buffer['neighbors'] = found.tokens[None]
      buffer['neighbor_mask'] = found.mask[None]
    start = time.perf_counter()
    logits = _whole(
      self._model, self._params, buffer, np.array([length - 1], np.int32)
    )
    np.asarray(drawing.draw_rows(logits, **_draw_arguments()))
    return time.perf_counter() - start


@functools.cache
def _draw_arguments():
  import jax

  return {
    'config': drawing.SamplingConfig(),
    'key': jax.random.key(0),
    'step': 0,
    'numbers': np.zeros(1, np.int32),
  }


@functools.cache
def _compiled():
  import jax

  def last_logits(model, params, buffer, last):
    return model.apply({'params': params}, **buffer, last=last)[:, 0]

  return jax.jit(last_logits, static_argnames='model')


def _whole(*args):
  return _compiled()(*args)


def texts_before(length: int) -> list[int]:
  """Tokens before those that stand for all of a text of `length` tokens."""
  return [length * eighth // 8 for eighth in EIGHTHS]


def measure(
  config: model_lib.RetroConfig,
  num_neighbors: int,
  lengths: Sequence[int],
  repeats: int,
  baseline: benchmark_turns.Side | None = None,
) -> list[dict]:
  """Times all sides in turn.

  Args:
    config: of our model.
    num_neighbors: of each chunk.
    lengths: tokens of the texts.
    repeats: timed rounds, after an untimed one that compiles.
    baseline: with a step for every length of `texts_before`.

  Returns:
    For each length: what a token costs each side, in seconds, and for the cached
    one its first and last quarter and what fills the cache.
  """
  ours = Decoders(config, num_neighbors)
  rows = []
  for length in lengths:
    ours.cached(length, config.chunk_length + 2)
    befores = texts_before(length)
    for before in befores:
      ours.whole(before)
      if baseline:
        baseline.measure(str(before))
    texts, whole, theirs = [], [], []
    for _ in range(repeats):
      texts.append(ours.cached(length))
      for before in befores:
        whole.append(ours.whole(before))
        if baseline:
          theirs.append(baseline.measure(str(before))['wall_sec'])
    rows.append(_row(length, texts, whole, theirs))
  return rows


def _row(length, texts, whole, theirs) -> dict:
  steps = [step for text in texts for step in text[1:]]
  quarter = max(1, (length - 2) // 4)
  row = {
    'length': length,
    'cached': statistics.mean(sum(text) / len(text) for text in texts),
    'fill': statistics.median(text[0] for text in texts),
    'median_step': statistics.median(steps),
    'first_quarter': statistics.median(
      step for text in texts for step in text[1 : 1 + quarter]
    ),
    'last_quarter': statistics.median(
      step for text in texts for step in text[-quarter:]
    ),
    'whole': statistics.mean(whole),
  }
  row['whole_ratio'] = row['whole'] / row['cached']
  if theirs:
    row['baseline'] = statistics.mean(theirs)
    row['baseline_ratio'] = row['baseline'] / row['cached']
  return row


def show(rows: Sequence[dict]) -> rich.table.Table:
  """Tokens a second of every side, and what a cached token costs."""
  table = rich.table.Table(
    *('tokens', 'side', 'tokens/s', 'ms/token', 'times ours cached'),
    title='Sampling with retrieval, one text',
  )
  sides = (('cached', 'ours, cached'), ('whole', 'ours, whole model'))
  for row in rows:
    for name, side in (*sides, ('baseline', 'retro-pytorch generate')):
      if name in row:
        sec = row[name]
        ratio = f'{sec / row["cached"]:.1f}'
        cells = f'{1 / sec:,.1f}', f'{1e3 * sec:,.2f}', ratio
        table.add_row(f'{row["length"]:,}', side, *cells)
    quarters = (
      f'{1e3 * row[f"{part}_quarter"]:.2f}' for part in ('first', 'last')
    )
    table.add_row(
      '',
      'median step in the first, last quarter',
      '',
      ', '.join(quarters),
      '',
      end_section=True,
    )
  return table


def run(baseline_python: str, repeats: int, lengths: Sequence[int]) -> dict:
  """Times all sides at the sizes of benchmark_retro.

  Args:
    baseline_python: interpreter of the baseline, '' for ours alone.
    repeats: timed rounds.
    lengths: tokens of the texts.

  Returns:
    Sizes, threads, load and rows.
  """
  sizes = benchmark_retro.SIZES | {'batch': 1, 'length': max(lengths)}
  sizes['num_threads'] = len(os.sched_getaffinity(0))
  baseline = None
  if baseline_python:
    worker = pathlib.Path(__file__).with_name('benchmark_decode_worker.py')
    befores = sorted({n for length in lengths for n in texts_before(length)})
    asked = json.dumps({'sizes': sizes, 'lengths': befores})
    baseline = benchmark_turns.Side([baseline_python, str(worker), asked])
  rows = measure(
    benchmark_retro.retro_config(),
    sizes['num_neighbors'],
    lengths,
    repeats,
    baseline,
  )
  if baseline:
    baseline.close()
  return {'sizes': sizes, 'load_average': os.getloadavg()[0], 'rows': rows}


def main(argv: list[str]) -> None:
  """Measures, prints the table and writes the JSON."""
  del argv
  allocator.keep_memory()
  lengths = [int(n) for n in flags.FLAGS.lengths]
  if min(lengths) < 8:
    raise ValueError(f'--lengths {lengths}: expected 8 tokens or more.')
  results = run(flags.FLAGS.baseline_python, flags.FLAGS.repeats, lengths)
  progress.console().print(show(results['rows']))
  if flags.FLAGS.output:
    path = pathlib.Path(flags.FLAGS.output)
    path.write_text(json.dumps(results, indent=2) + '\n')


if __name__ == '__main__':
  flags.DEFINE_string(
    'baseline_python', '', 'Python with retro-pytorch 0.3.9 and faiss-cpu.'
  )
  flags.DEFINE_integer('repeats', 3, 'Timed rounds.', lower_bound=1)
  flags.DEFINE_list('lengths', [str(n) for n in LENGTHS], 'Tokens of texts.')
  flags.DEFINE_string('output', '', 'JSON file to write.')
  command.main_of_script(main)
