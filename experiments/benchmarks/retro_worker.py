# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""retro-pytorch's side of benchmark_retro, run by the baseline's interpreter.

Its steps are 'forward' and 'train'. Depends on nothing of this project but its
neighbor benchmark_turns.
"""

import json
import sys
import types


def make_model(sizes: dict[str, int]):
  """The model, and torch set up for it.

  Args:
    sizes: as benchmark_retro.SIZES.

  Returns:
    A retro_pytorch.RETRO.
  """
  # Its package imports an index builder, which the model does not need.
  sys.modules['autofaiss'] = types.ModuleType('autofaiss')
  sys.modules['autofaiss'].build_index = None
  import retro_pytorch
  import torch

  torch.manual_seed(0)
  torch.set_num_threads(sizes['num_threads'])
  return retro_pytorch.RETRO(
    num_tokens=sizes['vocab_size'],
    max_seq_len=sizes['length'],
    enc_dim=sizes['d_model'],
    enc_depth=sizes['encoder_num_layers'],
    enc_cross_attn_layers=(1,),
    dec_dim=sizes['d_model'],
    dec_depth=sizes['num_layers'],
    dec_cross_attn_layers=tuple(sizes['cca_layers']),
    heads=sizes['num_heads'],
    dim_head=sizes['head_dim'],
    chunk_size=sizes['chunk_length'],
  )


def build(sizes: dict[str, int]):
  """Functions of one forward pass and one training step.

  Args:
    sizes: as benchmark_retro.SIZES.

  Returns:
    name -> function without arguments.
  """
  model = make_model(sizes)
  import torch

  chunks = sizes['length'] // sizes['chunk_length']
  vocabulary = (1, sizes['vocab_size'])
  batch = sizes['batch']
  tokens = torch.randint(*vocabulary, (batch, sizes['length'] + 1))
  shape = (batch, chunks, sizes['num_neighbors'], sizes['neighbor_length'])
  neighbors = torch.randint(*vocabulary, shape)

  def forward():
    model.eval()
    with torch.no_grad():
      model(tokens[:, :-1], retrieved=neighbors)

  def train():
    model.train()
    model.zero_grad(set_to_none=True)
    model(tokens, retrieved=neighbors, return_loss=True).backward()

  return {'forward': forward, 'train': train}


if __name__ == '__main__':
  import benchmark_turns  # beside this script

  benchmark_turns.serve(build(json.loads(sys.argv[1])))
