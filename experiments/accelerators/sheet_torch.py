# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's encoder of BERT's sizes, timed on the same device."""

import time

_ROUNDS = 5


def chunks_per_sec(
  d_model: int, d_ff: int, num_layers: int, length: int, tokens: int
) -> float | None:
  """Return chunks a second in bfloat16; None without PyTorch and its device.

  Args:
    length: wordpieces of a chunk.
    tokens: wordpieces of a batch.
  """
  try:
    import torch
  except ImportError:
    return None
  if not torch.cuda.is_available():
    return None
  layer = torch.nn.TransformerEncoderLayer(
    d_model,
    nhead=12,
    dim_feedforward=d_ff,
    activation='gelu',
    batch_first=True,
    device='cuda',
    dtype=torch.bfloat16,
  )
  model = torch.nn.TransformerEncoder(layer, num_layers).eval()
  rows = tokens // length
  shape = (rows, length, d_model)
  hidden = torch.zeros(shape, device='cuda', dtype=torch.bfloat16)
  with torch.inference_mode():
    for number in range(_ROUNDS + 1):
      if number == 1:
        torch.cuda.synchronize()
        start = time.perf_counter()
      model(hidden)
    torch.cuda.synchronize()
  return _ROUNDS * rows / (time.perf_counter() - start)
