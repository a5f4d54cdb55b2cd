# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO against retro-pytorch 0.3.9: training, and writing with retrieval.

`retro` times a forward pass and a training step, which is the loss and all gradients.
`decode` writes texts from a prompt of one token; finding neighbors costs nothing. Our
cached decoding draws whole texts. A side without a cache pays for a token by the length
of the text before it: our whole model and the peer's own `generate` draw one token
after texts of an eighth, three, five and seven eighths of each length.
"""

import functools
import time

from flax import linen as nn
import jax
import numpy as np
import optax

from experiments.benchmarks import retro_worker, turns
from retro_jax.data import samples
from retro_jax.decoding import decode, drawing
from retro_jax.nn import retro as model_lib

SIZES = {
  'vocab_size': 8192,
  'd_model': 256,
  'num_layers': 6,
  'cca_layers': (3, 6),
  'num_heads': 8,
  'head_dim': 32,
  'encoder_num_layers': 2,
  'chunk_length': 64,
  'neighbor_length': 128,
  'length': 512,
  'num_neighbors': 2,
  'batch': 4,
}
_PEER = 'retro-pytorch'
_OF_MODEL = {*SIZES} - {'length', 'num_neighbors', 'batch', 'cca_layers'}


def make_model(sizes: turns.Sizes) -> tuple[model_lib.Retro, dict]:
  """Return our model of the benchmark's sizes and random parameters."""
  width = sizes['d_model']
  config = model_lib.RetroConfig(
    cca_layers=tuple(sizes['cca_layers']),
    d_ff=4 * width,
    encoder_d_model=width,
    encoder_d_ff=4 * width,
    encoder_num_heads=sizes['num_heads'],
    encoder_head_dim=sizes['head_dim'],
    **{name: sizes[name] for name in _OF_MODEL},
  )
  model = model_lib.Retro(config)
  tokens = np.ones((1, config.chunk_length), np.int32)
  init = jax.jit(model.init)(jax.random.key(0), tokens)
  return model, nn.unbox(init['params'])


def build(side: str, sizes: turns.Sizes) -> turns.Steps:
  """Return our 'forward' and 'train', functions that wait for their results."""
  del side
  model, params = make_model(sizes)
  config, length = model.config, sizes['length']
  rng = np.random.default_rng(0)
  tokens = rng.integers(
    1, config.vocab_size, (sizes['batch'], length + 1), np.int32
  )
  shape = (sizes['batch'], length // config.chunk_length)
  shape += (sizes['num_neighbors'], config.neighbor_length)
  neighbors = rng.integers(1, config.vocab_size, shape, np.int32)
  arrays = jax.device_put((tokens, neighbors, neighbors != 0))

  @jax.jit
  def forward(params, tokens, neighbors, mask):
    return model.apply({'params': params}, tokens[:, :-1], neighbors, mask)

  @jax.jit
  @jax.value_and_grad
  def train(params, tokens, neighbors, mask):
    logits = forward(params, tokens, neighbors, mask)
    losses = optax.softmax_cross_entropy_with_integer_labels(
      logits, tokens[:, 1:]
    )
    return losses.mean()

  def timed(function):
    jax.block_until_ready(function(params, *arrays))
    return {'items': sizes['batch'] * length}

  return {
    'forward': lambda: timed(forward),
    'train': lambda: timed(train),
  }


def build_decode(side: str, sizes: turns.Sizes) -> turns.Steps:
  """Return, for each of the lengths, a function that draws tokens."""
  model, params = make_model(sizes)
  m, k = model.config.chunk_length, sizes['num_neighbors']
  rng, rows = np.random.default_rng(0), np.zeros(1, np.int32)
  draws = drawing.of_draws(drawing.SamplingConfig())
  draw = functools.partial(drawing.draw_rows, draws, jax.random.key(0), 0, rows)
  last_logits = jax.jit(
    lambda params, buffer, last: model.apply(
      {'params': params}, **buffer, last=last
    )[:, 0]
  )

  def retrieve(rows, k) -> list[samples.ChunkNeighbors]:
    """Return random neighbors."""
    shape = (len(rows), k, model.config.neighbor_length)
    tokens = rng.integers(1, model.config.vocab_size, shape, np.int32)
    return [samples.given_neighbors(row, shape[-1]) for row in tokens]

  def cached(length: int) -> turns.Numbers:
    """Draw a text with the cache; return median CPU ms of a step by quarters."""
    config = drawing.SamplingConfig(
      max_new_tokens=length - 1,
      num_neighbors=k,
      context_chunks=max(2, -(-length // m)),
    )
    events = decode.stream(model, params, [[1]], config, retrieve=retrieve)
    at = [time.process_time() for x in events if isinstance(x, samples.Drawn)]
    quarters = np.array_split(1000 * np.diff(at), 4)
    found = {f'ms {i + 1}/4': np.median(x) for i, x in enumerate(quarters)}
    return {'items': len(at), **jax.tree.map(float, found)}

  def whole(length: int) -> turns.Numbers:
    """Draw one token after each of some texts, by the whole model."""
    befores = retro_worker.texts_before(length)
    for before in befores:
      buffer = {'tokens': np.ones((1, -(-before // m) * m), np.int32)}
      if before >= m:
        found = retrieve([None] * (before // m), k)
        buffer['neighbors'] = np.stack([x.tokens for x in found])[None]
        buffer['neighbor_mask'] = buffer['neighbors'] != 0
      last = np.array([before - 1], np.int32)
      np.asarray(draw(last_logits(params, buffer, last)))
    return {'items': len(befores)}

  function = cached if side == 'cached' else whole
  return {str(n): functools.partial(function, n) for n in sizes['lengths']}


TASKS = {
  'retro': turns.Task(
    build=build,
    sizes=SIZES,
    sides=('ours', _PEER),
    peers={_PEER: 'retro_worker'},
    repeats=10,
  ),
  'decode': turns.Task(
    build=build_decode,
    sizes=SIZES | {'batch': 1, 'length': 2048, 'lengths': (128, 512, 2048)},
    sides=('cached', 'whole', f'{_PEER} generate'),
    peers={f'{_PEER} generate': 'retro_worker'},
    repeats=3,
  ),
}
