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
from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.nn import config as config_lib, realm as model_lib
from retrieval.nn import bert, bert_checkpoint

Path = str | os.PathLike
# Folder of a BERT in the layout of `bert_checkpoint`, parameters of a trained
# model, or nothing ('' or None).
Source = Path | Mapping[str, Any] | None
EMBEDDERS = ('embedder', 'query_embedder', 'block_embedder')
# Part of the model -> method of `model.Realm` that uses only its parameters.
PARTS = {
  'all': '__call__',
  'embedder': 'relevance_scores',  # ICT
  'encoder': 'token_logits',  # masked language modelling
}
# Fields in which a checkpoint and the model must agree. The model may have
# fewer layers and positions.
_SAME = ('vocab_size', 'd_model', 'd_ff', 'num_heads', 'type_vocab_size')
_SIMILAR = ('activation', 'layer_norm_eps')


def random_params(
  key: jax.Array,
  config: config_lib.RealmConfig,
  *,
  parts: str = 'all',
) -> dict:
  """Random parameters of a Realm or of one of its `PARTS`, boxed."""
  ids = jnp.zeros((1, 1, 2), jnp.int32)
  rows = {'ids': ids, 'mask': ids == 0, 'types': ids}
  batch = {f'candidate_{name}': x for name, x in rows.items()}
  batch |= {f'joint_{name}': x for name, x in rows.items()}
  batch |= {f'query_{name}': rows[name][0] for name in ('ids', 'mask')}
  batch |= {f'mlm_{name}': ids[0] for name in ('positions', 'targets')}
  model = model_lib.Realm(config)
  return model.init(key, batch, method=PARTS[parts])['params']


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
  if parts not in PARTS:
    raise ValueError(f'parts {parts!r}: expected one of {sorted(PARTS)}.')
  random = jax.jit(random_params, static_argnums=1, static_argnames='parts')
  params = random(key, config, parts=parts)
  start, whole = {}, []
  if parts != 'encoder':
    start, whole = start_embedders(embedder, config)
  if parts != 'embedder':
    if isinstance(encoder, Mapping):
      start['encoder'] = trained_encoder(encoder)
      whole = [*whole, 'encoder']
    elif encoder:
      start['encoder'] = load_encoder(encoder, config.encoder_bert)
  return replace(params, start, whole)


def start_embedders(
  source: Source, config: config_lib.RealmConfig
) -> tuple[dict, list[str]]:
  """Embedders of a trained model or of a BERT checkpoint.

  Also returns the paths under which no array may be missing.
  """
  if isinstance(source, Mapping):
    start = trained_embedders(source, config)
    return start, sorted(start)
  return (load_embedders(source, config) if source else {}), []


def start_bert(
  source: Source, config: bert.BertConfig, name: str
) -> tuple[dict, list[str]]:
  """BERT of a checkpoint or of a trained encoder, for another head.

  Also returns the paths under which no array may be missing. `name` is that of
  the BERT's module.

  Raises:
    ValueError: if there is no encoder, or with everything that does not fit.
  """
  if isinstance(source, Mapping):
    params = trained_encoder(source)['bert']
    return {name: {'bert': params}}, [f'{name}/bert']
  if not source:
    return {}, []
  return {name: {'bert': load_encoder(source, config)['bert']}}, []


def load_embedders(path: Path, config: config_lib.RealmConfig) -> dict:
  """Embedders from a BERT checkpoint, without projections or a missing pooler.

  Raises:
    ValueError: with everything that does not fit.
  """
  found, params = bert_checkpoint.load_bert(path)
  wanted = config.embedder_bert
  params = _cut(params, found, wanted, path)
  if wanted.pooler and not found.pooler:
    logging.info('%s has no pooler: it starts at random.', path)
  return {name: {'bert': params} for name in embedders(config.share_embedders)}


