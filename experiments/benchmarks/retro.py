# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Speed of RETRO against retro-pytorch 0.3.9: same sizes, machine and run.

  python -m experiments.benchmarks.retro --baseline_python=VENV/bin/python

The baseline's environment holds torch, numpy<2, pyarrow<20 and
retro-pytorch==0.3.9; its model is called directly with neighbor tokens. The two
take turns, so that neither runs while the other is timed and both see the same
machine. A training step is the loss and all gradients. Without the flag only
ours is timed. `taskset -c 0` before the command times one core of each, which is
the steadier figure on a shared machine. Ours keeps its memory between steps
(`command.keep_memory`), as our training does; --baseline_keeps_memory gives the
baseline the same, by the environment.
"""

import json
import os
import pathlib
import time

from absl import flags
import numpy as np
import rich.table

from experiments.benchmarks import turns as benchmark_turns
from experiments.engine import command
from experiments.engine import progress
from retro_jax.nn import presets
from retro_jax.nn import retro as model

SIZES = {
  'vocab_size': 8192,
  'd_model': 256,
  'num_layers': 6,
  'cca_layers': (3, 6),
  'num_heads': 8,
  'head_dim': 32,
  'encoder_num_layers': 2,
  'chunk_length': 64,
  'neighbor_length': 128,
  'length': 512,
  'num_neighbors': 2,
  'batch': 4,
}
STEPS = ('forward', 'train')
KEEP_MEMORY = {
  'MALLOC_ARENA_MAX': '1',
  'MALLOC_MMAP_MAX_': '0',
  'MALLOC_TRIM_THRESHOLD_': '-1',
}


def retro_config(**overrides) -> model.RetroConfig:
  """Our model at the benchmark's sizes."""
  width = SIZES['d_model']
  fields = {
    'd_ff': 4 * width,
    'encoder_d_model': width,
    'encoder_d_ff': 4 * width,
    'encoder_num_heads': SIZES['num_heads'],
    'encoder_head_dim': SIZES['head_dim'],
  }
  not_ours = {'length', 'num_neighbors', 'batch'}
  fields |= {k: v for k, v in SIZES.items() if k not in not_ours}
  return model.RetroConfig(**(fields | overrides))


def build(config: model.RetroConfig):
  """Functions of one forward pass and one training step.

  Args:
    config: the model.

  Returns:
    name -> function without arguments that waits for its result.
  """
  from flax import linen as nn
  import jax
  import optax

  rng = np.random.default_rng(0)
  batch, length = SIZES['batch'], SIZES['length']
  tokens = rng.integers(1, config.vocab_size, (batch, length + 1), np.int32)
  shape = (
    batch,
    length // config.chunk_length,
    SIZES['num_neighbors'],
    config.neighbor_length,
  )
  neighbors = rng.integers(1, config.vocab_size, shape, np.int32)
  mask = neighbors != 0
  retro = model.Retro(config)
  params = nn.unbox(
    jax.jit(retro.init)(jax.random.key(0), tokens[:1, :64])['params']
  )
  arrays = jax.device_put((tokens, neighbors, mask))

  @jax.jit
  def forward(params, tokens, neighbors, mask):
    return retro.apply({'params': params}, tokens[:, :-1], neighbors, mask)

  @jax.jit
  @jax.value_and_grad
  def train(params, tokens, neighbors, mask):
    logits = forward(params, tokens, neighbors, mask)
    losses = optax.softmax_cross_entropy_with_integer_labels(
      logits, tokens[:, 1:]
    )
    return losses.mean()

  return {
    'forward': lambda: jax.block_until_ready(forward(params, *arrays)),
    'train': lambda: jax.block_until_ready(train(params, *arrays)),
  }


def _measure_ours(step) -> tuple[float, float]:
  wall, cpu = time.perf_counter(), time.process_time()
  step()
  return time.perf_counter() - wall, time.process_time() - cpu


def _summary(times: list[tuple[float, float]]) -> dict[str, float]:
  wall, cpu = np.transpose(times)
  return {
    'median_sec': float(np.median(wall)),
    'min_sec': float(wall.min()),
    'cpu_sec': float(np.median(cpu)),
    'tokens_per_sec': SIZES['batch'] * SIZES['length'] / float(np.median(wall)),
  }


