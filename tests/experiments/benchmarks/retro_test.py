# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of RETRO at sizes that say nothing of speed."""

import pytest

from experiments.benchmarks import retro as benchmark_retro
from retro_jax.nn import presets

SIZES = benchmark_retro.SIZES | {
  'vocab_size': 50, 'd_model': 16, 'num_layers': 1, 'cca_layers': (1,),
  'num_heads': 2, 'head_dim': 8, 'encoder_num_layers': 1, 'chunk_length': 4,
  'neighbor_length': 8, 'length': 8, 'batch': 2,
}  # fmt: skip


@pytest.mark.slow
def test_steps_of_ours():
  results = benchmark_retro.measure('', 1, SIZES)
  assert list(results) == ['forward', 'train']
  flops = presets.flops_per_token(benchmark_retro.retro_config(SIZES), 8, 2)
  for step, factor in (('forward', 1), ('train', 3)):
    ours = results[step]['ours']
    assert list(results[step]) == ['ours']
    rate = ours['gflops_per_sec'] * 1e9 / (factor * flops)
    assert abs(rate * ours['wall_sec'] - 2 * 8) < 1e-6 * 2 * 8
