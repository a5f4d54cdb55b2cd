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
import pathlib
from typing import Any

import numpy as np

from experiments.engine import hybrid_weights, reports
from retrieval import settings
from retrieval.questions import ranking, trec_files
from retrieval.search import fuse


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneHybrid:
  """Ranked question sets, and the weights that they choose among."""

  sets: tuple[str, ...] = ()
  weights: tuple[settings.Share, ...] = hybrid_weights.WEIGHTS
  measure: str = 'recall@5'  # which chooses


def measure(
  runs: Sequence[trec_files.Run],
  qrels: trec_files.Qrels,
  weights: Sequence[float],
) -> hybrid_weights.Values:
  """Measure the fusion of two runs, of vectors and of words, by ranks and by weights."""
  questions = list(dict.fromkeys(q for run in runs for q in run))
  blocks = dict.fromkeys(x for run in runs for q in run for x, _ in run[q])
  numbers = {name: i for i, name in enumerate(blocks)}
  lists = [_arrays(run, questions, numbers) for run in runs]
  depth, names = max(ids.shape[1] for ids, _ in lists), [*blocks]
  values = {}
  for weight, (ids, _) in hybrid_weights.fused(lists, weights, depth).items():
    run = {
      question: [(names[i], 0.0) for i in row if i >= 0]
      for question, row in zip(questions, ids.tolist(), strict=True)
    }
    relevance = trec_files.relevance(run, qrels, questions, depth)
    values[weight] = ranking.measure(*relevance, ranking.usual(depth))
  return values


def _arrays(
  run: trec_files.Run, questions: Sequence[str], numbers: dict[str, int]
) -> fuse.Found:
  """Return blocks by number, and scores, of each question: [b, n]."""
  shape = len(questions), max(map(len, run.values()))
  ids, scores = np.full(shape, -1), np.full(shape, -np.inf, np.float32)
  for i, question in enumerate(questions):
    for j, (name, score) in enumerate(run.get(question, ())):
      ids[i, j], scores[i, j] = numbers[name], score
  return ids, scores


def tune_hybrid(config: Any, workdir: str, wanted: TuneHybrid) -> None:
  """Measure every weight on every set, and print the best."""
  del config
  if not wanted.sets:
    raise ValueError(
      'tune_hybrid.sets is empty: expected ranked question sets.'
    )
  values, records = [], {}
  for stem in wanted.sets:
    runs = [
      trec_files.read_run(f'{stem}.{kind}.run') for kind in ('dense', 'bm25')
    ]
    qrels = trec_files.read_qrels(f'{stem}.qrels')
    found = measure(runs, qrels, wanted.weights)
    first = found[hybrid_weights.RANKS]
    if wanted.measure not in first:
      raise ValueError(
        f'tune_hybrid.measure={wanted.measure}: expected one of {list(first)}.'
      )
    name = pathlib.Path(stem).name
    title = f'{name}: {len(first["MRR"]):,} questions; percent'
    records[name] = hybrid_weights.show(found, title)
    values.append(found)
  best, means = hybrid_weights.choose(values, wanted.measure)
  print(
    f'{wanted.measure}: {100 * means[best]:.1f} at --config.evaluate.words_weight='
    f'{best}, {100 * means[hybrid_weights.RANKS]:.1f} by ranks.'
  )
  content = {'measure': wanted.measure, 'chosen': float(best), 'means': means}
  reports.write_json(
    pathlib.Path(workdir) / hybrid_weights.FILE, content | {'sets': records}
  )
