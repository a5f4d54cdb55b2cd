# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Initial parameters of a RETRO that copies words of its neighbors.

Chunked cross-attention can gain first by copying: if the last token also occurs
in a neighbor, the token after that occurrence is a good guess. Copying takes
two attentions that fit each other (Olsson et al. 2022 call them an induction
head), and small models find them only after far more tokens than they are
trained on. The paper leaves the initialisation open; this one contains both
attentions, and training goes on from there.

  encoder   head 0 of self-attention in layer 1 looks one position back, and
            writes a part of what it finds there, A norm(y_{j-1}), into a
            subspace, spanned by B.
  CCA       queries are A norm(x_t), keys are B^T E_j: equal where the last
            token is the one before j. Values are E_j without B, and the output
            matrix is their transpose: what follows is made more likely.

All other branches start small, so that embeddings can be read beneath them.

Dimension key: B batch, L tokens, D model width, K width of A, H heads.
"""

import dataclasses
import functools
from typing import Any

from flax import traverse_util
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from retro_jax.nn import layers, positions, primitives, retro
from retro_jax.nn.config import RetroConfig

_BRANCH_SCALE = 0.1  # of all branches' last matrices
_BACK_LOGIT = 20.0  # of one position back
_MATCH_LOGIT = 15.0  # of equal tokens
_WRITE = 6.0  # size of what head 0 writes, in embeddings
_RIDGE = 0.01  # of the states' mean square
# Columns, or rows if they are fewer, are orthonormal.
_ORTHONORMAL = jax.nn.initializers.orthogonal()

Params = Any


def apply(key: jax.Array, params: Params, config: RetroConfig) -> Params:
  """Replace initial parameters by those of a model that copies.

  Args:
    params: as `Retro.init` made them, without boxes.
    config: with `copy_init`'s requirements (see RetroConfig). A baseline has
      nothing to copy from; its branches are scaled all the same.
  """
  flat = traverse_util.flatten_dict(params)
  new = {
    path: x.astype(primitives.accumulation_dtype(x.dtype))
    * (_BRANCH_SCALE if path[-1] in ('o', 'w2') else 1.0)
    for path, x in flat.items()
  }
  if config.cca_layers:
    subspaces, values = jax.random.split(key)
    width = min(config.encoder_head_dim, config.head_dim, config.d_model // 2)
    basis = _ORTHONORMAL(subspaces, (config.d_model, 2 * width))
    read, written = basis[:, :width], basis[:, width:]
    first = ('encoder', 'layer_1_attn', 'attention')
    new |= _look_back(new, first, read, written, config)
    for layer in config.cca_layers:
      path = (f'layer_{layer}_cca', 'cca', 'attention')
      layer_key = jax.random.fold_in(values, layer)
      new |= _copy(path, layer_key, read, written, config)
  new = {path: x.astype(flat[path].dtype) for path, x in new.items()}
  return traverse_util.unflatten_dict(new)


def _look_back(flat, path, read, written, config: RetroConfig):
  """Head 0 of the encoder's first self-attention: one position back."""
  c = config.attention_of('encoder')
  width = read.shape[1]
  # The quickest frequencies, each with its sine and its cosine.
  half = min(c.head_dim, read.shape[0]) // 2
  quick = np.concatenate(
    [np.arange(half), read.shape[0] // 2 + np.arange(half)]
  )
  position = positions.vectors(1, 1, len(read), c.position_base)[0]
  relative = np.zeros((len(read), c.head_dim))
  relative[quick, np.arange(2 * half)] = 1
  # Its logit is the sum of cos(frequency * (d - 1)), half if d is 1.
  bias = position @ relative * _BACK_LOGIT / (half * c.scale)
  amplitude = _WRITE * config.init_scale
  out = amplitude * written.T
  return {
    (*path, 'r'): flat[*path, 'r'].at[:, : c.head_dim].set(relative),
    (*path, 'w'): flat[*path, 'w'].at[: c.head_dim].set(bias),
    (*path, 'v'): flat[*path, 'v'].at[:, :width].set(read),
    (*path, 'o'): flat[*path, 'o'].at[:width].set(out),
  }


def _copy(path, key, read, written, config: RetroConfig):
  """All heads of one CCA: the same match, each its part of the values."""
  c = config.attention_of('cca')
  values = _ORTHONORMAL(key, (len(read), c.num_heads * c.head_dim))
  values -= written @ (written.T @ values)
  model_width, width = read.shape
  # E is normalized: what is written is one part of its length, embeddings are
  # the other. Their product with a normalized x of equal tokens is `match`.
  share = _WRITE / (1 + _WRITE**2 * width / model_width) ** 0.5
  match = share * width * c.scale
  each, pad = (_MATCH_LOGIT / match) ** 0.5, ((0, 0), (0, c.head_dim - width))
  queries, keys = (jnp.pad(x * each, pad) for x in (read, written))
  return {
    (*path, 'q'): jnp.tile(queries, (1, c.num_heads)),
    (*path, 'k'): jnp.tile(keys, (1, c.num_heads)),
    (*path, 'v'): values,
    (*path, 'o'): config.copy_size * values.T,
  }


def fit_queries(
  params: Params,
  config: RetroConfig,
  tokens: Int[Array, 'B L'],
  segment_ids: Int[Array, 'B L'],
) -> Params:
  """Replace the queries of a RETRO that `apply` started, its decoder trained.

  `apply` expects the last token's embedding in the decoder's stream. A trained decoder
  need not keep it there (SmolLM2: a cosine of .00 after the first of 30 layers), but a
  linear map still finds it. Least squares over some text make that map; the queries of
  CCA then ask for its result.

  Args:
    tokens: text for the decoder; more tokens than D.
    segment_ids: as of Retro.
  """
  there = segment_ids > 0
  first = params['encoder']['layer_1_attn']['norm']
  embedded = _normed(
    config, first, jnp.asarray(params['embedding'])[tokens[there]]
  )
  states = _states(config, params, tokens, segment_ids)
  flat = traverse_util.flatten_dict(params)
  # Module of the decoder -> the norm of what it returns, and the queries that read it.
  readers = {
    f'layer_{p}_attn': (
      params[f'layer_{p}_cca']['norm'],
      (f'layer_{p}_cca', 'cca', 'attention', 'q'),
    )
    for p in config.cca_layers
  }
  for module, (norm, path) in readers.items():
    x = _normed(config, norm, states[module][there])
    flat[path] = _fit(x, embedded @ flat[path]).astype(flat[path].dtype)
  return traverse_util.unflatten_dict(flat)


@functools.partial(jax.jit, static_argnames='config')
def _states(config, params, tokens, segment_ids):
  """Return the outputs of the decoder's branches, by name."""
  names = {f'layer_{p}_attn' for p in config.cca_layers}
  _, state = retro.Retro(dataclasses.replace(config, cca_layers=())).apply(
    {'params': params},
    tokens,
    segment_ids=segment_ids,
    last=jnp.zeros(len(tokens), jnp.int32),  # no readout but one
    mutable=['intermediates'],
    capture_intermediates=lambda module, _: module.name in names,
  )
  return {name: state['intermediates'][name]['__call__'][0] for name in names}


def _normed(config, params, x):
  return layers.norm(config, 'norm').apply({'params': params}, x)


def _fit(
  x: Float[Array, 'T D'], queries: Float[Array, 'T K']
) -> Float[Array, 'D K']:
  """Return the map of states to queries, by their differences and lengths."""
  x = x.astype(primitives.accumulation_dtype(x.dtype))
  queries = queries - queries.mean(0)  # a part that all rows share says nothing
  square = x.T @ x
  ridge = _RIDGE * jnp.trace(square) / len(square)
  solution = jnp.linalg.solve(
    square + ridge * jnp.eye(len(square)), x.T @ queries
  )
  return solution * (jnp.linalg.norm(queries) / jnp.linalg.norm(x @ solution))
