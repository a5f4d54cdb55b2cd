# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of `experiments.accelerators.sheet`: programs, their configs and batches."""

from collections.abc import Callable, Mapping
import dataclasses
import importlib
import time
from typing import Any

import jax.numpy as jnp

from experiments.engine import configs, rooms

CHUNK = 64  # tokens that decoding draws in one call
_MINILM = {'d_model': 384, 'd_ff': 1536, 'num_layers': 6}
_BERT = {'d_model': 768, 'd_ff': 3072, 'num_layers': 12}
_ALONE = {'mesh.fsdp': 1, 'mesh.tensor': 1, 'optimizer.accumulate_steps': 1}
_PARTS = ('embedder', 'encoder')
_BATCHES = (32, 16, 8, 4, 2, 1)
_TORCH_ROUNDS = 5
# Of a rehearsal.
_TINY = {'num_layers': 1, 'd_model': 24, 'd_ff': 24, 'num_heads': 2}
_TINY_TOKENS, _TINY_BLOCKS = 512, 8192


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """A program of a config, at the largest of some batches that fits."""

  what: str
  config: str  # module in configs/, with its argument
  program: str = 'train'
  field: str = 'batch_size'  # what a batch sets
  batches: tuple[int, ...]  # the largest first
  fields: Mapping[str, Any]
  sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
  unit: str = 'sequences'
  units: Callable[[int], float] = float  # that a run makes, of the batch
  # (arguments) -> arguments whose values decide how much is done
  given: Callable[[tuple], tuple] = lambda x: x
  torch: Mapping[str, int] | None = None  # sizes of the same encoder


def _embedding(what: str, sizes: Mapping[str, int]) -> Row:
  length = 128
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


# In the order of their worth for the time they take to compile.
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
      given=lambda x: (*x[:-1], jnp.asarray([0, CHUNK], jnp.int32)),
    )
    for size in ('172m', '425m')
    for rows in (1, 32)
  ),
  _embedding('MiniLM', _MINILM),
  _embedding('BERT base', _BERT),
  *(
    Row(
      what=f'13,353,718 vectors searched, k = {k:,}',
      config='open_qa_released:base',
      program='search_alone',
      batches=(64,),
      fields={'lookup.retriever_beam': k, 'vectors.dtype': 'bfloat16'},
      unit='questions',
      given=lambda x: (x[0], x[1]._replace(count=jnp.int32(len(x[1].rows)))),
    )
    for k in (5, 5000)
  ),
  Row(
    what='REALM, step',
    config='realm_pretrain_base:base',
    batches=_BATCHES[1:],
    fields=_ALONE,
    unit='examples',
  ),
)


def tiny(row: Row) -> Row:
  """Return the same program at a size that a CPU compiles and runs in seconds."""
  changes: dict[str, Any] = {'batches': row.batches[-1:]}
  if row.config.startswith('retro'):
    kind = 'baseline_test' if row.config.endswith('_baseline') else 'test'
    changes['config'] = f'retro_published:{kind}'
  elif row.program == 'search_alone':
    changes['sizes'] = {'num_blocks': _TINY_BLOCKS}
  else:
    changes['fields'] = {
      **row.fields,
      **{f'{part}.{k}': x for part in _PARTS for k, x in _TINY.items()},
      'layout.num_candidates': 2,
    }
  if row.program == 'embed':
    changes['batches'] = (_TINY_TOKENS,)
  return dataclasses.replace(row, **changes)


def config_of(row: Row, batch: int):
  """Return the config of a row with a batch."""
  name, _, argument = row.config.partition(':')
  given = importlib.import_module(f'configs.{name}').get_config(argument)
  config = configs.build(rooms.config_class(given.task), given)
  return configs.replaced(config, **{**row.fields, row.field: batch})


def torch_rate(sizes: Mapping[str, int], tokens: int) -> float | None:
  """Return chunks a second of PyTorch's encoder in bfloat16, on the same device.

  Args:
    sizes: d_model, d_ff, num_layers, and length: wordpieces of a chunk.
    tokens: wordpieces of a batch.

  Returns:
    None without PyTorch and its device.
  """
  try:
    import torch
  except ImportError:
    return None
  if not torch.cuda.is_available():
    return None
  placed = {'device': 'cuda', 'dtype': torch.bfloat16}
  layer = torch.nn.TransformerEncoderLayer(
    sizes['d_model'],
    nhead=12,
    dim_feedforward=sizes['d_ff'],
    activation='gelu',
    batch_first=True,
    **placed,
  )
  model = torch.nn.TransformerEncoder(layer, sizes['num_layers']).eval()
  rows = tokens // sizes['length']
  hidden = torch.zeros((rows, sizes['length'], sizes['d_model']), **placed)
  with torch.inference_mode():
    for number in range(_TORCH_ROUNDS + 1):
      if number == 1:
        torch.cuda.synchronize()
        start = time.perf_counter()
      model(hidden)
    torch.cuda.synchronize()
  return _TORCH_ROUNDS * rows / (time.perf_counter() - start)
