# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The lookup of `copy_init` for a decoder that was trained without it.

`copy_init` asks for the last token's embedding, which it expects in the decoder's
stream. A trained decoder need not keep it there (SmolLM2: a cosine of .00 after the
first of 30 layers), but a linear map still finds it. Least squares over some text make
that map; the queries of CCA then ask for what it finds.

Dimension key: B batch, L tokens, D model width, K head width.
"""

import dataclasses
import functools
from typing import Any

from flax import traverse_util
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from retro_jax.nn import layers, primitives, retro
from retro_jax.nn.config import RetroConfig

_RIDGE = 0.01  # of the states' mean square

Params = Any


def fit_queries(
  params: Params,
  config: RetroConfig,
  tokens: Int[Array, 'B L'],
  segment_ids: Int[Array, 'B L'],
) -> Params:
  """Replace the queries of a RETRO that `copy_init` started, its decoder trained.

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
