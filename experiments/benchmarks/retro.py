# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Time RETRO against retro-pytorch 0.3.9: same sizes, machine and run.

  python -m experiments.benchmarks.retro --baseline_python=VENV/bin/python

The baseline's environment holds torch, numpy<2, pyarrow<20 and
retro-pytorch==0.3.9. The benchmark calls the baseline's model with neighbor
tokens. Both sides take turns. A training step is the loss and all gradients.
Without the flag only ours is timed. `taskset -c 0` before the command times one
core of each side, which is steadier on a shared machine. Our process keeps
freed memory between steps, as our training does; --baseline_keeps_memory gives
the baseline the same.
"""

from absl import flags
from flax import linen as nn
import jax
import numpy as np
import optax

from experiments.benchmarks import comparison
from experiments.engine import command
from retro_jax.nn import presets, retro as model

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
PEER = 'retro-pytorch'
STEPS = ('forward', 'train')
KEEP_MEMORY = {
  'MALLOC_ARENA_MAX': '1',
  'MALLOC_MMAP_MAX_': '0',
  'MALLOC_TRIM_THRESHOLD_': '-1',
}


def retro_config(sizes=SIZES) -> model.RetroConfig:
  """Return our model of the benchmark's sizes."""
  width = sizes['d_model']
  not_ours = {'length', 'num_neighbors', 'batch', 'num_threads', 'cca_layers'}
  return model.RetroConfig(
    cca_layers=tuple(sizes['cca_layers']),
    d_ff=4 * width,
    encoder_d_model=width,
    encoder_d_ff=4 * width,
    encoder_num_heads=sizes['num_heads'],
    encoder_head_dim=sizes['head_dim'],
    **{k: v for k, v in sizes.items() if k not in not_ours},
  )


def build(sizes):
  """Return our 'forward' and 'train', functions that wait for their results."""
  config = retro_config(sizes)
  rng = np.random.default_rng(0)
  batch, length = sizes['batch'], sizes['length']
  tokens = rng.integers(1, config.vocab_size, (batch, length + 1), np.int32)
  chunks = length // config.chunk_length
  shape = (batch, chunks, sizes['num_neighbors'], config.neighbor_length)
  neighbors = rng.integers(1, config.vocab_size, shape, np.int32)
  retro = model.Retro(config)
  init = jax.jit(retro.init)(
    jax.random.key(0), tokens[:1, : config.chunk_length]
  )
  params = nn.unbox(init['params'])
  arrays = jax.device_put((tokens, neighbors, neighbors != 0))

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


def measure(
  baseline_python: str,
  repeats: int,
  sizes=SIZES,
  baseline_keeps_memory: bool = False,
) -> comparison.Results:
  """Time both sides in turn, as `comparison.measure` does.

  Our side also gets gflops_per_sec. The baseline's malloc keeps freed memory if
  `baseline_keeps_memory`.
  """
  results = comparison.measure(
    'experiments.benchmarks.retro',
    sizes,
    baseline_python,
    {PEER: ('retro_worker.py', 'steps')},
    dict.fromkeys(STEPS, True),
    repeats,
    warmup=2,
    env=KEEP_MEMORY if baseline_keeps_memory else None,
  )
  flops = presets.flops_per_token(
    retro_config(sizes), sizes['length'], sizes['num_neighbors']
  )
  for step, factor in zip(STEPS, (1, 3), strict=True):
    ours = results[step][comparison.OURS]
    rate = sizes['batch'] * sizes['length'] / ours['wall_sec']
    ours['gflops_per_sec'] = factor * flops * rate / 1e9
  return results


def main(argv: list[str]) -> None:
  """Measure, print the table and write the JSON file."""
  del argv
  options = flags.FLAGS
  if comparison.serve(build):
    return
  results = measure(
    options.baseline_python,
    options.repeats,
    baseline_keeps_memory=options.baseline_keeps_memory,
  )
  rate = SIZES['batch'] * SIZES['length'], 'tokens'
  comparison.show(results, 'RETRO', dict.fromkeys(STEPS, rate))
  kept = options.baseline_keeps_memory
  comparison.write(
    {'sizes': SIZES, 'baseline_keeps_memory': kept, 'steps': results}
  )


if __name__ == '__main__':
  comparison.define_flags('retro-pytorch 0.3.9', 10)
  flags.DEFINE_bool(
    'baseline_keeps_memory', False, 'Let the baseline keep freed memory, too.'
  )
  command.main_of_script(main)
