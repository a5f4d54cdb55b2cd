# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluators of REALM: the gain of retrieval, and the recall of the retriever.

On held-out sentences with a masked span: log-probability, accuracy and exact spans
with the retrieved documents, with the null document only, and with random documents.
For files of questions: zero-shot recall, the share of questions with an answer in k
blocks, before and after training, beside BM25 on the same blocks. Before fine-tuning
there is no reader, but an answer in the text of the first 5 blocks shows that the
retriever works (Guu et al. 2020, table 2). DPR's top-k accuracy is the same measure by
another rule of `retrieval.questions.answers`.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import itertools
import pathlib
from typing import Any

from absl import logging
import numpy as np

from experiments.engine import evaluations, progress, reports
from experiments.realm import (
  config as config_lib,
  starts,
  task as realm_task,
)
from realm_jax.data import pipeline
from realm_jax.trained import embedders, explain, loading, realm
from retrieval import settings
from retrieval.index import text_index
from retrieval.questions import answer_search, bootstrap, question_files
from retrieval.text import blocks as blocks_lib

FILE = 'evaluation.json'
_MEASURES = ('log_prob', 'accuracy', 'exact_span')
_BATCH = 256  # questions in a call of the retriever
# [b] questions, k -> [b, k] int64 block ids, best first; -1 is no block.
Retrieve = Callable[[Sequence[str], int], np.ndarray]
KS = (1, 5, 20, 100)
_RULES = ('substring', 'dpr')  # of answers that are strings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate:
  """Evaluation of REALM."""

  step: str = ''  # a number, 'best' (by best_metric), or '' for the newest
  num_batches: settings.Steps = 32  # of held-out sentences
  # files, in the forms of retrieval/questions/question_files.py
  questions: tuple[str, ...] = ()
  max_questions: settings.Count = 0  # of each file; 0: all


def evaluate(
  config: config_lib.Config, workdir: str, options: Evaluate
) -> None:
  """Evaluate a checkpoint of `workdir`; write <workdir>/evaluation.json."""
  trained = loading.load(
    workdir, config.data_dir, step=options.step, part='realm'
  )
  logging.info('Evaluating step %d of %s.', trained.step, workdir)
  run = config_lib.of_run(workdir, options.step)
  index = open_index(trained)
  result: dict[str, Any] = {'step': trained.step}
  rows = []
  if 'encoder' in trained.params:  # a run of ICT has no encoder
    result['masked'] = measure_utility(run, trained, index, options.num_batches)
    _print_utility(result['masked'])
  path = pathlib.Path(workdir) / FILE
  blocks = trained.data.blocks.fingerprint
  evaluations.write(path, rows, blocks=blocks, **result)
  if options.questions:
    data = trained.data
    words = text_index.TextIndices(data.root, data.blocks).words('bm25')
    start = starts.untrained(run, data, trained.index_folder)
    retrievers = {
      'before': _dense(open_index(start), start),
      f'step {trained.step}': _dense(index, trained),
      'BM25': lambda texts, k: words.search(texts, k)[0],
    }
    rows = measure_recall(
      retrievers, data.blocks, options.questions, options.max_questions
    )
    _print_recall([row.facts for row in rows])
    evaluations.write(path, rows, blocks=blocks, **result)
  logging.info('Written to %s.', path)


def open_index(trained: realm.TrainedRealm) -> embedders.BlockIndex:
  """Open a model's index; show progress while it is built."""
  with progress.bar('index', 'blocks') as update:
    return trained.open_index(progress=update)


def _dense(
  index: embedders.BlockIndex, trained: realm.TrainedRealm
) -> Retrieve:
  tokenizer, layout = trained.data.tokenizer, trained.layout
  return lambda texts, k: index.retrieve_texts(texts, k, tokenizer, layout)


def first_hits(
  retrieve: Retrieve,
  blocks: blocks_lib.BlockStore,
  questions: Sequence[question_files.Question],
  update: Callable[[int, int], None],
) -> dict[str, np.ndarray]:
  """Rank the first block with an answer among the first `KS[-1]`.

  Args:
    questions: the questions of one file, all of one kind.

  Returns:
    Rule ('regex' for regular expressions, else each of `_RULES`) -> [n] ranks from 0,
    infinity for none.
  """
  rules = {x: x for x in _RULES}
  if questions[0].kind == 'regex':
    rules = {'regex': 'dpr'}
  searches = {
    name: answer_search.QuestionSearch(blocks, rule)
    for name, rule in rules.items()
  }
  ranks: dict[str, list[np.ndarray]] = {rule: [] for rule in rules}
  for low in range(0, len(questions), _BATCH):
    batch = questions[low : low + _BATCH]
    ids = np.asarray(retrieve([x.question for x in batch], KS[-1]))
    for rule, search in searches.items():
      hits = search.find(ids, batch)
      ranks[rule].append(np.where(hits.any(1), hits.argmax(1), np.inf))
    update(low + len(batch), len(questions))
  return {rule: np.concatenate(parts) for rule, parts in ranks.items()}


