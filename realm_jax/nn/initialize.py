# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Initial parameters: from BERT checkpoints, from a trained model or at random.

Guu et al. 2020, section 3.4: the embedders start from the inverse cloze task,
the encoder from BERT.
"""

from collections.abc import Collection, Mapping
import os
from typing import Any

from absl import logging
from flax import linen as nn, traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.nn import config as config_lib, realm as model_lib
from retrieval.nn import bert, bert_checkpoint, sharding

Path = str | os.PathLike
# Folder of a BERT in the layout of `bert_checkpoint`, parameters of a trained
# model, or nothing ('' or None).
Source = Path | Mapping[str, Any] | None
EMBEDDERS = ('embedder', 'query_embedder', 'block_embedder')
# Parts of a Realm; ICT trains its embedder, masked language modelling its encoder.
PARTS = ('all', 'embedder', 'encoder')
# Fields in which a checkpoint and the model must agree. The model may have
# fewer layers and positions.
_SAME = ('vocab_size', 'd_model', 'd_ff', 'num_heads', 'type_vocab_size')
_SIMILAR = ('activation', 'layer_norm_eps')


def random_params(
  key: jax.Array, config: config_lib.RealmConfig, parts: str = 'all'
) -> dict:
  """Random parameters of a Realm or of one of its `PARTS`, boxed."""
  ids = jnp.zeros((1, 2), jnp.int32)
  rows = ids, ids == 0, ids

  def run(model):
    if parts != 'encoder':
      model.embed_queries(*rows[:2])
      model.embed_blocks(*rows)
    if parts != 'embedder':
      model.encoder(*rows, ids[:, :1])

  return nn.init(run, model_lib.Realm(config))(key)['params']


def init_params(
  key: jax.Array,
  config: config_lib.RealmConfig,
  *,
  embedder: Source = None,
  encoder: Source = None,
  parts: str = 'all',
) -> dict:
  """Initial parameters of a `realm.Realm`, boxed with their logical axes.

  Args:
    embedder: folder of the BERT from which the embedders start, or parameters
      of a Realm or of ICT with trained embedders; random without.
    encoder: folder of the BERT from which the encoder starts, or parameters of
      a Realm or of masked language modelling with a trained encoder.
    parts: one of `PARTS`.

  Raises:
    ValueError: with everything in a source that does not fit.
  """
  random = jax.jit(random_params, static_argnums=(1, 2))
  params = random(key, config, parts)
  start, whole = {}, []
  if parts != 'encoder':
    start, whole = start_embedders(embedder, config)
  if parts != 'embedder' and encoder:
    start['encoder'] = load_encoder(encoder, config.encoder_bert)
    if isinstance(encoder, Mapping):
      whole = [*whole, 'encoder']
  return replace(params, start, whole)


def embedders(shared: bool) -> tuple[str, ...]:
  """Top-level names of the parameters of one shared embedder or of two."""
  return EMBEDDERS[:1] if shared else EMBEDDERS[1:]


def start_embedders(
  source: Source, config: config_lib.RealmConfig
) -> tuple[dict, list[str]]:
  """Embedders of a trained model or of a BERT checkpoint.

  Those of a checkpoint have no projection, and no pooler if it has none. If the
  model has two embedders, a shared trained one starts both.

  Returns:
    The embedders, and the paths under which no array may be missing.
  """
  names = embedders(config.share_embedders)
  if not source:
    return {}, []
  if not isinstance(source, Mapping):
    trained, params, _ = bert_checkpoint.load_mlm(source)
    params = _cut(params, trained, config.embedder_bert, source)
    if config.embedder_bert.pooler and not trained.pooler:
      logging.info('%s has no pooler: it starts at random.', source)
    return {name: {'bert': params} for name in names}, []
  there = [name for name in EMBEDDERS if name in source]
  if there not in (['embedder'], list(names)):
    raise ValueError(
      f'The trained parameters have {there or sorted(source)}, expected '
      f'{" and ".join(names)}, or embedder, which starts both.'
    )
  return {
    name: nn.unbox(source.get(name, source.get('embedder'))) for name in names
  }, list(names)


def load_encoder(
  source: Path | Mapping[str, Any], config: bert.BertConfig
) -> dict:
  """Encoder of a trained model or of a BERT checkpoint, with its head if any."""
  if isinstance(source, Mapping):
    if 'encoder' not in source:
      raise ValueError(
        f'The trained parameters have {sorted(source)}, expected an encoder.'
      )
    return nn.unbox(source['encoder'])
  trained, params, head = bert_checkpoint.load_mlm(source)
  params = {'bert': _cut(params, trained, config, source)}
  if head is None:
    logging.info(
      '%s has no masked-language-model head: the transform and the bias of the '
      'head start at random, its matrix is the word embeddings.',
      source,
    )
    return params
  return params | {'mlm_head': head}


def replace(
  params: Any, start: Mapping[str, Any], whole: Collection[str] = ()
) -> Any:
  """Replace parameters by loaded arrays, in the same boxes and dtypes.

  Args:
    params: nested dicts; leaves may be boxed.
    start: loaded part of such a tree, unboxed.
    whole: paths, keys joined by '/', under which every array must be loaded.

  Raises:
    ValueError: with every array that is missing, unknown or of another shape.
  """
  loaded = traverse_util.flatten_dict(dict(start), sep='/')
  problems = []

  def leaf(path, old):
    name = jax.tree_util.keystr(path, simple=True, separator='/')
    here = sharding.unbox(old)
    new = loaded.pop(name, None)
    if new is None:
      if any(name.startswith(f'{part}/') for part in whole):
        problems.append(f'there is no {name}')
      return old
    if np.shape(new) != here.shape:
      problems.append(
        f'{name} has shape {np.shape(new)}, expected {here.shape}'
      )
      return old
    new = jnp.asarray(new, here.dtype)
    return new if here is old else old.replace_boxed(new)

  result = jax.tree_util.tree_map_with_path(
    leaf, params, is_leaf=lambda x: isinstance(x, nn.meta.AxisMetadata)
  )
  problems += [f'the model has no {name}' for name in sorted(loaded)]
  if problems:
    raise ValueError(f'Parameters to start from: {"; ".join(problems)}.')
  return result


def _cut(
  params: dict, trained: bert.BertConfig, config: bert.BertConfig, path: Path
) -> dict:
  """Take the first layers and positions, and the pooler where one is used."""
  problems = []
  for name in (*_SAME, 'num_layers', 'max_length', *_SIMILAR):
    theirs, ours = getattr(trained, name), getattr(config, name)
    if name in _SAME and theirs != ours:
      problems.append(f'{name} is {theirs}, expected {ours}')
    elif name in ('num_layers', 'max_length') and theirs < ours:
      problems.append(f'{name} is {theirs}, expected at least {ours}')
    elif name in _SIMILAR and theirs != ours:
      text = '%s was trained with %s %s, but is run with %s.'
      logging.warning(text, path, name, theirs, ours)
  if problems:
    raise ValueError(f'{path}: {"; ".join(problems)}.')
  if config.num_layers < trained.num_layers:
    text = '%s: the first %d of %d layers are used.'
    logging.info(text, path, config.num_layers, trained.num_layers)
  unused = {f'layer_{i}' for i in range(config.num_layers, trained.num_layers)}
  unused |= set() if config.pooler else {'pooler'}
  positions = params['embeddings']['position']['embedding']
  positions = {'embedding': positions[: config.max_length]}
  params = {k: v for k, v in params.items() if k not in unused}
  return params | {'embeddings': params['embeddings'] | {'position': positions}}
