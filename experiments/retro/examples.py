# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluating on JSON lines of examples: what retro_lambada and retro_summary share."""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import json
import os
import pathlib
from typing import Any

import ml_collections
import numpy as np
import rich.box
import rich.table

from experiments.engine import progress
from experiments.retro import evaluate as retro_evaluate
from experiments.retro import task as retro_task
from retrieval.questions import bootstrap
from retrieval.readers import base as readers
from retrieval.store import store
from retro_jax.evaluation import continuations


@dataclasses.dataclass(frozen=True)
class Mode:
  """A model and how it retrieves.

  Attributes:
    name: of the row.
    retrieval: 'on' or 'off'.
    num_neighbors: k.
    trained: the model.
    retrieve: None without retrieval.
    workdir: of the model's run.
  """

  name: str
  retrieval: str
  num_neighbors: int
  trained: retro_task.Trained
  retrieve: continuations.RetrieveFn | None
  workdir: str


def read(
  settings: ml_collections.ConfigDict, fields: Sequence[Sequence[str]]
) -> list[tuple[str, ...]]:
  """Reads the examples that a config names.

  Args:
    settings: the config's `examples`: path of JSON lines, which may be packed as
      .gz, .bz2 or .xz, and max_examples, the first so many, 0 for all.
    fields: for each value the fields that may hold it; the first one found does.

  Returns:
    The values of each example.

  Raises:
    FileNotFoundError: for a missing file.
    ValueError: naming the line that is bad; for an empty path or file.
  """
  if not settings.path:
    raise ValueError(
      'examples.path is empty: expected a file of JSON lines with '
      f'{" and ".join("|".join(names) for names in fields)}.'
    )
  path, found = pathlib.Path(settings.path), []
  if not path.is_file():
    raise FileNotFoundError(f'{path}: no such file of examples.')
  for where, record in readers.json_lines(path):
    found.append(
      tuple(
        readers.string(
          record, next((n for n in names if n in record), names[0]), where
        )
        for names in fields
      )
    )
    if len(found) == settings.max_examples:
      break
  if not found:
    raise ValueError(f'{path}: holds no example.')
  return found


def modes(
  config: ml_collections.ConfigDict, workdir: str | os.PathLike
) -> Iterator[Mode]:
  """RETRO with retrieval on and off, and its baseline where the config names one.

  Args:
    config: `evaluate` has workdir, baseline_workdir and k as the first of
      num_neighbors; `embedder` and `data_dir`.
    workdir: of the run, unless `evaluate` names another.

  Yields:
    One after the other; of a baseline alone, one.

  Raises:
    FileNotFoundError: for a folder without a checkpoint or without data.
    ValueError: when the baseline retrieves.
  """
  settings = config.evaluate
  run = str(settings.workdir or workdir)
  trained = retro_task.load(run, config.data_dir)
  if trained.model.config.cca_layers:
    trained.config.embedder = config.embedder
    k = retro_evaluate.numbers_of_neighbors(settings)[0]
    retriever = trained.data.retriever(trained.config)
    retrieve = retriever.retrieve_tokens
    yield Mode(f'RETRO, k={k}', 'on', k, trained, retrieve, run)
    yield Mode('RETRO off', 'off', 0, trained, None, run)
  else:
    yield Mode('baseline', 'off', 0, trained, None, run)
  if settings.baseline_workdir:
    baseline = retro_task.load(
      settings.baseline_workdir, str(trained.data.root)
    )
    if baseline.model.config.cca_layers:
      raise ValueError(
        f'{settings.baseline_workdir}: evaluate.baseline_workdir names a model that '
        'retrieves; expected one trained with the baseline config.'
      )
    yield Mode('baseline', 'off', 0, baseline, None, settings.baseline_workdir)


def row(
  mode: Mode, field: str, values: np.ndarray, weights: np.ndarray | None = None
) -> dict[str, Any]:
  """A row of results as JSON: the mean with its interval, over examples."""
  found = bootstrap.bootstrap(values, weights)
  return {
    'name': mode.name,
    'retrieval': mode.retrieval,
    'num_neighbors': mode.num_neighbors,
    'step': mode.trained.step,
    'workdir': mode.workdir,
    'examples': len(values),
    field: found.mean,
    'low': found.low,
    'high': found.high,
  }


def report(
  rows: Sequence[dict[str, Any]],
  field: str,
  path: pathlib.Path,
  settings: ml_collections.ConfigDict,
) -> None:
  """Prints the rows and writes them as JSON, whole or not at all."""
  table = rich.table.Table(
    title=f'{rows[0]["examples"]:,} examples',
    caption='Interval: 95 % of a bootstrap over examples.',
    box=rich.box.SIMPLE_HEAD,
  )
  table.add_column('model', no_wrap=True)
  for head in (field.replace('_', ' '), 'interval'):
    table.add_column(head, justify='right', no_wrap=True)
  for x in rows:
    interval = f'{x["low"]:.4f} {x["high"]:.4f}'
    table.add_row(x['name'], f'{x[field]:.4f}', interval)
  content = {'rows': list(rows), 'settings': json.loads(settings.to_json())}
  text = json.dumps(retro_evaluate.finite(content), indent=2, allow_nan=False)
  path.parent.mkdir(parents=True, exist_ok=True)
  store.write_atomically(path, f'{text}\n'.encode())
  progress.console().print(table)
