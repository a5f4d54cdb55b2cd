# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Speed of a REALM training step against transformers 4.40.2: same sizes and run.

  python -m experiments.benchmark_realm --baseline_python=VENV/bin/python

Scorer and encoder, the loss and all gradients, against RealmScorer and
RealmKnowledgeAugEncoder (VENV also holds torch 2.13.0 and numpy<2), with dropout.
The two take turns, in processes of their own, so that their peaks of memory can be
told apart. Ours takes a batch one example at a time, as it does in training with
--config.optimizer.accumulate_steps. Without the flag only ours is timed.
"""

import json
import os
import pathlib
import sys

from absl import flags
import numpy as np
import rich.table

from experiments import allocator
from experiments import benchmark_turns
from experiments import command
from experiments import progress

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


def build(sizes: dict[str, int]):
  """A function of one training step: the loss and all gradients.

  Args:
    sizes: SIZES, with batch and microbatches.

  Returns:
    It; it waits for its result.
  """
  from flax import linen as nn
  import jax

  from experiments import optimizers
  from realm_jax import config as config_lib
  from realm_jax import initialize
  from realm_jax import losses
  from realm_jax import model
  from retrieval import bert

  names = ('vocab_size', 'd_model', 'num_layers', 'num_heads', 'd_ff')
  config = bert.BertConfig(
    activation='gelu_tanh', **{name: sizes[name] for name in names}
  )
  realm = model.Realm(config_lib.RealmConfig(embedder=config, encoder=config))
  batch, count = sizes['batch'], sizes['num_candidates']
  query, block = sizes['query_length'], sizes['block_length']
  rng = np.random.default_rng(0)

  def ids(*shape):
    return rng.integers(1000, sizes['vocab_size'], shape, np.int32)

  def rows(*shape):
    ones = np.ones(shape, np.int32)
    return {'ids': ids(*shape), 'mask': ones.astype(bool), 'types': ones}

  targets = (batch, sizes['max_targets'])
  shapes = {'candidate': block, 'joint': query + block}
  data = {
    f'{name}_{field}': value
    for name, length in shapes.items()
    for field, value in rows(batch, count, length).items()
  } | {
    'query_ids': ids(batch, query),
    'query_mask': np.ones((batch, query), bool),
    'mlm_positions': np.sort(rng.integers(1, query, targets, np.int32)),
    'mlm_targets': ids(*targets),
    'mlm_mask': np.ones(targets, bool),
    'candidate_valid': np.ones((batch, count), bool),
  }
  params = nn.unbox(
    jax.jit(initialize.random_params, static_argnums=1)(
      jax.random.key(0), realm.config
    )
  )
  data = jax.device_put(data)

  def loss(params, batch, key):
    return losses.loss(realm, params, batch, key, True)

  @jax.jit
  def gradients(params, batch, key):
    return optimizers.value_and_grad(
      loss, params, batch, key, sizes['microbatches']
    )

  return lambda: jax.block_until_ready(
    gradients(params, data, jax.random.key(1))
  )


def _serve(sizes: dict[str, int]) -> None:
  """Our side."""
  allocator.keep_memory()
  benchmark_turns.serve({'train': build(sizes)})


def measure_step(
  baseline_python: str, batch: int, repeats: int, sizes: dict[str, int]
) -> dict:
  """Times a training step of both sides in turn.

  Args:
    baseline_python: interpreter of the baseline, '' for ours alone.
    batch: examples of a step.
    repeats: timed rounds after an untimed one.
    sizes: of the model and its rows.

  Returns:
    {'batch': ..., side: {measure: value}, 'ratio': {measure: baseline / ours}};
    medians of seconds, and the peak of memory.
  """
  sizes = sizes | {'batch': batch, 'microbatches': batch}
  sizes['num_threads'] = len(os.sched_getaffinity(0))
  ours = ('-m', 'experiments.benchmark_realm', f'--serve={json.dumps(sizes)}')
  sides = {'ours': benchmark_turns.Side([sys.executable, *ours])}
  if baseline_python:
    worker = pathlib.Path(__file__).with_name('benchmark_realm_worker.py')
    theirs = [baseline_python, str(worker), json.dumps(sizes)]
    sides['transformers'] = benchmark_turns.Side(theirs)
  times = {name: [] for name in sides}
  for i in range(-1, repeats):
    for name, side in sides.items():
      measured = side.measure('train')
      if i >= 0:
        times[name].append([measured[k] for k in _MEASURES])
  result = {'batch': batch}
  for name, side in sides.items():
    side.close()
    wall, cpu, peak = np.transpose(times[name])
    found = (np.median(wall), np.median(cpu), peak.max())
    result[name] = dict(zip(_MEASURES, map(float, found), strict=True))
  if baseline_python:
    result['ratio'] = {
      k: result['transformers'][k] / result['ours'][k] for k in _MEASURES
    }
  return result


def _print_steps(results: list[dict]) -> None:
  table = rich.table.Table(
    'batch', 'side', 's a step', 'CPU s', 'peak GiB', title='Training step'
  )
  for result in results:
    for name in ('ours', 'transformers', 'ratio'):
      if name in result:
        cells = (f'{result[name][k]:.2f}' for k in _MEASURES)
        table.add_row(
          str(result['batch']), name, *cells, end_section=name == 'ratio'
        )
  progress.console().print(table)


def main(argv: list[str]) -> None:
  """Measures both sides, prints the table and writes the JSON."""
  del argv
  if flags.FLAGS.serve:
    _serve(json.loads(flags.FLAGS.serve))
    return
  results = [
    measure_step(
      flags.FLAGS.baseline_python, int(batch), flags.FLAGS.repeats, SIZES
    )
    for batch in flags.FLAGS.batch
  ]
  _print_steps(results)
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
  flags.DEFINE_list('batch', ['1', '4'], 'Examples of a step.')
  flags.DEFINE_integer('repeats', 5, 'Timed rounds.')
  flags.DEFINE_string('output', '', 'JSON file to write.')
  flags.DEFINE_string('serve', '', 'Sizes; be our side of a running benchmark.')
  command.main_of_script(main)
