# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""retro-pytorch's side of the benchmarks `retro` and `decode`.

The baseline's interpreter runs this script. The script imports nothing of this
project but its neighbor `turns`. Arguments: 'steps' or 'decode', and the sizes
as JSON.
"""

import contextlib
import json
import os
import sys
import types


def make_model(sizes):
  """Set up torch; return a retro_pytorch.RETRO of the sizes."""
  # The package imports an index builder that the model does not use.
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


def build_steps(sizes):
  """Return 'forward' and 'train', functions without arguments."""
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


def build_decode(sizes):
  """Return, for each of sizes['befores'], a function that draws one token.

  The token follows a text of that many tokens and is drawn by the baseline's
  own `generate`.
  """
  model = make_model(sizes)
  from retro_pytorch import training
  import torch

  # The wrapper's constructor needs data, an index and BERT for its neighbors. Here
  # neighbors are random, as on the other side.
  wrapper = training.TrainingWrapper.__new__(training.TrainingWrapper)
  torch.nn.Module.__init__(wrapper)
  wrapper.retro = model
  wrapper.chunk_size = sizes['chunk_length']
  shape = sizes['num_neighbors'], sizes['neighbor_length']
  vocabulary = (2, sizes['vocab_size'])

  def fetch(chunks):
    return torch.randint(*vocabulary, (len(chunks), *shape))

  wrapper.fetch_knn_chunks_fn = fetch

  def draw_after(length):
    start = torch.randint(*vocabulary, (sizes['batch'], length))

    def draw():
      wrapper.max_seq_len = length  # so that `generate` draws one token
      with open(os.devnull, 'w') as f, contextlib.redirect_stdout(f):
        wrapper.generate(start)

    return draw

  return {str(length): draw_after(length) for length in sizes['befores']}


if __name__ == '__main__':
  import turns  # beside this script

  build = {'steps': build_steps, 'decode': build_decode}[sys.argv[1]]
  turns.serve(build(json.loads(sys.argv[2])))
