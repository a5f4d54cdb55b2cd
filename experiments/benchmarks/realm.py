# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM against transformers 4.40.2: a training step, and embedding blocks.

The step (scorer and encoder, the loss and all gradients, with dropout) is compared
with RealmScorer and RealmKnowledgeAugEncoder; embedding a batch's candidates with
RealmEmbedder. Our side processes a batch one example at a time, as training does with
--config.optimizer.accumulate_steps.
"""

from flax import linen as nn
import jax
import numpy as np

from experiments.benchmarks import turns
from experiments.engine import optimizers
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


def _batch(sizes: turns.Sizes) -> dict[str, np.ndarray]:
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


def build(side: str, sizes: turns.Sizes) -> turns.Steps:
  """Return our 'embed' and 'train', functions that wait for their results."""
  del side
  fields = {name: sizes[name] for name in ENCODER}
  config = bert.BertConfig(activation='gelu_tanh', **fields)
  realm = model.Realm(config_lib.RealmConfig(embedder=config, encoder=config))
  init = jax.jit(initialize.random_params, static_argnums=1)
  params = nn.unbox(init(jax.random.key(0), realm.config))
  batch, key = jax.device_put(_batch(sizes)), jax.random.key(1)
  candidates = [
    batch[f'candidate_{x}'].reshape(-1, sizes['block_length'])
    for x in ('ids', 'mask', 'types')
  ]

  @jax.jit
  def train(params, batch, key):
    return optimizers.value_and_grad(
      lambda *arguments: losses.loss(realm, *arguments, True),
      params,
      batch,
      key,
      sizes['batch'],
    )

  @jax.jit
  def embed(params, ids, mask, types):
    return realm.apply(
      {'params': params}, ids, mask, types, method='embed_blocks'
    )

  def run_embed():
    jax.block_until_ready(embed(params, *candidates))
    return {'items': len(candidates[0])}

  # Embedding first: its peak of memory is the smaller one.
  return {
    'embed': run_embed,
    'train': lambda: jax.block_until_ready(train(params, batch, key)),
  }


TASKS = {
  'realm': turns.Task(
    build=build,
    sizes=ENCODER
    | {
      'num_candidates': 8,
      'query_length': 96,
      'block_length': 288,
      'max_targets': 10,
      'batch': 1,
    },
    sides=('ours', 'transformers'),
    peers={'transformers': 'realm_worker'},
  )
}
