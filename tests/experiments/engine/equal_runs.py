# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics that are equal between equal runs."""

import pathlib
from typing import Any

from experiments.engine import metric_writer

_TIMED = (
  'steps_per_sec',
  'tokens_per_sec',
  'model_flops_per_sec',
  'data_wait_share',
  'index_wait_sec',
)


def rows(workdir: pathlib.Path) -> list[dict[str, Any]]:
  """All metrics of a run but those of the clock."""
  return [
    {k: v for k, v in row.items() if k not in _TIMED}
    for row in metric_writer.read(workdir)
  ]
