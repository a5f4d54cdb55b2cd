# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of `experiments.accelerators.sheet`: programs, their configs and batches."""

from collections.abc import Callable, Mapping
import dataclasses
import importlib
from typing import Any

import jax.numpy as jnp

from experiments.engine import configs, rooms

_MINILM = {'d_model': 384, 'd_ff': 1536, 'num_layers': 6}
_BERT = {'d_model': 768, 'd_ff': 3072, 'num_layers': 12}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """A program of a config, at the largest of some batches that fits."""

  what: str
  config: str  # module in configs/, with its argument
  program: str = 'train'
  field: str = 'batch_size'  # what a batch sets
  batches: tuple[int, ...] = (1,)  # the largest first
  fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  unit: str = 'sequences'
  # Units that a run makes, of the batch; None: the batch.
  units: Callable[[int], float] | None = None
  # (arguments) -> arguments whose values decide how much is done
  given: Callable[[tuple], tuple] | None = None
  torch: Mapping[str, int] | None = None  # sizes of the same encoder


_ALONE = {'mesh.fsdp': 1, 'mesh.tensor': 1, 'optimizer.accumulate_steps': 1}
_BATCHES = (32, 16, 8, 4, 2, 1)
CHUNK = 64  # tokens that decoding draws in one call


def _draw_a_chunk(arguments: tuple) -> tuple:
  return *arguments[:-1], jnp.asarray([0, CHUNK], jnp.int32)


def _embedding(what: str, sizes: Mapping[str, int], length: int) -> Row:
  fields = {f'embedder.{name}': x for name, x in sizes.items()}
  return Row(
    what=f'{what}, chunks of {length} wordpieces',
    config='realm_pretrain_base:base',
    program='embed',
    field='vectors.batch_tokens',
    batches=(2**18, 2**16, 2**14),
    fields=_ALONE | fields | {'blocks.max_length': length},
    unit='chunks',
    units=lambda tokens: tokens // length,
    torch={**sizes, 'length': length},
  )


ROWS = (
  *(
    Row(
      what=f'RETRO {size}{kind.replace("_", " ")}, step',
      config=f'retro_published:{size}{kind}',
      batches=_BATCHES,
      fields=_ALONE,
    )
    for size in ('172m', '425m')
    for kind in ('', '_baseline')
  ),
  *(
    Row(
      what=f'RETRO {size}, decoding of {rows}',
      config=f'retro_published:{size}',
      program='decode',
      batches=(rows,),
      fields=_ALONE,
      unit='tokens',
      units=lambda rows: rows * CHUNK,
      given=_draw_a_chunk,
    )
    for size in ('172m', '425m')
    for rows in (1, 32)
  ),
  _embedding('MiniLM', _MINILM, 128),
  _embedding('BERT base', _BERT, 128),
  Row(
    what='REALM, step',
    config='realm_pretrain_base:base',
    batches=_BATCHES[1:],
    fields=_ALONE,
    unit='examples',
  ),
  *(
    Row(
      what=f'13,353,718 vectors searched, k = {k:,}',
      config='open_qa_released:base',
      program='search_alone',
      batches=(64,),
      fields={
        'lookup.retriever_beam': k,
        'vectors.dtype': 'bfloat16',
      },
      unit='questions',
      given=lambda x: (
        x[0],
        x[1]._replace(count=jnp.int32(len(x[1].rows))),
        *x[2:],
      ),
    )
    for k in (5, 5000)
  ),
)


def config_of(row: Row, batch: int):
  """Return the config of a row with a batch."""
  name, _, argument = row.config.partition(':')
  given = importlib.import_module(f'configs.{name}').get_config(argument)
  config = configs.build(rooms.config_class(given.task), given)
  return configs.replaced(config, **{**row.fields, row.field: batch})