def load_encoder(path: Path, config: bert.BertConfig) -> dict:
  """Encoder from a BERT checkpoint, with the head if there is one."""
  found, params, head = bert_checkpoint.load_mlm(path)
  params = {'bert': _cut(params, found, config, path)}
  if head is None:
    logging.info(
      '%s has no masked-language-model head: the transform and the bias of the '
      'head start at random, its matrix is the word embeddings.',
      path,
    )
    return params
  return params | {'mlm_head': head}


def trained_embedders(
  params: Mapping[str, Any], config: config_lib.RealmConfig
) -> dict:
  """Embedders of a trained Realm or ICT, with their projections.

  If the model of `config` has two embedders, a shared trained one starts both.

  Raises:
    ValueError: if there is no embedder, or two instead of one.
  """
  there = [name for name in EMBEDDERS if name in params]
  wanted = embedders(config.share_embedders)
  if there not in (['embedder'], list(wanted)):
    raise ValueError(
      f'The trained parameters have {there or sorted(params)}, expected '
      f'{" and ".join(wanted)}, or embedder, which starts both.'
    )
  source = {name: name if name in there else 'embedder' for name in wanted}
  return {name: nn.unbox(params[source[name]]) for name in wanted}


def trained_encoder(params: Mapping[str, Any]) -> dict:
  """Encoder of a trained model, with its head; ValueError without one."""
  if 'encoder' not in params:
    raise ValueError(
      f'The trained parameters have {sorted(params)}, expected an encoder.'
    )
  return nn.unbox(params['encoder'])


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
  paths = jax.tree_util.tree_leaves_with_path(start)
  loaded = {
    jax.tree_util.keystr(k, simple=True, separator='/'): v for k, v in paths
  }
  problems = []

  def leaf(path, old):
    name = jax.tree_util.keystr(path, simple=True, separator='/')
    boxed = isinstance(old, nn.meta.AxisMetadata)
    here = old.unbox(apply_constraint=False) if boxed else old
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
    return old.replace_boxed(new) if boxed else new

  result = jax.tree_util.tree_map_with_path(
    leaf, params, is_leaf=lambda x: isinstance(x, nn.meta.AxisMetadata)
  )
  problems += [f'the model has no {name}' for name in sorted(loaded)]
  if problems:
    raise ValueError(f'Parameters to start from: {"; ".join(problems)}.')
  return result


def embedders(shared: bool) -> tuple[str, ...]:
  """Top-level names of the parameters of one shared embedder or of two."""
  return EMBEDDERS[:1] if shared else EMBEDDERS[1:]


def _cut(
  params: dict, found: bert.BertConfig, config: bert.BertConfig, path: Path
) -> dict:
  """Take the first layers and positions, and the pooler where one is used."""
  problems = [
    f'{name} is {getattr(found, name)}, expected {getattr(config, name)}'
    for name in _SAME
    if getattr(found, name) != getattr(config, name)
  ] + [
    f'{name} is {getattr(found, name)}, expected at least '
    f'{getattr(config, name)}'
    for name in ('num_layers', 'max_length')
    if getattr(found, name) < getattr(config, name)
  ]
  if problems:
    raise ValueError(f'{path}: {"; ".join(problems)}.')
  for name in _SIMILAR:
    theirs, ours = getattr(found, name), getattr(config, name)
    if theirs != ours:
      logging.warning(
        '%s was trained with %s %s, but is run with %s.',
        path,
        name,
        theirs,
        ours,
      )
  if config.num_layers < found.num_layers:
    logging.info(
      '%s: the first %d of %d layers are used.',
      path,
      config.num_layers,
      found.num_layers,
    )
  left_out = {
    f'layer_{i}' for i in range(config.num_layers, found.num_layers)
  } | (set() if config.pooler else {'pooler'})
  params = {k: v for k, v in params.items() if k not in left_out}
  positions = params['embeddings']['position']['embedding']
  embeddings = params['embeddings'] | {
    'position': {'embedding': positions[: config.max_length]}
  }
  return params | {'embeddings': embeddings}
