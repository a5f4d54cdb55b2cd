# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Speed of REALM against transformers 4.40.2: same sizes, machine and run.

  python -m experiments.benchmarks.realm --baseline_python=VENV/bin/python

A training step (scorer and encoder, the loss and all gradients, with dropout) against
RealmScorer and RealmKnowledgeAugEncoder, and embedding a batch's candidates against
RealmEmbedder; VENV also holds torch 2.13.0 and numpy<2. The two take turns, in
processes of their own, so that their peaks of memory can be told apart. Ours takes a
batch one example at a time, as it does in training with
--config.optimizer.accumulate_steps. Without the flag only ours is timed.
"""

from collections.abc import Callable
import contextlib
import json
import os
import pathlib
import sys
from typing import Any

from absl import flags
import numpy as np
import rich.table

from experiments.benchmarks import turns as benchmark_turns
from experiments.engine import command
from experiments.engine import progress

SIZES = {
  'vocab_size': 30_522,
  'd_model': 512,
  'num_layers': 4,
  'num_heads': 8,
  'd_ff': 2048,
  'num_candidates': 8,
  'query_length': 96,
  'block_length': 288,
  'max_targets': 10,
}
_MEASURES = ('wall_sec', 'cpu_sec', 'peak_gib')


def make_batch(sizes: dict[str, int]) -> dict[str, np.ndarray]:
  """Random rows without padding, as `model.Realm` takes them."""
  batch, count = sizes['batch'], sizes['num_candidates']
  query, block = sizes['query_length'], sizes['block_length']
  rng = np.random.default_rng(0)

  def ids(*shape):
    return rng.integers(1000, sizes['vocab_size'], shape, np.int32)

  targets = (batch, sizes['max_targets'])
  rows = {
    'query_ids': ids(batch, query),
    'query_mask': np.ones((batch, query), bool),
    'mlm_positions': np.sort(rng.integers(1, query, targets, np.int32)),
    'mlm_targets': ids(*targets),
    'mlm_mask': np.ones(targets, bool),
    'candidate_valid': np.ones((batch, count), bool),
  }
  for name, length in (('candidate', block), ('joint', query + block)):
    shape = (batch, count, length)
    rows[f'{name}_ids'] = ids(*shape)
    rows[f'{name}_mask'] = np.ones(shape, bool)
    rows[f'{name}_types'] = np.ones(shape, np.int32)
  return rows


def build(sizes: dict[str, int]) -> dict[str, Callable[[], Any]]:
  """Our steps.

  Args:
    sizes: SIZES, with batch and microbatches.

  Returns:
    'train', the loss and all gradients, and 'embed', the vectors of a batch's
    candidates; functions that wait for their results.
  """
  from flax import linen as nn
  import jax

  from experiments.engine import optimizers
  from realm_jax.nn import config as config_lib
  from realm_jax.nn import initialize
  from realm_jax.nn import realm as model
  from realm_jax.objectives import losses
  from retrieval.nn import bert

  names = ('vocab_size', 'd_model', 'num_layers', 'num_heads', 'd_ff')
  config = bert.BertConfig(
    activation='gelu_tanh', **{name: sizes[name] for name in names}
  )
  realm = model.Realm(config_lib.RealmConfig(embedder=config, encoder=config))
  init = jax.jit(initialize.random_params, static_argnums=1)
  params = nn.unbox(init(jax.random.key(0), realm.config))
  batch, key = jax.device_put(make_batch(sizes)), jax.random.key(1)
  length = sizes['block_length']
  candidates = [
    batch[f'candidate_{x}'].reshape(-1, length)
    for x in ('ids', 'mask', 'types')
  ]

  @jax.jit
  def train(params, batch, key):
    return optimizers.value_and_grad(
      lambda *arguments: losses.loss(realm, *arguments, True),
      params,
      batch,
      key,
      sizes['microbatches'],
    )

  @jax.jit
  def embed(params, ids, mask, types):
    return realm.apply(
      {'params': params}, ids, mask, types, method='embed_blocks'
    )

  return {
    'train': lambda: jax.block_until_ready(train(params, batch, key)),
    'embed': lambda: jax.block_until_ready(embed(params, *candidates)),
  }


def _start(baseline_python: str, sizes: dict[str, int]):
  """Name -> side."""
  text = json.dumps(sizes)
  module = ('-m', 'experiments.benchmarks.realm', f'--serve={text}')
  yield 'ours', benchmark_turns.Side([sys.executable, *module])
  if baseline_python:
    worker = pathlib.Path(__file__).with_name('realm_worker.py')
    command_line = [baseline_python, str(worker), text]
    yield 'transformers', benchmark_turns.Side(command_line)


def measure(
  baseline_python: str, batch: int, repeats: int, sizes: dict[str, int]
) -> list[dict]:
  """Times both sides in turn.

  Args:
    baseline_python: interpreter of the baseline, '' for ours alone.
    batch: examples of a training step.
    repeats: timed rounds after an untimed one.
    sizes: of the model and its rows.

  Returns:
    Of each step {'batch', 'step', side: {measure: value}, 'ratio': {measure:
    baseline / ours}}; medians of seconds, and the peak of memory.
  """
  sizes = sizes | {'batch': batch, 'microbatches': batch}
  sizes['num_threads'] = len(os.sched_getaffinity(0))
  times = {}
  with contextlib.ExitStack() as stack:
    sides = {
      name: stack.enter_context(contextlib.closing(side))
      for name, side in _start(baseline_python, sizes)
    }
    # The peaks of embedding first: they are the smaller ones.
    for step in ('embed', 'train'):
      for i in range(-1, repeats):
        for name, side in sides.items():
          found = side.measure(step)
          if i >= 0:
            row = [found[k] for k in _MEASURES]
            times.setdefault((step, name), []).append(row)
  results = {}
  for (step, name), rows in times.items():
    wall, cpu, peak = np.transpose(rows)
    values = map(float, (np.median(wall), np.median(cpu), peak.max()))
    result = results.setdefault(step, {'batch': batch, 'step': step})
    result[name] = dict(zip(_MEASURES, values, strict=True))
  for result in results.values():
    if baseline_python:
      theirs, ours = result['transformers'], result['ours']
      result['ratio'] = {k: theirs[k] / ours[k] for k in _MEASURES}
  return list(results.values())


def _print(results: list[dict], sizes: dict[str, int]) -> None:
  table = rich.table.Table(
    *('step', 'batch', 'side', 'seconds', 'CPU s', 'peak GiB', 'blocks/s')
  )
  for result in results:
    for name in ('ours', 'transformers', 'ratio'):
      if name not in result:
        continue
      cells = [f'{result[name][k]:.2f}' for k in _MEASURES]
      if result['step'] == 'embed' and name != 'ratio':
        blocks = result['batch'] * sizes['num_candidates']
        cells.append(f'{blocks / result[name]["wall_sec"]:.1f}')
      start = (result['step'], str(result['batch']), name)
      table.add_row(*start, *cells, end_section=name == 'ratio')
  progress.console().print(table)


def main(argv: list[str]) -> None:
  """Measures both sides, prints the table and writes the JSON."""
  del argv
  if flags.FLAGS.serve:
    command.keep_memory()
    benchmark_turns.serve(build(json.loads(flags.FLAGS.serve)))
    return
  python, repeats = flags.FLAGS.baseline_python, flags.FLAGS.repeats
  results = []
  for batch in flags.FLAGS.batch:
    found = measure(python, batch, repeats, SIZES)
    _print(found, SIZES)  # at once: a larger batch may take long, or be killed
    results += found
  if flags.FLAGS.output:
    found = {
      'sizes': SIZES,
      'load_average': os.getloadavg()[0],
      'steps': results,
    }
    text = json.dumps(found, indent=2) + '\n'
    pathlib.Path(flags.FLAGS.output).write_text(text)


if __name__ == '__main__':
  flags.DEFINE_string('baseline_python', '', 'Python with transformers 4.40.2.')
  flags.DEFINE_multi_integer('batch', [1, 4], 'Examples of a step.')
  flags.DEFINE_integer('repeats', 5, 'Timed rounds.', lower_bound=1)
  flags.DEFINE_string('output', '', 'JSON file to write.')
  flags.DEFINE_string('serve', '', 'Sizes; be our side of a running benchmark.')
  command.main_of_script(main)
