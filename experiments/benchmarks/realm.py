# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Time REALM against transformers 4.40.2: same sizes, machine and run.

  python -m experiments.benchmarks.realm --baseline_python=VENV/bin/python

The training step (scorer and encoder, the loss and all gradients, with dropout)
is compared with RealmScorer and RealmKnowledgeAugEncoder; embedding a batch's
candidates with RealmEmbedder. VENV also holds torch 2.13.0 and numpy<2. Both
sides take turns in processes of their own, so that their peaks of memory stay
apart. Our side processes a batch one example at a time, as training does with
--config.optimizer.accumulate_steps. Without the flag only ours is timed.
"""

from collections.abc import Callable
from typing import Any

from absl import flags
from flax import linen as nn
import jax
import numpy as np

from experiments.benchmarks import comparison
from experiments.engine import command, optimizers
from realm_jax.nn import config as config_lib, initialize, realm as model
from realm_jax.objectives import losses
from retrieval.nn import bert

ENCODER = {
  'vocab_size': 30_522,
  'd_model': 512,
  'num_layers': 4,
  'num_heads': 8,
  'd_ff': 2048,
}
SIZES = ENCODER | {
  'num_candidates': 8,
  'query_length': 96,
  'block_length': 288,
  'max_targets': 10,
}
PEER = 'transformers'


def make_batch(sizes: dict[str, int]) -> dict[str, np.ndarray]:
  """Return random rows without padding for `realm.Realm`."""
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


def bert_config(sizes: dict[str, int]) -> bert.BertConfig:
  """Return an encoder of the benchmark's sizes."""
  fields = {name: sizes[name] for name in ENCODER}
  return bert.BertConfig(activation='gelu_tanh', **fields)


def build(sizes: dict[str, int]) -> dict[str, Callable[[], Any]]:
  """Return our steps, functions that wait for their results.

  Returns:
    'train', the loss and all gradients, and 'embed', the vectors of a batch's
    candidates.
  """
  config = bert_config(sizes)
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


def measure(
  baseline_python: str, batch: int, repeats: int, sizes: dict[str, int]
) -> comparison.Results:
  """Time both sides in turn, as `comparison.measure` does."""
  return comparison.measure(
    'experiments.benchmarks.realm',
    sizes | {'batch': batch, 'microbatches': batch},
    baseline_python,
    {PEER: ('realm_worker.py', 'realm')},
    # Embedding first: its peak of memory is the smaller one.
    {'embed': True, 'train': True},
    repeats,
  )


def main(argv: list[str]) -> None:
  """Measure both sides, print the tables and write the JSON file."""
  del argv
  options = flags.FLAGS
  if comparison.serve(build):
    return
  results = {}
  for batch in options.batch:
    found = measure(options.baseline_python, batch, options.repeats, SIZES)
    rates = {'embed': (batch * SIZES['num_candidates'], 'blocks')}
    # Printed at once: a larger batch may take long, or be killed.
    comparison.show(found, f'REALM, batch {batch}', rates)
    results[batch] = found
  comparison.write({'sizes': SIZES, 'batches': results})


if __name__ == '__main__':
  comparison.define_flags('transformers 4.40.2', 5)
  flags.DEFINE_multi_integer('batch', [1, 4], 'Examples of a step.')
  command.main_of_script(main)
