# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""retro-pytorch's side of the benchmarks `retro` and `decode`.

The peer's interpreter runs this module, which imports nothing of this project.
"""

import contextlib
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


def build(side, sizes):
  """Return the steps of a side."""
  return (_steps if side == 'retro-pytorch' else _decode)(sizes)


def _steps(sizes):
  """Return 'forward' and 'train', functions without arguments."""
  model = make_model(sizes)
  import torch

  batch, length = sizes['batch'], sizes['length']
  vocabulary, items = (1, sizes['vocab_size']), {'items': batch * length}
  tokens = torch.randint(*vocabulary, (batch, length + 1))
  shape = (batch, length // sizes['chunk_length'], sizes['num_neighbors'])
  neighbors = torch.randint(*vocabulary, (*shape, sizes['neighbor_length']))

  def forward():
    model.eval()
    with torch.no_grad():
      model(tokens[:, :-1], retrieved=neighbors)
    return items

  def train():
    model.train()
    model.zero_grad(set_to_none=True)
    model(tokens, retrieved=neighbors, return_loss=True).backward()
    return items

  return {'forward': forward, 'train': train}


def texts_before(length):
  """Return the lengths before the tokens that represent a whole text."""
  return [length * eighth // 8 for eighth in (1, 3, 5, 7)]


def _decode(sizes):
  """Return, for each of sizes['lengths'], a function that draws tokens.

  Each follows one of `texts_before` and is drawn by the peer's own `generate`.
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
  wrapper.fetch_knn_chunks_fn = lambda chunks: torch.randint(
    *vocabulary, (len(chunks), *shape)
  )

  def draw(length):
    befores = texts_before(length)
    for before in befores:
      start = torch.randint(*vocabulary, (sizes['batch'], before))
      wrapper.max_seq_len = before  # so that `generate` draws one token
      with open(os.devnull, 'w') as f, contextlib.redirect_stdout(f):
        wrapper.generate(start)
    return {'items': len(befores)}

  return {str(n): lambda n=n: draw(n) for n in sizes['lengths']}
