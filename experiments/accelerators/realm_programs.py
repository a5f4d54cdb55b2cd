# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM, the inverse cloze task and the reader as tasks without data.

Their vocabularies have BERT's size. Model FLOPs count all tokens of padded rows.

Dimension key: B rows, Q query length, T block length, J joint length, K candidates,
M targets, C retriever beam, R reader beam, L reader row, W widest span.
"""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from experiments.accelerators import costs
from experiments.engine import tasks
from experiments.open_qa import task as open_qa_task
from experiments.realm import task as realm_task
from realm_jax.data import examples
from realm_jax.nn import initialize, open_qa, realm
from realm_jax.objectives import ict
from realm_jax.serving import model_configs, reader_configs, serving
from retrieval.nn import batch_encoder, bert, sharding
from retrieval.searchers import block_search, exact

Config = Any  # experiments.{realm,open_qa}.config.Config
Shapes = dict[str, jax.ShapeDtypeStruct]

_VOCAB_SIZE = bert.BertConfig().vocab_size
_NUM_BLOCKS = 13_353_718  # of ORQA's Wikipedia
_KINDS = {'ids': 'i4', 'mask': '?', 'types': 'i4'}


def of(config: Config, num_shards: int) -> tuple[Config, tasks.Task, Shapes]:
  """Return the config that trains, its task and the shapes of its batches.

  Args:
    num_shards: devices over which the rows of a batch are split.
  """
  return _TASKS[config.task](config, num_shards)


def _realm(
  config: Config, num_shards: int
) -> tuple[Config, tasks.Task, Shapes]:
  model = model_configs.realm_config(config, _VOCAB_SIZE)
  layout = _layout(config)
  b, k = config.batch_size, layout.num_candidates
  flops = _flops(model.embedder_bert, b, layout.query_length)
  flops += _flops(model.embedder_bert, b * k, layout.block_length)
  flops += _flops(model.encoder_bert, b * k, layout.joint_length)
  d = model.encoder.d_model
  flops += b * k * layout.max_targets * 2 * d * (d + _VOCAB_SIZE)
  task = _task(
    functools.partial(initialize.init_params, config=model),
    realm_task.realm_loss(config, model),
    flops,
  )
  return config, task, realm_shapes(layout, b)


def realm_shapes(layout: examples.Layout, b: int) -> Shapes:
  """Return the shapes of a batch of `realm_jax.data.pipeline`."""
  k, targets = layout.num_candidates, (b, layout.max_targets)
  return {
    **_rows('query', (b, layout.query_length), ('ids', 'mask')),
    **_rows('candidate', (b, k, layout.block_length)),
    **_rows('joint', (b, k, layout.joint_length)),
    **_shapes((b, k), candidate_valid='?', candidate_block_ids='i4'),
    **_shapes(targets, mlm_positions='i4', mlm_targets='i4', mlm_mask='?'),
    **_shapes((b,), origin='i4', index_step='i4'),
  }


def _ict(config: Config, num_shards: int) -> tuple[Config, tasks.Task, Shapes]:
  realm_task.check_whole_batch(config, 'ict')
  model = model_configs.realm_config(config, _VOCAB_SIZE)
  layout = dataclasses.replace(
    _layout(config), query_length=config.ict.query_length
  )
  b = config.batch_size
  flops = _flops(model.embedder_bert, b, layout.query_length)
  flops += _flops(model.embedder_bert, b, layout.block_length)
  task = _task(
    functools.partial(initialize.init_params, config=model, parts='embedder'),
    functools.partial(
      realm_task.in_batch_loss(ict.loss, config.ict), realm.Realm(model)
    ),
    flops + 2 * b * b * model.vector_size,
  )
  return config, task, ict_shapes(layout, b)


def ict_shapes(layout: examples.Layout, b: int) -> Shapes:
  """Return the shapes of a batch of `realm_jax.objectives.ict`."""
  return {
    **_rows('query', (b, layout.query_length), ('ids', 'mask')),
    **_rows('block', (b, layout.block_length)),
    **_shapes((b,), sentence_removed='?', row_valid='?'),
    **_shapes((b, 2), block_hash='u4'),
  }


def _open_qa(
  config: Config, num_shards: int
) -> tuple[Config, tasks.Task, Shapes]:
  config = open_qa_task.freeze(config)
  model = reader_configs.reader_config(config, _VOCAB_SIZE)
  b = open_qa_task.padded_rows(config, num_shards)
  beam = config.lookup
  d, s = model.realm.encoder.d_model, model.span_hidden_size
  tokens = b * beam.reader_beam * beam.row_length
  flops = _flops(model.realm.embedder_bert, b, beam.question_length)
  flops += _flops(
    model.realm.encoder_bert, b * beam.reader_beam, beam.row_length
  )
  flops += 2 * tokens * s * (2 * d + model.max_span_width)
  flops += 2 * b * beam.retriever_beam * model.realm.vector_size
  task = _task(
    functools.partial(open_qa.init_params, config=model),
    open_qa_task.bind_loss(config, model),
    flops,
  )
  task = dataclasses.replace(task, batch_rows=b)
  return config, task, reader_shapes(config, model, b)


def reader_shapes(
  config: Config, model: open_qa.OpenQaConfig, b: int
) -> Shapes:
  """Return the shapes of a batch that a `beams.BeamSelector` completed."""
  c, r = config.lookup.retriever_beam, config.lookup.reader_beam
  length = config.lookup.row_length
  spans = (b, r, model.max_span_width, length)
  shapes = {
    **_rows('question', (b, config.lookup.question_length), ('ids', 'mask')),
    **_rows('reader', (b, r, length)),
    **_shapes((b, r, length), reader_block_mask='?'),
    **_shapes((b, r), reader_valid='?', reader_starts='i4'),
    **_shapes(spans, reader_correct='?'),
    **_shapes((b, c), beam_ids='i4', beam_valid='?', beam_has_answer='?'),
    **_shapes((b,), question_index='i4', row_valid='?'),
  }
  if config.retriever != 'dense':
    return shapes | _shapes((b, c), beam_scores='f4')
  vectors = (b, c, model.realm.vector_size)
  shapes |= _shapes(vectors, beam_vectors='f4') | _shapes((b,), index_step='i4')
  if config.train_blocks:
    shapes |= _rows('block', (b, r, config.blocks.max_length))
  return shapes


def trace_embedding(
  config: Config, devices: Sequence[jax.Device], name: str
) -> costs.Traced:
  """Trace the embedding of one batch of blocks for the index."""
  del name
  model = model_configs.realm_config(config, _VOCAB_SIZE)
  layout = _layout(config)
  encode = serving.block_encoder(model, layout.sep_id)
  encode, everywhere, rows = batch_encoder.compiled(encode, devices)
  tokens = config.vectors.batch_tokens or batch_encoder.default_tokens(devices)
  count = len(devices) * max(1, tokens // layout.block_length)
  init = functools.partial(
    initialize.init_params, config=model, parts='embedder'
  )
  params = sharding.unbox(jax.eval_shape(init, jax.random.key(0)))
  traced = encode.trace(
    jax.tree.map(lambda x: _placed(x.shape, x.dtype, everywhere), params),
    _placed((count, layout.block_length), 'i4', rows),
    _placed((count,), 'i4', rows),
  )
  flops = _flops(model.embedder_bert, count, layout.block_length)
  mesh = {'data': len(devices)}
  return costs.Traced(traced, mesh, config.embedder.dtype, flops)


def trace_search(
  config: Config, devices: Sequence[jax.Device], name: str
) -> costs.Traced:
  """Trace the exact search of ORQA's blocks, 'search_alone' on one device.

  There are `batch_size` questions, and the k of the config for each.
  """
  if name == 'search_alone':
    devices = devices[:1]
  if config.task == 'open_qa':
    model = reader_configs.reader_config(config, _VOCAB_SIZE).realm
    k = config.lookup.retriever_beam
  else:
    model = model_configs.realm_config(config, _VOCAB_SIZE)
    k = _layout(config).num_candidates
  mesh = block_search.make_mesh(list(devices))
  unit, d = block_search.unit_rows(mesh), model.vector_size
  b = block_search.num_placed(config.batch_size)
  wanted = exact.num_fetched(k, _NUM_BLOCKS)
  rows = NamedSharding(mesh, PartitionSpec('rows'))
  one = NamedSharding(mesh, PartitionSpec())
  size = -(-_NUM_BLOCKS // unit) * unit
  block = block_search.Block(
    _placed((size, d), config.vectors.dtype, rows),
    _placed((size,), 'f4', rows),
    _placed((), 'f4', one),
    _placed((), 'i4', one),
    _placed((), 'i4', one),
  )
  found = [_placed((b, wanted), x, one) for x in ('f4', 'i4', 'i4')]
  best = block_search.Best(*found, _placed((b,), 'f4', one))
  with jax.set_mesh(mesh):
    traced = block_search.search_block.trace(
      _placed((b, d), 'f4', one),
      block,
      best,
      mesh=mesh,
      metric='dot_product',
    )
  flops = 2.0 * b * _NUM_BLOCKS * d
  return costs.Traced(
    traced, {'rows': len(devices)}, config.vectors.dtype, flops
  )


def _layout(config: Config) -> examples.Layout:
  return examples.Layout(
    block_length=config.blocks.max_length, **vars(config.layout)
  )


def _task(init: Any, loss: Any, forward_flops: float) -> tasks.Task:
  return tasks.Task(
    init=init,
    loss=loss,
    dataset=tasks.no_data,
    flops_per_step=3 * forward_flops,
  )


def _flops(config: bert.BertConfig, rows: int, length: int) -> float:
  return rows * length * bert.flops_per_token(config, length)


def _rows(
  prefix: str, shape: tuple[int, ...], names: Sequence[str] = tuple(_KINDS)
) -> Shapes:
  return _shapes(shape, **{f'{prefix}_{x}': _KINDS[x] for x in names})


def _shapes(shape: tuple[int, ...], **kinds: str) -> Shapes:
  return {x: jax.ShapeDtypeStruct(shape, kind) for x, kind in kinds.items()}


def _placed(shape, kind, where) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, kind, sharding=where)


_TASKS = {'realm': _realm, 'ict': _ict, 'open_qa': _open_qa}
