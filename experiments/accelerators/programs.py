# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The programs of a config, traced for devices that are not there.

REALM's vocabularies have BERT's size.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from experiments.engine import program as program_lib, tasks
from experiments.realm import task as realm_task
from experiments.retro import task as retro_task
from realm_jax.data import examples
from realm_jax.nn import initialize
from realm_jax.trained import embedders, model_configs, reader_configs
from retrieval.nn import batch_encoder, bert, sharding
from retrieval.searchers import block_search, exact
from retro_jax.decoding import decode, drawing
from retro_jax.nn import initial, presets, retro as retro_lib
from retro_jax.trained import loading

Config = Any  # the dataclass of config.task
Devices = Sequence[jax.Device]
Shapes = dict[str, jax.ShapeDtypeStruct]

_VOCAB_SIZE = bert.BertConfig().vocab_size
NUM_BLOCKS = 13_353_718  # of ORQA's Wikipedia
_KINDS = {'ids': 'i4', 'mask': '?', 'types': 'i4'}


@dataclasses.dataclass(frozen=True)
class Traced:
  """A program that could be compiled."""

  traced: Any  # of jax.jit(...).trace
  mesh: Mapping[str, int]  # axis -> devices that the program uses
  # of the model's formula, on all devices of the mesh; 0 where XLA's count is right
  model_flops: float = 0.0


def _step(config: Config, devices: Devices, name: str) -> Traced:
  """The train step of a model, or its validation of a batch."""
  make = retro_task.without_data if config.task == 'retro' else without_data
  task, shapes = make(config)
  program = program_lib.make_program(task, config, devices=devices)
  batch = {
    key: _shape(x.shape, x.dtype, program.rows) for key, x in shapes.items()
  }
  flops = task.flops_per_step
  with program.context():
    if name == 'evaluate':
      traced = program.evaluate.trace(program.abstract.params, batch)
      flops /= 3
    else:
      traced = program.step.trace(program.abstract, batch)
      if task.frozen is not None:
        flops *= 2 / 3  # frozen parts have no gradients
  return Traced(traced, program.mesh.shape, flops)


def without_data(config: Config) -> tuple[tasks.Task, Shapes]:
  """Return the task of REALM and the shapes of a batch of `pipeline`."""
  b = config.batch_size
  model = model_configs.realm_config(config, _VOCAB_SIZE)
  layout = _layout(config)
  k, targets = layout.num_candidates, (b, layout.max_targets)
  shapes = {
    **_rows('query', (b, layout.query_length), ('ids', 'mask')),
    **_rows('candidate', (b, k, layout.block_length)),
    **_rows('joint', (b, k, layout.joint_length)),
    **_shapes((b, k), candidate_valid='?', candidate_block_ids='i4'),
    **_shapes(targets, mlm_positions='i4', mlm_targets='i4', mlm_mask='?'),
    **_shapes((b,), origin='i4', index_step='i4'),
  }
  task = tasks.Task(
    init=functools.partial(initialize.init_params, config=model),
    loss=realm_task.realm_loss(config, model),
    dataset=tasks.no_data,
  )
  return task, shapes


def _decode(config: Config, devices: Devices, name: str) -> Traced:
  """One token of each of `batch_size` rows, on one device.

  The loop up to the end of a chunk counts once.
  """
  del name
  model_cfg = loading.model_config(config, config.tokenizer.vocab_size)
  model = retro_lib.Retro(model_cfg)
  mesh = sharding.make_mesh(devices=devices[:1])
  here = sharding.replicated(mesh)
  b, chunks = config.batch_size, config.sequence_chunks
  length = chunks * model_cfg.chunk_length
  k = config.num_neighbors if config.retrieval else 0
  buffer = {'tokens': _shape((b, length), 'i4')}
  if k:
    read = (b, chunks, k, model_cfg.neighbor_length)
    buffer['neighbors'] = _shape(read, 'i4')
    buffer['neighbor_mask'] = _shape(read, '?')
  rows = _shape((b,), 'i4')
  steps = _shape((2,), 'i4')
  # The devices of this mesh run nothing.
  key = jax.eval_shape(jax.random.key, 0)
  place = functools.partial(
    jax.tree.map, lambda x: _shape(x.shape, x.dtype, here)
  )
  with jax.set_mesh(mesh):
    init = functools.partial(initial.flat_params, config=model_cfg)
    params = place(sharding.unbox(jax.eval_shape(init, key)))
    logits, cache = jax.eval_shape(
      lambda *x: decode.first_logits(model, *x), params, buffer, rows
    )
    traced = decode.draw_tokens.trace(
      model,
      params,
      drawing.SamplingConfig(),
      model_cfg.chunk_length,
      *place((key, rows, logits, cache, rows, rows, steps)),
    )
  flops = b * presets.flops_per_token(model_cfg, length, k)
  return Traced(traced, mesh.shape, flops)