def run(
  baseline_python: str, repeats: int, baseline_keeps_memory: bool = False
) -> dict:
  """Times both sides in turn.

  Args:
    baseline_python: interpreter of the baseline, '' for ours alone.
    repeats: timed rounds after two untimed ones.
    baseline_keeps_memory: whether its malloc keeps memory between steps, too.

  Returns:
    {step: {'ours': summary, 'baseline': summary, 'ratio': of medians, ...}}.
  """
  num_threads = len(os.sched_getaffinity(0))
  config = retro_config()
  sides = {'ours': build(config)}
  baseline = None
  if baseline_python:
    worker = pathlib.Path(__file__).with_name('retro_worker.py')
    sizes = json.dumps(SIZES | {'num_threads': num_threads})
    baseline = benchmark_turns.Side(
      [baseline_python, str(worker), sizes],
      KEEP_MEMORY if baseline_keeps_memory else None,
    )
  times = {}
  for i in range(-2, repeats):
    for step in STEPS:
      measured = {'ours': _measure_ours(sides['ours'][step])}
      if baseline:
        there = baseline.measure(step)
        measured['baseline'] = there['wall_sec'], there['cpu_sec']
      for side, value in measured.items() if i >= 0 else ():
        times.setdefault((step, side), []).append(value)
  if baseline:
    baseline.close()
  flops = presets.flops_per_token(
    config, SIZES['length'], SIZES['num_neighbors']
  )
  results = {}
  for step, factor in zip(STEPS, (1, 3), strict=True):
    result = {'ours': _summary(times[step, 'ours'])}
    rate = result['ours']['tokens_per_sec']
    result['ours']['gflops_per_sec'] = factor * flops * rate / 1e9
    if baseline:
      result['baseline'] = _summary(times[step, 'baseline'])
      for name in ('median_sec', 'min_sec', 'cpu_sec'):
        ratio = result['ours'][name] / result['baseline'][name]
        result[f'ratio_{name}'] = ratio
    results[step] = result
  return {
    'sizes': SIZES,
    'num_threads': num_threads,
    'baseline_keeps_memory': baseline_keeps_memory,
    'load_average': os.getloadavg()[0],
    'steps': results,
  }


def _print(results: dict) -> None:
  table = rich.table.Table(
    'step', 'side', 'median s', 'min s', 'CPU s', 'tokens/s', title='RETRO'
  )
  for step, result in results['steps'].items():
    for side in ('ours', 'baseline'):
      if side in result:
        s = result[side]
        seconds = (f'{s[k]:.3f}' for k in ('median_sec', 'min_sec', 'cpu_sec'))
        table.add_row(step, side, *seconds, f'{s["tokens_per_sec"]:,.0f}')
    if 'baseline' in result:
      names = ('ratio_median_sec', 'ratio_min_sec', 'ratio_cpu_sec')
      ratios = (f'{result[name]:.2f}' for name in names)
      table.add_row(step, 'ours / baseline', *ratios, end_section=True)
  progress.console().print(table)


def main(argv: list[str]) -> None:
  """Measures, prints the table and writes the JSON."""
  del argv
  command.keep_memory()
  results = run(
    flags.FLAGS.baseline_python,
    flags.FLAGS.repeats,
    flags.FLAGS.baseline_keeps_memory,
  )
  _print(results)
  if flags.FLAGS.output:
    path = pathlib.Path(flags.FLAGS.output)
    path.write_text(json.dumps(results, indent=2) + '\n')


if __name__ == '__main__':
  flags.DEFINE_string('baseline_python', '', 'Python with retro-pytorch 0.3.9.')
  flags.DEFINE_bool(
    'baseline_keeps_memory', False, 'Spare the baseline page faults, too.'
  )
  flags.DEFINE_integer('repeats', 10, 'Timed rounds.')
  flags.DEFINE_string('output', '', 'JSON file to write.')
  command.main_of_script(main)
