# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures of a classifier of claims."""

from collections.abc import Sequence
import dataclasses
import json
import pathlib
from typing import Any

import numpy as np

from experiments.engine import reports
from realm_jax.serving import claim_answers
from retrieval.questions import bootstrap, claims as claims_lib
from retrieval.store import store
from retrieval.text import blocks as blocks_lib


def confusion(
  gold: np.ndarray, predicted: np.ndarray, num_classes: int
) -> np.ndarray:
  """Claims by class: [N, N] int64, gold class by row, predicted by column."""
  table = np.zeros((num_classes, num_classes), np.int64)
  np.add.at(table, (gold, predicted), 1)
  return table


def macro_f1(table: np.ndarray) -> float:
  """Mean F1 of the classes of a `confusion` that are gold or predicted."""
  right, all_of = np.diag(table), table.sum(axis=0) + table.sum(axis=1)
  there = all_of > 0
  return float(np.mean(2 * right[there] / all_of[there]))


def measure(
  classified: Sequence[claim_answers.Classified],
  num_classes: int,
  ks: Sequence[int],
) -> dict[str, Any]:
  """Measure classified claims whose labels are known.

  Args:
    ks: numbers of blocks to search for evidence, at most the retrieved ones.

  Returns:
    `claims`, their number; `confusion`; `macro_f1`; `accuracy`, `majority` (of
    the commonest class) and, over the claims that name documents,
    `evidence_top_k` and `evidence_decided`: {mean, low, high}, a 95 % interval.
  """
  gold = np.asarray([found.claim.label for found in classified])
  predicted = np.asarray([found.predicted for found in classified])
  table = confusion(gold, predicted, num_classes)
  values = {
    'accuracy': gold == predicted,
    'majority': gold == table.sum(axis=1).argmax(),
  }
  named = [found for found in classified if found.claim.titles]
  if named:
    evidence = np.stack([found.evidence for found in named])
    for k in sorted({min(k, evidence.shape[1]) for k in ks}):
      values[f'evidence_top_{k}'] = evidence[:, :k].any(axis=1)
    values['evidence_decided'] = np.asarray(
      [found.evidence[found.rank] for found in named]
    )
  return {
    'claims': len(classified),
    'confusion': table.tolist(),
    'macro_f1': macro_f1(table),
  } | {
    name: dataclasses.asdict(bootstrap.bootstrap(x.astype(np.float64)))
    for name, x in values.items()
  }


def write_predictions(
  path: pathlib.Path,
  classified: Sequence[claim_answers.Classified],
  labels: Sequence[str],
  blocks: blocks_lib.BlockStore,
) -> None:
  """Write a JSON line for each claim; an unknown `label` is null."""
  lines = []
  for found in classified:
    label = found.claim.label
    line = {
      'id': found.claim.id,
      'claim': found.claim.claim,
      'label': None if label == claims_lib.NO_LABEL else labels[label],
      'predicted': labels[found.predicted],
      'probability': float(found.probabilities[found.predicted]),
      'block': found.block,
      'passage': blocks.names([found.block])[0],
      'title': blocks.titles([found.block])[0],
    }
    lines.append(json.dumps(line, ensure_ascii=False) + '\n')
  path.parent.mkdir(parents=True, exist_ok=True)
  store.write_atomically(path, ''.join(lines).encode())


def print_measures(row: dict[str, Any], labels: Sequence[str]) -> None:
  """Print the measures of a set, and its table of classes."""
  lines = [('claims', f'{row["claims"]:,}')]
  lines.append(('macro_f1', f'{100 * row["macro_f1"]:.1f}'))
  shares = {name: x for name, x in row.items() if isinstance(x, dict)}
  lines += [(name, reports.share(x)) for name, x in shares.items()]
  reports.print_table(('measure', row['dataset']), lines)
  classes = zip(labels, row['confusion'], strict=True)
  lines = [(label, *map(str, counts)) for label, counts in classes]
  reports.print_table(('is \\ predicted', *labels), lines, wrap=True)