def _embed(config: Config, devices: Devices, name: str) -> Traced:
  """Trace the embedding of one batch of blocks for the index."""
  del name
  model = model_configs.realm_config(config, _VOCAB_SIZE)
  layout = _layout(config)
  encode = embedders.block_encoder(model, layout.sep_id)
  encode, everywhere, rows = batch_encoder.compiled(encode, devices)
  tokens = config.vectors.batch_tokens or batch_encoder.default_tokens(devices)
  count = len(devices) * max(1, tokens // layout.block_length)
  init = functools.partial(
    initialize.init_params, config=model, parts='embedder'
  )
  params = sharding.unbox(jax.eval_shape(init, jax.random.key(0)))
  traced = encode.trace(
    jax.tree.map(lambda x: _shape(x.shape, x.dtype, everywhere), params),
    _shape((count, layout.block_length), 'i4', rows),
    _shape((count,), 'i4', rows),
  )
  return Traced(traced, {'data': len(devices)})


def _search(
  config: Config, devices: Devices, name: str, num_blocks: int = NUM_BLOCKS
) -> Traced:
  """Trace the exact search of vectors, 'search_alone' on one device.

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
  rows = NamedSharding(mesh, PartitionSpec('rows'))
  one = NamedSharding(mesh, PartitionSpec())
  size = -(-num_blocks // unit) * unit
  block = block_search.Block(
    _shape((size, d), config.vectors.dtype, rows),
    _shape((size,), 'f4', rows),
    _shape((), 'i4', one),
  )
  with jax.set_mesh(mesh):
    traced = block_search.search_block.trace(
      _shape((b, d), 'f4', one),
      block,
      mesh=mesh,
      metric='dot_product',
      num_best=exact.num_fetched(k, num_blocks),
    )
  flops = 2.0 * b * num_blocks * d
  return Traced(traced, {'rows': len(devices)}, flops)


def _layout(config: Config) -> examples.Layout:
  return examples.Layout(
    block_length=config.blocks.max_length, **vars(config.layout)
  )


def _rows(prefix, shape, names=tuple(_KINDS)) -> Shapes:
  return _shapes(shape, **{f'{prefix}_{x}': _KINDS[x] for x in names})


def _shapes(shape: tuple[int, ...], **kinds: str) -> Shapes:
  return {x: _shape(shape, kind) for x, kind in kinds.items()}


def _shape(shape, kind, where=None) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, kind, sharding=where)


_STEPS = {'train': _step, 'evaluate': _step}
_SEARCHES = {'search': _search, 'search_alone': _search}
# config.task -> name of a program -> what traces it.
TASKS: dict[str, dict[str, Callable[..., Traced]]] = {
  'retro': {**_STEPS, 'decode': _decode},
  'realm': {**_STEPS, **_SEARCHES, 'embed': _embed},
  'open_qa': _SEARCHES,
}


def trace(config: Config, devices: Devices, name: str, **sizes: int) -> Traced:
  """Trace a program of a config.

  Args:
    sizes: num_blocks, of a search; ORQA's by default.

  Raises:
    ValueError: for an unknown one, or a config that does not fit the devices.
  """
  tracers = TASKS.get(config.task, {})
  if name not in tracers:
    raise ValueError(
      f'--program={name!r}: config.task {config.task!r} has {sorted(tracers)}.'
    )
  return tracers[name](config, devices, name, **sizes)
