# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The rows of RETRO's claims, as changes of the quickstart's config."""

from collections.abc import Mapping
import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """One model: changes of the config, and of where it starts and what it reads."""

  name: str
  changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  branches: float = 1.0  # factor on the decoder's branches at the start
  output: float = 1.0  # factor on what cross-attention adds, at the start
  gate: float = 0.0  # that many times a learned number, 0 at the start; 0: none
  ramp: int = 0  # steps in which what cross-attention adds grows from 0
  off: float = 0.0  # share of the training rows without neighbors
  # The decoder learns from text without neighbors, cross-attention from text with
  # them, side by side.
  apart: bool = False
  source: str = 'dense'
  fresh: bool = False  # whether the other splits are read, too


def _size(d: int) -> dict[str, Any]:
  fields = {'model.init_scale': 0.07 * (128 / d) ** 0.5}
  for prefix in ('', 'encoder_'):
    sizes = {'d_model': d, 'd_ff': 4 * d, 'num_heads': d // 32}
    fields |= {f'model.{prefix}{name}': x for name, x in sizes.items()}
  return fields


_BASELINE = {'retrieval': False}
_PLAIN = {'model.copy_init': False}
_LONG, _SAME_TIME, _WIDE = (
  {'num_steps': 2500},
  {'num_steps': 1350},
  {'model.d_ff': 960},
)

# Of a rehearsal.
TINY = {**_size(32), 'optimizer.warmup_steps': 0}

# In the order of their worth.
ROWS = (
  Row(name='baseline_plain', changes=_BASELINE | _PLAIN, fresh=True),
  Row(name='baseline_copy', changes=_BASELINE, fresh=True),
  Row(name='retro_copy', fresh=True),
  Row(name='retro_plain', changes=_PLAIN, fresh=True),
  Row(name='retro_plain_zero', changes=_PLAIN, output=0.0, fresh=True),
  Row(name='retro_apart', apart=True, fresh=True),
  Row(name='retro_off_25', off=0.25, fresh=True),
  Row(name='retro_out_03', output=0.3),
  Row(name='retro_out_01', output=0.1),
  Row(name='retro_copy_plain', branches=10.0, fresh=True),
  Row(name='baseline_plain_time', changes=_BASELINE | _PLAIN | _SAME_TIME),
  Row(name='baseline_copy_time', changes=_BASELINE | _SAME_TIME),
  Row(name='baseline_plain_wide', changes=_BASELINE | _PLAIN | _WIDE),
  Row(name='baseline_copy_wide', changes=_BASELINE | _WIDE, fresh=True),
  Row(name='retro_gate', gate=4.0),
  Row(name='retro_ramp', ramp=100),
  Row(name='retro_n', changes={'neighbor_part': 'neighbor'}),
  Row(name='retro_f', changes={'neighbor_part': 'continuation'}),
  Row(name='retro_no_query', changes={'model.query_conditioning': False}),
  Row(name='retro_all', changes={'model.cca_layers': (1, 2, 3, 4)}),
  Row(name='retro_bm25', source='bm25'),
  Row(name='retro_k10', changes={'num_neighbors': 10}),
  Row(name='retro_plain_long', changes=_PLAIN | _LONG),
  Row(name='retro_copy_long', changes=_LONG),
  Row(name='baseline_copy_long', changes=_BASELINE | _LONG),
  Row(name='retro_apart_long', changes=_LONG, apart=True),
  Row(name='retro_copy_untrained', changes={'num_steps': 0}),
  Row(name='baseline_copy_untrained', changes=_BASELINE | {'num_steps': 0}),
  Row(name='retro_out_3', output=3.0, fresh=True),
  Row(
    name='retro_k10_out_3',
    changes={'num_neighbors': 10},
    output=3.0,
    fresh=True,
  ),
  Row(name='retro_out_10', output=10.0),
  Row(name='retro_out_3_off_25', output=3.0, off=0.25),
  Row(name='retro_out_3_apart', output=3.0, apart=True),
  Row(name='retro_copy_d256', changes=_size(256)),
  Row(name='baseline_copy_d256', changes=_BASELINE | _size(256)),
)
