# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trackers that metrics also go to, where config.metrics names one: a hook for each.

Each is a package, imported here alone, with its variables for project,
server and account (WANDB_PROJECT, MLFLOW_TRACKING_URI, ...). A run that continues is
the same run there: its name and id come from the workdir.
"""

from collections.abc import Callable, Mapping
import hashlib
import importlib
import pathlib
from typing import Any

NAMES = ('wandb', 'mlflow', 'trackio')
_PROJECT = 'realm-retro'

Log = Callable[[int, Mapping[str, float]], None]


def start(
  kind: str, workdir: str, fields: Mapping[str, Any]
) -> tuple[Log, Callable[[], None]]:
  """Start or continue a run of a tracker.

  Args:
    kind: of `NAMES`.
    workdir: the run's folder, whose name is the run's.
    fields: the run's config.

  Returns:
    A function that takes a step and its metrics, and one that ends the run.

  Raises:
    ValueError: when the tracker is not installed.
  """
  try:
    tracker = importlib.import_module(kind)
  except ImportError as error:
    raise ValueError(
      f"config.metrics='{kind}': {error}; pip install {kind}"
    ) from None
  path = pathlib.Path(workdir).absolute()
  same = hashlib.sha256(str(path).encode()).hexdigest()[:16]
  if kind == 'mlflow':
    runs = tracker.search_runs(
      filter_string=f"tags.workdir = '{same}'", output_format='list'
    )
    known = {'run_id': runs[0].info.run_id} if runs else {}
    tracker.start_run(run_name=path.name, tags={'workdir': same}, **known)
    tracker.log_dict(dict(fields), 'config.json')
    return lambda step, x: tracker.log_metrics({**x}, step), tracker.end_run
  if kind == 'wandb':
    place = {'id': same, 'dir': str(path)}
  else:
    place = {'project': _PROJECT}
  tracker.init(name=path.name, config={**fields}, resume='allow', **place)
  return lambda step, x: tracker.log({**x}, step=step), tracker.finish
