# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""retro-pytorch's side of benchmark_retro, run by the baseline's interpreter.

Reads one command a line ('forward' or 'train') and answers each with its wall
and CPU seconds as JSON. Depends on nothing of this project.
"""

import json
import sys
import time
import types


def build(sizes: dict[str, int]):
  """The model and functions of one forward pass and one training step.

  Args:
    sizes: as benchmark_retro.SIZES.

  Returns:
    name -> function without arguments.
  """
  # Its package imports an index builder, which the model does not need.
  sys.modules['autofaiss'] = types.ModuleType('autofaiss')
  sys.modules['autofaiss'].build_index = None
  import retro_pytorch
  import torch

  torch.manual_seed(0)
  torch.set_num_threads(sizes['num_threads'])
  chunks = sizes['length'] // sizes['chunk_length']
  model = retro_pytorch.RETRO(
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


def main() -> None:
  """Answers until the input ends."""
  steps = build(json.loads(sys.argv[1]))
  for line in sys.stdin:
    wall, cpu = time.perf_counter(), time.process_time()
    steps[line.strip()]()
    elapsed = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps(elapsed), flush=True)


if __name__ == '__main__':
  main()
