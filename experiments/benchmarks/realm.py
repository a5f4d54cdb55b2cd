# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A step of REALM against transformers 4.40.2: loss and all gradients, with dropout.

Ours takes a batch one example at a time, as training does with
--config.optimizer.accumulate_steps. The peer's interpreter imports this module, too.
"""

import numpy as np

_BERT = {
  'vocab_size': 30_522, 'd_model': 512, 'num_layers': 4, 'num_heads': 8, 'd_ff': 2048,
}  # fmt: skip
SIZES = _BERT | {
  'batch': 1, 'num_candidates': 8, 'query_length': 96, 'block_length': 288,
  'max_targets': 10,
}  # fmt: skip
PEERS = ('transformers',)


def _ids(sizes):
  """Return random queries, candidates, and both joined, without padding."""
  rng, b, k = np.random.default_rng(0), sizes['batch'], sizes['num_candidates']
  query, block = sizes['query_length'], sizes['block_length']
  shapes = (b, query), (b, k, block), (b, k, query + block)
  return [rng.integers(1000, sizes['vocab_size'], x) for x in shapes]


def _ours(sizes):
  from flax import linen as nn
  import jax

  from experiments.engine import optimizers
  from realm_jax.nn import config, initialize, realm
  from realm_jax.objectives import losses
  from retrieval.nn import bert

  fields = {name: sizes[name] for name in _BERT}
  encoder = bert.BertConfig(activation='gelu_tanh', **fields)
  model = realm.Realm(config.RealmConfig(embedder=encoder, encoder=encoder))
  init = jax.jit(initialize.random_params, static_argnums=1)
  params = nn.unbox(init(jax.random.key(0), model.config))
  query, *both = (x.astype(np.int32) for x in _ids(sizes))
  rows = {'query_ids': query, 'query_mask': query > 0}
  for name, ids in zip(('candidate', 'joint'), both, strict=True):
    kinds = {'ids': ids, 'mask': ids > 0, 'types': np.ones_like(ids)}
    rows |= {f'{name}_{kind}': x for kind, x in kinds.items()}
  rows['candidate_valid'] = rows['candidate_mask'][..., 0]
  targets = np.arange(1, 1 + sizes['max_targets'], dtype=np.int32)
  targets = np.repeat(targets[None], sizes['batch'], 0)
  rows |= {'mlm_positions': targets, 'mlm_targets': targets}
  batch = jax.device_put(rows | {'mlm_mask': targets > 0})

  @jax.jit
  def train(params, batch):
    def loss(*arguments):
      return losses.loss(model, *arguments, True)

    key, parts = jax.random.key(1), sizes['batch']
    return optimizers.value_and_grad(loss, params, batch, key, parts)

  return {'train': lambda: jax.block_until_ready(train(params, batch))}


def _theirs(sizes):
  import torch
  from transformers.models import realm

  torch.set_num_threads(sizes['num_threads'])
  names = {
    'vocab_size': 'vocab_size', 'hidden_size': 'd_model', 'intermediate_size': 'd_ff',
    'num_hidden_layers': 'num_layers', 'num_attention_heads': 'num_heads',
    'num_candidates': 'num_candidates',
  }  # fmt: skip
  config = realm.RealmConfig(**{k: sizes[x] for k, x in names.items()})
  scorer = realm.RealmScorer(config).train()
  encoder = realm.RealmKnowledgeAugEncoder(config).train()
  queries, blocks, joint = map(torch.tensor, _ids(sizes))
  labels, masked = joint[:, 0], torch.zeros(joint[:, 0].shape)
  masked[:, 5 : 5 + sizes['max_targets']] = 1
  ones, zeros = torch.ones_like, torch.zeros_like

  def train():
    for param in (*scorer.parameters(), *encoder.parameters()):
      param.grad = None
    masks = 'candidate_attention_mask', 'candidate_token_type_ids'
    inputs = dict.fromkeys(masks, ones(blocks))
    inputs['candidate_input_ids'] = blocks
    scored = scorer(queries, ones(queries), zeros(queries), **inputs)
    inputs = {'relevance_score': scored.relevance_score, 'mlm_mask': masked}
    inputs |= {'labels': labels, 'attention_mask': ones(joint)}
    encoder(joint, token_type_ids=ones(joint), **inputs).loss.backward()

  return {'train': train}


SIDES = {'ours': _ours, 'transformers': _theirs}
