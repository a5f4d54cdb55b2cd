# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Time sampling: with a cache, by the whole model, and by retro-pytorch 0.3.9.

  python -m experiments.benchmarks.decode --baseline_python=VENV/bin/python

Samples texts of 128, 512 and 2048 tokens from a prompt of one token; finding the
neighbors of a chunk costs nothing. Our cached decoding (retro_jax.decoding.decode)
draws whole texts. A side without a cache pays for a token by the length of the text
before it: our whole model and the baseline's own `generate` draw one token after
texts of an eighth, three, five and seven eighths of each length, and the mean is the
cost of a token. Sides take turns. Without the flag only ours are timed.
The baseline's environment is that of the benchmark `retro`, and faiss-cpu.
"""

from collections.abc import Sequence
import contextlib
import functools
import time

from absl import flags
from flax import linen as nn
import jax
import numpy as np

from experiments.benchmarks import comparison, retro, turns
from experiments.engine import command, reports
from retrieval.index import retriever as retriever_lib
from retro_jax.data import samples
from retro_jax.decoding import decode, drawing
from retro_jax.nn import retro as model_lib

LENGTHS = (128, 512, 2048)
EIGHTHS = (1, 3, 5, 7)


class Decoders:
  """Our model at the benchmark's sizes, with and without the cache."""

  def __init__(self, config: model_lib.RetroConfig, num_neighbors: int):
    """Make the model with random parameters; a chunk has `num_neighbors`."""
    self._model = model_lib.Retro(config)
    tokens = np.ones((1, config.chunk_length), np.int32)
    init = jax.jit(self._model.init)
    self._params = nn.unbox(init(jax.random.key(0), tokens)['params'])
    self._rng = np.random.default_rng(0)
    self._shape = num_neighbors, config.neighbor_length
    self._draw = functools.partial(
      drawing.draw_rows,
      drawing.of_draws(drawing.SamplingConfig()),
      jax.random.key(0),
      0,
      np.zeros(1, np.int32),
    )

  def _retrieve(self, rows, k) -> retriever_lib.Retrieved:
    """Return random neighbors."""
    shape = (len(rows), *self._shape)
    size = self._model.config.vocab_size
    tokens = self._rng.integers(1, size, shape, np.int32)
    ids = np.zeros(shape[:2], np.int64)
    titles = [[''] * k for _ in rows]
    mask = np.ones(shape, bool)
    return retriever_lib.Retrieved(
      ids, ids.astype(np.float32), tokens, mask, titles
    )

  def cached(
    self, length: int, most: int | None = None
  ) -> list[tuple[float, float]]:
    """Draw a text of `length` tokens, or its first `most`, with the cache.

    Returns:
      Seconds and CPU seconds of each token; the first entry fills the cache.
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
    times = [_now()]
    for event in events:
      if isinstance(event, samples.Drawn):
        times.append(_now())
        if len(times) - 1 == most:
          break
    return [tuple(x) for x in np.diff(times, axis=0).tolist()]

  def whole(self, length: int) -> tuple[float, float]:
    """Return seconds and CPU seconds of one token after `length`, uncached."""
    config = self._model.config
    chunks = -(-length // config.chunk_length)
    buffer = {'tokens': np.ones((1, chunks * config.chunk_length), np.int32)}
    if length >= config.chunk_length:
      complete = length // config.chunk_length
      found = self._retrieve([None] * complete, self._shape[0])
      buffer['neighbors'] = found.tokens[None]
      buffer['neighbor_mask'] = found.mask[None]
    start = _now()
    logits = _last_logits(
      self._model, self._params, buffer, np.array([length - 1], np.int32)
    )
    np.asarray(self._draw(logits))
    return tuple(np.subtract(_now(), start).tolist())


def _now() -> tuple[float, float]:
  return time.perf_counter(), time.process_time()


@functools.partial(jax.jit, static_argnames='model')
def _last_logits(model, params, buffer, last):
  return model.apply({'params': params}, **buffer, last=last)[:, 0]


def texts_before(length: int) -> list[int]:
  """Return the lengths before the tokens that represent a whole text."""
  return [length * eighth // 8 for eighth in EIGHTHS]


def measure(
  config: model_lib.RetroConfig,
  num_neighbors: int,
  lengths: Sequence[int],
  repeats: int,
  baseline: turns.Side | None = None,
) -> list[dict]:
  """Time all sides in turn.

  Args:
    repeats: timed rounds, after an untimed one that compiles.
    baseline: with a step for every length of `texts_before`.

  Returns:
    For each length and side ('cached', 'whole', 'baseline'): wall_sec and cpu_sec
    of a token and their ratios to 'cached'. For 'cached' also the CPU seconds of
    filling the cache, and the median step in each quarter of the text.
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
          there = baseline.measure(str(before))
          theirs.append((there['wall_sec'], there['cpu_sec']))
    rows.append(_row(length, texts, whole, theirs))
  return rows


