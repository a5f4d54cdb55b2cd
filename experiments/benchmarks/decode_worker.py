# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""retro-pytorch's side of benchmark_decode, run by the baseline's interpreter.

Each step, a number, draws the next token of a text of so many tokens by its own
`generate`. Depends on nothing of this project but its neighbors
benchmark_retro_worker and benchmark_turns.
"""

import contextlib
import json
import os
import sys


def build(sizes: dict[str, int], lengths: list[int]):
  """Functions that draw one token each.

  Args:
    sizes: as benchmark_retro.SIZES, `length` being the longest text.
    lengths: tokens of the texts.

  Returns:
    length -> function without arguments.
  """
  import benchmark_retro_worker  # beside this script

  model = benchmark_retro_worker.make_model(sizes)
  from retro_pytorch import training
  import torch

  # What it would need data, an index and BERT for is only where neighbors come
  # from: here they are random, as on the other side.
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
      wrapper.max_seq_len = length  # So `generate` draws one token and ends.
      with open(os.devnull, 'w') as f, contextlib.redirect_stdout(f):
        wrapper.generate(start)

    return draw

  return {str(length): draw_after(length) for length in lengths}


if __name__ == '__main__':
  import benchmark_turns

  asked = json.loads(sys.argv[1])
  benchmark_turns.serve(build(asked['sizes'], asked['lengths']))
