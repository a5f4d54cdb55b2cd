# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sections of a config that all models share."""

from collections.abc import Mapping
import dataclasses
from typing import Annotated, Literal

from retrieval import settings
from retrieval.nn import sharding

AxisSize = Literal[-1] | Annotated[int, settings.Range(1, 2**20)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mesh:
  """Devices along each axis of the mesh; -1 for one axis: the rest."""

  data: AxisSize = -1
  fsdp: AxisSize = 1
  tensor: AxisSize = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Questions:
  """Question sets, each as NAME:SPLIT or NAME:SPLIT=FILE,...

  `retrieval/questions/question_sets.py` lists the names.
  """

  train: tuple[str, ...] = ()
  dev: tuple[str, ...] = ()
  max_train: settings.Count = 0  # of all sets together; 0: all questions
  # Whether files may hold another number of questions than is published.
  allow_other_counts: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loop:
  """Fields of the training loop, and the devices that it runs on."""

  log_every: settings.Steps = 10  # steps
  keep_checkpoints: settings.Count = 2  # the newest; 0: all
  # Metric in metrics.jsonl, such as 'valid/loss': the step in which it is best is
  # retained beside the newest. eval_every is then a multiple of checkpoint_every.
  best_metric: str = ''
  best_mode: Literal['min', 'max'] = 'min'  # what is best
  profile_steps: settings.Count = 0
  mesh: Mesh = Mesh()
  # Logical axis -> mesh axis, several, or '' for none. As a flag:
  # --config.sharding_rules.vocab=fsdp.
  sharding_rules: Mapping[str, str | tuple[str, ...]] = dataclasses.field(
    default_factory=lambda: {
      name: axes or '' for name, axes in sharding.RULES.items()
    }
  )
  # checksums of stored files: compared when a process first opens one, or never
  verify: Literal['once', 'off'] = 'once'
  # True: one process of several, each on its host
  distributed: bool = False
  num_steps: settings.Steps
  eval_every: settings.Steps
  eval_batches: settings.Count  # 0: no validation
  checkpoint_every: settings.Steps
