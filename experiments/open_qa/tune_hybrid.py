# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Choose the weight of hybrid retrieval on held-out questions.

  python -m experiments.tune_hybrid --config=configs/open_qa_<name>.py --workdir=DIR \
    --config.tune_hybrid.sets="('runs/ask/retrieval/webquestions_dev',)"

Each set is a question set that experiments.retrieve --kinds=dense,bm25 has ranked: the
start of the names of its files SET.dense.run, SET.bm25.run and SET.qrels. For each
weight, the share of words in `retrieval.search.fuse.by_scores`, and for the fusion of
ranks, the command prints recall@K, MRR and nDCG@10 in percent with 95 % intervals. The
weight with the highest measure, the mean over sets, is chosen; the smallest of equal
ones. It is config.lookup.words_weight of training, config.evaluate.words_weight of
evaluation. Writes DIR/tune_hybrid.json.
"""

from collections.abc import Sequence
import dataclasses
import os
import pathlib
from typing import Any

import numpy as np

from experiments.engine import reports
from retrieval import settings
from retrieval.questions import ranking, trec_files
from retrieval.search import fuse

FILE = 'tune_hybrid.json'
RANKS = 'ranks'  # the row of `fuse.by_ranks`


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneHybrid:
  """Ranked question sets, and the weights that they choose among."""

  sets: tuple[str, ...] = ()
  weights: tuple[settings.Share, ...] = tuple(i / 10 for i in range(11))
  vectors: str = 'dense'  # kind of the run by vectors
  words: str = 'bm25'  # kind of the run by words
  measure: str = 'recall@5'  # which chooses


@dataclasses.dataclass(frozen=True)
class Ranked:
  """The blocks of two runs for the questions of a set."""

  questions: list[str]  # [b]
  blocks: list[str]  # names of block 0, 1, ...
  lists: list[fuse.Found]  # of vectors, of words: [b, n] each

  def run_of(self, found: fuse.Found) -> trec_files.Run:
    """Return fused lists as a run."""
    return {
      question: [
        (self.blocks[i], float(score))
        for i, score in zip(*row, strict=True)
        if i >= 0
      ]
      for question, *row in zip(self.questions, *found, strict=True)
    }


def ranked(runs: Sequence[trec_files.Run]) -> Ranked:
  """Number the questions and blocks of runs."""
  questions = list(dict.fromkeys(q for run in runs for q in run))
  names = dict.fromkeys(
    x for run in runs for row in run.values() for x, _ in row
  )
  numbers = {name: i for i, name in enumerate(names)}
  lists = []
  for run in runs:
    shape = len(questions), max(map(len, run.values()))
    ids, scores = np.full(shape, -1), np.full(shape, -np.inf, np.float32)
    for i, question in enumerate(questions):
      for j, (name, score) in enumerate(run.get(question, ())):
        ids[i, j], scores[i, j] = numbers[name], score
    lists.append((ids, scores))
  return Ranked(questions, list(names), lists)


def measure(
  found: Ranked, qrels: trec_files.Qrels, weights: Sequence[float]
) -> dict[str, ranking.Values]:
  """Return the measures of the fusion by ranks and of each weight."""
  depth = max(ids.shape[1] for ids, _ in found.lists)
  fused = {RANKS: fuse.by_ranks([ids for ids, _ in found.lists], depth)}
  for weight in weights:
    pair = 1 - weight, weight
    fused[f'{weight:g}'] = fuse.by_scores(found.lists, pair, depth)
  return {
    name: ranking.measure(
      *trec_files.relevance(found.run_of(lists), qrels, found.questions, depth)
    )
    for name, lists in fused.items()
  }


def choose(
  values: Sequence[dict[str, ranking.Values]], name: str
) -> tuple[str, dict[str, float]]:
  """Return the best weight, and the mean of a measure over sets by weight.

  Raises:
    ValueError: for an unknown measure.
  """
  for found in values[0].values():
    if name not in found:
      raise ValueError(
        f'tune_hybrid.measure={name}: expected one of {list(found)}.'
      )
  means = {
    weight: float(np.mean([of_set[weight][name].mean() for of_set in values]))
    for weight in values[0]
  }
  by_weight = [weight for weight in means if weight != RANKS]
  return max(by_weight, key=lambda x: (means[x], -float(x))), means


def _record(values: ranking.Values) -> dict[str, Any]:
  return {
    name: dataclasses.asdict(x) for name, x in ranking.intervals(values).items()
  }


def tune_hybrid(config: Any, workdir: str, wanted: TuneHybrid) -> None:
  """Measure every weight on every set, and print the best."""
  del config
  if not wanted.sets:
    raise ValueError(
      'tune_hybrid.sets is empty: expected ranked question sets.'
    )
  weights, values, records = sorted({*wanted.weights}), [], {}
  for stem in wanted.sets:
    runs = [
      trec_files.read_run(f'{stem}.{kind}.run')
      for kind in (wanted.vectors, wanted.words)
    ]
    qrels = trec_files.read_qrels(f'{stem}.qrels')
    values.append(measure(ranked(runs), qrels, weights))
    record = {name: _record(x) for name, x in values[-1].items()}
    records[os.path.basename(stem)] = record
    count = len(next(iter(values[-1][RANKS].values())))
    names = list(record[RANKS])
    reports.print_table(
      ['words', *names],
      [[w, *(reports.share(x[n]) for n in names)] for w, x in record.items()],
      f'{os.path.basename(stem)}: {count:,} questions; percent',
    )
  best, means = choose(values, wanted.measure)
  print(
    f'{wanted.measure}: {100 * means[best]:.1f} at --config.evaluate.words_weight='
    f'{best}, {100 * means[RANKS]:.1f} by ranks.'
  )
  content = {'measure': wanted.measure, 'chosen': float(best), 'means': means}
  reports.write_json(pathlib.Path(workdir) / FILE, content | {'sets': records})