def measure_recall(
  retrievers: Mapping[str, Retrieve],
  blocks: blocks_lib.BlockStore,
  files: Sequence[str],
  max_questions: int = 0,
) -> list[evaluations.Row]:
  """Measure the recall of retrievers on files of questions.

  Args:
    max_questions: of each file, the first ones; 0: all.

  Returns:
    Rows whose facts are questions_file, retriever, rule, questions (their number) and
    recall@k: {mean, low, high}, a 95 % interval of a bootstrap over questions; by
    file.
  """
  rows = []
  for file in files:
    questions = question_files.read_questions(file)[: max_questions or None]
    for name, retrieve in retrievers.items():
      with progress.bar(f'{name} {file}', 'questions') as update:
        ranks_by_rule = first_hits(retrieve, blocks, questions, update)
      for rule, ranks in ranks_by_rule.items():
        values = {f'recall@{k}': (ranks < k).astype(np.float64) for k in KS}
        facts = {'questions_file': file, 'retriever': name, 'rule': rule}
        facts |= {'questions': len(ranks)}
        facts |= {k: vars(bootstrap.bootstrap(x)) for k, x in values.items()}
        label = ', '.join((name, file, rule))
        rows.append(evaluations.Row(name=label, values=values, facts=facts))
  return rows


def measure_utility(
  run: config_lib.Config,
  trained: realm.TrainedRealm,
  index: embedders.BlockIndex,
  num_batches: int,
) -> dict[str, dict[str, Any]]:
  """Return 'retrieved' and 'random' -> the measures of `explain.measure`."""
  source = realm_task.masked_sentences(run, trained.data, 'valid')
  measures = {}
  for candidates in pipeline.CANDIDATES:
    dataset = pipeline.make_dataset(
      source,
      pipeline.Retrieval(
        trained.data.blocks, trained.layout, index, candidates
      ),
      batch_size=run.batch_size,
      train=False,
      seed=run.seed,
    )
    batches = iter(dataset)
    taken = itertools.islice(batches, num_batches)
    with progress.bar(f'{candidates} documents', 'batches') as update:
      counted = _counted(taken, update)
      measures[candidates] = explain.measure(
        trained.model, trained.params, counted
      )
    batches.close()
  return measures


def _counted(batches, update):
  for i, batch in enumerate(batches, start=1):
    yield batch
    update(i, 0)


def _print_utility(measures: dict[str, dict[str, Any]]) -> None:
  null = {k: measures['retrieved'][f'null_{k}'] for k in _MEASURES}
  rows = {'random': measures['random'], 'null only': null}
  rows['retrieved'] = measures['retrieved']
  lines = []
  for name, x in rows.items():
    shares = (f'{100 * x[k]:.2f} %' for k in _MEASURES[1:])
    lines.append((name, f'{-x["log_prob"]:.4f}', *shares))
  values = measures['retrieved']
  utility, *gains = (values[f'{k}_gain'] for k in _MEASURES)
  width = reports.half_width(utility, '.4f')
  cells = (f'{reports.signed(x)} %' for x in gains)
  lines.append(('minus null', f'{-utility["mean"]:+.4f}{width}', *cells))
  heads = ('documents', 'nats a token', 'accuracy', 'exact spans')
  reports.print_table(heads, lines)
  progress.console().print(
    f'Retrieval utility {utility["mean"]:+.4f}{width} nats a token '
    f'(of the most useful document {values["best_utility"]:+.4f} a span); '
    f'p(null | x) {values["null_prior"]:.3f}; '
    f'{values["examples"]:.0f} held-out sentences; ±: 95 % of a bootstrap over them.'
  )


def _print_recall(rows: list[dict[str, Any]]) -> None:
  heads = [f'recall@{k}' for k in KS]
  lines = []
  for row in rows:
    name = f'{pathlib.Path(row["questions_file"]).stem} ({row["questions"]})'
    cells = [
      f'{x["mean"]:.3f}{reports.half_width(x, ".3f")}'
      for x in (row[head] for head in heads)
    ]
    lines.append((name, row['retriever'], row['rule'], *cells))
  heads = ['questions', 'retriever', 'rule', *heads]
  reports.print_table(heads, lines, wrap=True)
