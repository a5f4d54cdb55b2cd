# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Where the parameters of a RETRO start, and their places on a mesh.

RETROfit (Borgeaud et al. 2022, section 4.2 and appendix B.2) adds retrieval to a
decoder that was trained without: its every weight is frozen; the neighbors' encoder
and the chunked cross-attentions are new, and they alone are trained. So RETRO[OFF]
stays the decoder that it was, bit for bit.
"""

from collections.abc import Mapping
import dataclasses
import functools
from typing import Any

from flax import linen as nn, traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from retrieval.nn import sharding
from retro_jax.nn import copy_init, models, stack
from retro_jax.nn.config import RetroConfig

# Fields that the weights of a decoder were trained with, beside `decoder`.
DECODER_FIELDS = (
  'vocab_size',
  'd_model',
  'd_ff',
  'num_heads',
  'head_dim',
  'num_layers',
  'tie_readout',
  'activation',
  'norm_epsilon',
  'projection_biases',
  'ff_biases',
  'scale_logits',
  'position_base',
  'ngrams',
)


def init_params(key: jax.Array, config: RetroConfig) -> Any:
  """Initial parameters in the form of the training state, see `flat_params`."""
  return stack.for_training(config, flat_params(key, config))


def flat_params(
  key: jax.Array, config: RetroConfig, embedding_scale: float | None = None
) -> Any:
  """Initial parameters of `Retro(config)`, boxed with their logical axes.

  Args:
    embedding_scale: standard deviation of the embeddings that replace the
      initial ones; None: those of the model.
  """
  c = config
  tokens = jnp.zeros((1, c.chunk_length), jnp.int32)
  neighbors = jnp.zeros((1, 1, 1, c.neighbor_length), jnp.int32)
  mask = jnp.ones(neighbors.shape, bool)
  params = models.of(c).init(key, tokens, neighbors, mask)['params']
  if c.copy_init:
    if embedding_scale is not None:
      c = dataclasses.replace(c, init_scale=embedding_scale)
    start = copy_init.apply(jax.random.fold_in(key, 1), nn.unbox(params), c)
    params = nn.meta.replace_boxed(params, start)
  return params


def extend(
  key: jax.Array, config: RetroConfig, trained: Mapping[str, Any]
) -> tuple[Any, list[str], list[str]]:
  """Take over the parts of a trained model and make the others: RETROfit and FiD.

  Args:
    config: of the model that is made.
    trained: flat parameters of a RETRO or a baseline with the same sizes, in the
      host's memory.

  Returns:
    Flat parameters, in the host's memory; the names of the parts that are new; the
    names of the trained parts that are left out.
  """
  old = _parts(trained)
  scale = float(np.std(np.asarray(old['embedding'], np.float32)))

  def parts(key):
    return _parts(sharding.unbox(flat_params(key, config, scale)))

  @jax.jit
  def new_parts(key):
    return {k: x for k, x in parts(key).items() if k not in old}

  names = jax.eval_shape(parts, key)
  shared = {k: x for k, x in old.items() if k in names}
  new = jax.tree.map(np.asarray, new_parts(key))
  whole = traverse_util.unflatten_dict(shared | new, sep='/')
  return whole, sorted(new), sorted({*old} - {*names})


def _parts(params: Mapping[str, Any]) -> dict[str, Any]:
  """Parameters by branch: layer_1_attn, encoder/layer_1_ffw and so on."""
  parts = {k: x for k, x in params.items() if k != 'encoder'}
  inner = params.get('encoder', {})
  return parts | {f'encoder/{k}': x for k, x in inner.items()}


def is_added(name: str) -> bool:
  """Whether a top-level part of RETRO's parameters is added to its decoder.

  The embeddings of the encoder are added; a shared table belongs to the decoder.
  """
  added = 'encoder', 'encoder_embedding'
  return name in added or name.endswith(('_cca', '_reading'))


def check_fits(config: RetroConfig, baseline: RetroConfig) -> None:
  """Raise ValueError with all fields in which a trained decoder and a RETRO's differ."""
  of_decoder = [f.name for f in dataclasses.fields(config.decoder)]
  differ = []
  for prefix, names, trained, new_config in (
    ('', DECODER_FIELDS, baseline, config),
    ('decoder.', of_decoder, baseline.decoder, config.decoder),
  ):
    for name in names:
      old, new = getattr(trained, name), getattr(new_config, name)
      if old != new:
        differ.append(f'model.{prefix}{name}={old!r} (not {new!r})')
  if differ:
    raise ValueError(f'its decoder was trained with {", ".join(differ)}')


def param_shardings(
  config: RetroConfig,
  mesh: jax.sharding.Mesh,
  rules: Any = None,
  stacked: bool = False,
) -> Any:
  """NamedShardings of flat or stacked parameters, by axis rules."""
  boxed = jax.eval_shape(
    functools.partial(flat_params, config=config), jax.random.key(0)
  )
  if stacked:
    boxed = jax.eval_shape(functools.partial(stack.stack_params, config), boxed)
  return sharding.tree_shardings(boxed, mesh, rules)
