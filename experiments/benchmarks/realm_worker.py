# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The other side of benchmark_realm: Hugging Face's port, transformers 4.40.2.

Run by the baseline's interpreter; depends on nothing of this project but its
neighbor benchmark_turns.
"""

import json
import sys


def build(sizes: dict[str, int]):
  """The other side's steps.

  Args:
    sizes: as benchmark_realm.SIZES, with batch and num_threads.

  Returns:
    'train' and 'embed', functions without arguments.
  """
  import torch
  from transformers.models import realm

  torch.manual_seed(0)
  torch.set_num_threads(sizes['num_threads'])
  batch, count = sizes['batch'], sizes['num_candidates']
  query, block = sizes['query_length'], sizes['block_length']
  config = realm.RealmConfig(
    vocab_size=sizes['vocab_size'],
    hidden_size=sizes['d_model'],
    num_hidden_layers=sizes['num_layers'],
    num_attention_heads=sizes['num_heads'],
    intermediate_size=sizes['d_ff'],
    num_candidates=count,
  )
  scorer = realm.RealmScorer(config).train()
  encoder = realm.RealmKnowledgeAugEncoder(config).train()
  params = [*scorer.parameters(), *encoder.parameters()]

  def ids(*shape):
    return torch.randint(1000, sizes['vocab_size'], shape)

  queries, blocks = ids(batch, query), ids(batch, count, block)
  joint, labels = ids(batch, count, query + block), ids(batch, query + block)
  masked = torch.zeros(batch, query + block)
  masked[:, 5 : 5 + sizes['max_targets']] = 1

  def train():
    for param in params:
      param.grad = None
    scores = scorer(
      queries,
      torch.ones_like(queries),
      torch.zeros_like(queries),
      candidate_input_ids=blocks,
      candidate_attention_mask=torch.ones_like(blocks),
      candidate_token_type_ids=torch.ones_like(blocks),
    ).relevance_score
    encoder(
      joint,
      torch.ones_like(joint),
      torch.ones_like(joint),
      relevance_score=scores,
      labels=labels,
      mlm_mask=masked,
    ).loss.backward()

  def embed():
    scorer.eval()
    with torch.no_grad():
      scorer.embedder(blocks.reshape(-1, block))
    scorer.train()

  return {'train': train, 'embed': embed}


if __name__ == '__main__':
  import benchmark_turns  # beside this script

  benchmark_turns.serve(build(json.loads(sys.argv[1])))