def _row(length, texts, whole, theirs) -> dict:
  sides = {
    'cached': [step for text in texts for step in text],
    'whole': whole,
    'baseline': theirs,
  }
  row = {'length': length}
  for side, times in sides.items():
    if times:
      wall, cpu = np.mean(times, axis=0).tolist()
      row[side] = {'wall_sec': wall, 'cpu_sec': cpu}
      row[side]['ratio_wall'] = wall / row['cached']['wall_sec']
      row[side]['ratio_cpu'] = cpu / row['cached']['cpu_sec']
  cpu = np.array(texts)[:, :, 1]
  quarters = np.array_split(cpu[:, 1:], 4, axis=1)
  row['fill_cpu_sec'] = float(np.median(cpu[:, 0]))
  row['step_cpu_sec'] = [float(np.median(part)) for part in quarters]
  return row


def show(rows: Sequence[dict]) -> None:
  """Print the table of a token's cost on every side."""
  heads = ('tokens', 'side', 'tokens/s', 'ms', 'CPU ms', 'x cached', 'x CPU')
  lines = []
  sides = {
    'cached': 'ours, cached',
    'whole': 'ours, whole model',
    'baseline': 'retro-pytorch generate',
  }
  for row in rows:
    for side in (side for side in sides if side in row):
      x = row[side]
      cells = (
        f'{1 / x["wall_sec"]:,.1f}',
        f'{1e3 * x["wall_sec"]:,.2f}',
        f'{1e3 * x["cpu_sec"]:,.2f}',
        f'{x["ratio_wall"]:.1f}',
        f'{x["ratio_cpu"]:.1f}',
      )
      lines.append((f'{row["length"]:,}', sides[side], *cells))
    steps = ', '.join(f'{1e3 * x:.2f}' for x in row['step_cpu_sec'])
    lines.append(('', 'median step, by quarters', '', '', steps, '', ''))
  title = 'Sampling with retrieval, one text: what a token costs'
  reports.print_table(heads, lines, title)


def main(argv: list[str]) -> None:
  """Measure at the sizes of the benchmark `retro`, print the table, write it."""
  del argv
  options = flags.FLAGS
  lengths = [int(n) for n in options.lengths]
  if min(lengths) < 8:
    raise ValueError(f'--lengths {lengths}: expected 8 tokens or more.')
  sizes = retro.SIZES | {'batch': 1, 'length': max(lengths)}
  befores = sorted({n for length in lengths for n in texts_before(length)})
  config, k = retro.retro_config(), sizes['num_neighbors']
  with contextlib.ExitStack() as stack:
    baseline = None
    if options.baseline_python:
      given = sizes | {'befores': befores}
      worker = 'retro_worker.py', 'decode'
      side = comparison.start_peer(given, options.baseline_python, worker)
      baseline = stack.enter_context(side)
    rows = measure(config, k, lengths, options.repeats, baseline)
  show(rows)
  comparison.write({'sizes': sizes, 'rows': rows})


if __name__ == '__main__':
  comparison.define_flags('retro-pytorch 0.3.9 and faiss-cpu', 3)
  flags.DEFINE_list('lengths', [str(n) for n in LENGTHS], 'Tokens of texts.')
  command.main_of_script(main)
