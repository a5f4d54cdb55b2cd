# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A masked-language-model head for encoders that come without one.

REALM's encoder starts from a BERT with a trained head (Guu et al. 2020, section
3.4), which checkpoints such as all-MiniLM-L6-v2 lack. A random head learns to
name the token of a hidden state in thousands of steps, a least-squares fit at
once.
"""

from collections.abc import Mapping
import functools
from typing import Any

import jax
import numpy as np

from realm_jax.data import examples
from retrieval.nn import bert
from retrieval.text import blocks as blocks_lib

_RIDGE = 1.0  # times the mean variance of a hidden state's features
_SHIFT = 8.0  # added to the activation's inputs, where it is the identity
_SCALE = 0.5  # of the final norm: confident, not certain
_BATCH = 32
_NUM_BLOCKS = 512  # that the fit reads, chosen at random


@functools.partial(jax.jit, static_argnums=0)
def _hidden(config, params, ids, mask):
  return bert.Bert(config).apply({'params': params}, ids, mask).hidden


def _collect(config, params, layout, blocks, ids):
  """Hidden states of the blocks' tokens, and the tokens."""
  length = min(layout.block_length, config.max_length)
  hidden, tokens = [], []
  for low in range(0, len(ids), _BATCH):
    body, counts = blocks.gather(ids[low : low + _BATCH], length - 2)
    rows, mask, _ = examples.join(layout, length, (body, counts))
    states = np.asarray(_hidden(config, params, rows, mask), np.float64)
    inside = mask & (rows != layout.cls_id) & (rows != layout.sep_id)
    hidden.append(states[inside])
    tokens.append(rows[inside])
  return np.concatenate(hidden), np.concatenate(tokens)


def fit(
  config: bert.BertConfig,
  params: Mapping[str, Any],
  layout: examples.Layout,
  blocks: blocks_lib.BlockStore,
) -> dict[str, Any]:
  """Fit `bert.MlmHead` (numpy float32) to name the tokens of unmasked text.

  A ridge regression from hidden states to centred word embeddings becomes the
  transform; the tokens' frequencies become the output bias. `params` are those
  of the encoder's `bert.Bert`.
  """
  rng = np.random.default_rng(0)
  count = min(_NUM_BLOCKS, blocks.num_blocks)
  ids = np.sort(rng.choice(blocks.num_blocks, count, replace=False))
  hidden, tokens = _collect(config, params, layout, blocks, ids)
  table = np.asarray(params['embeddings']['word']['embedding'], np.float64)
  targets = (table - table.mean(axis=0))[tokens]
  mean = hidden.mean(axis=0)
  centred = hidden - mean
  gram = centred.T @ centred
  ridge = _RIDGE * np.trace(gram) / len(gram) / np.sqrt(len(centred))
  kernel = np.linalg.solve(
    gram + ridge * np.eye(len(gram)), centred.T @ targets
  )
  kernel /= (centred @ kernel).std()  # units in which the activation is linear
  frequencies = np.bincount(tokens, minlength=len(table)) + 0.1
  bias = np.log(frequencies / frequencies.sum())
  size = len(kernel)
  arrays = {
    'transform': {'kernel': kernel, 'bias': _SHIFT - mean @ kernel},
    'norm': {'norm': {'scale': np.full(size, _SCALE), 'bias': np.zeros(size)}},
    'bias': bias - bias.mean(),
  }
  return jax.tree.map(lambda x: np.asarray(x, np.float32), arrays)
