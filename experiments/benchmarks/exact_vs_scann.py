# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compare exact search and ScaNN on a reader: quality and speed.

  python -m experiments.benchmarks.exact_vs_scann --config=configs/open_qa_<name>.py \
    --config.evaluate.questions="('webquestions:test=test.json',)" --workdir=DIR

The measures of a set are exact_match (the best span is gold, by position),
official_exact_match, F1, reader_oracle, the share of questions with an answer
in the first k blocks by --match, questions per second, and the milliseconds of
retrieval. ScaNN's index is built once over the same vectors, in <index>/scann;
if it cannot be built, a line says why. The tables of NQ and WebQuestions also
show figures of the released checkpoints, for orientation. The command writes
<workdir>/qa_benchmark.json. --retrieval_output writes the retrieved blocks in
DPR's form for experiments.open_qa.score.
"""

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import pathlib
from typing import Any

from absl import flags, logging
import ml_collections

from experiments.benchmarks import turns
from experiments.engine import command, progress, reports
from experiments.open_qa import (
  evaluate as qa_evaluate,
  settings as settings_lib,
)
from realm_jax.data import pipeline
from realm_jax.serving import (
  answers as qa_answers,
  beams,
  serving,
  trained_models,
)
from retrieval import searchers
from retrieval.index import index as index_lib, index_versions
from retrieval.questions import answer_search, dpr_json, question_sets

FILE = 'qa_benchmark.json'
MATCHES = {
  'substring': ('substring',),
  'dpr': ('dpr',),
  'all': ('substring', 'dpr'),
}
_RELEASED_NAMES = (
  'exact_match',
  'official_exact_match',
  'reader_oracle',
  'top_5_substring',
)
# Published measurements of the released checkpoints over 13 M blocks, on the
# test questions, in percent: by exact search, and by ScaNN.
_RELEASED = {
  'nq_open:test': {
    'exact': (41.05, 40.42, 71.94, 72.19),
    'ScaNN': (40.19, 39.72, 70.42, 70.58),
  },
  'webquestions:test': {
    'exact': (43.45, 41.68, 69.29, 69.34),
    'ScaNN': (42.81, 41.14, 68.41, 68.41),
  },
}


class TimedAnswerer:
  """A timed `Answerer`.

  Attributes:
    sec: seconds spent in answering.
  """

  def __init__(self, answerer: qa_answers.Answerer):
    self.trained, self.sec, self._answerer = answerer.trained, 0.0, answerer

  def __call__(self, *arguments) -> Iterator[qa_answers.Answered]:
    """Yield the answers; the caller's work on them is not timed."""
    answered = self._answerer(*arguments)
    step = turns.Timed(lambda: next(answered, None))
    yield from iter(step, None)
    self.sec = step.sec


def retrievers(
  trained: trained_models.TrainedReader, folder: pathlib.Path
) -> tuple[dict[str, beams.BlockRetriever], str]:
  """Return the retrievers to compare.

  Returns:
    found: name -> retriever over the same vectors; the checkpoint's own
      retriever alone if it searches no vectors.
    missing: reason why ScaNN is missing; '' if it is not.
  """
  kind = trained.config.retriever
  if kind != 'dense':
    found = {kind: trained.retriever(folder)}
    return found, f'retriever {kind!r} searches no vectors'
  version = trained.as_realm().open_index(folder).version
  exact = version.index.searcher
  if exact.name != 'exact':
    exact = searchers.ExactSearcher(version.vectors, 'dot_product')
  found = {'exact': _over(trained, version, exact)}
  scann, missing = _scann(trained, version, folder)
  if scann is not None:
    found['ScaNN'] = _over(trained, version, scann)
  return found, missing


def _over(
  trained: trained_models.TrainedReader,
  version: index_versions.Version,
  searcher: searchers.Searcher,
) -> beams.BlockRetriever:
  """A retriever by another searcher of a version's vectors."""
  index = dataclasses.replace(version.index, searcher=searcher)
  embedder = serving.QueryEmbedder(trained.model.config.realm)
  served = serving.ServingIndex(
    dataclasses.replace(version, index=index), embedder
  )
  return beams.make_retriever(
    trained.config, trained.data, pipeline.OneSnapshot(served)
  )


def _scann(
  trained: trained_models.TrainedReader,
  version: index_versions.Version,
  folder: pathlib.Path,
) -> tuple[searchers.Searcher | None, str]:
  """ScaNN over a version's vectors, or the reason why it is missing."""
  if version.index.searcher.name == 'scann':
    return version.index.searcher, ''
  count, least = int(version.vectors.shape[0]), searchers.SCANN_MIN_ROWS
  if count < least:
    return None, f'{count:,} blocks, it needs {least:,}'
  if not searchers.scann_available():
    return None, 'its package cannot be imported here'
  settings = trained.config.index
  config = index_lib.IndexConfig(
    searcher='scann',
    metric='dot_product',
    recall_floor=0.0,  # its loss is measured, not refused
    num_queries=settings.num_queries,
    scann=settings.scann.to_dict(),
  )
  index = index_lib.build_index(
    folder / 'scann' / version.name,
    version.vectors,
    version.index.vectors_fingerprint,
    config,
  )
  return index.searcher, ''


def benchmark(
  answerer: qa_answers.Answerer,
  retriever: turns.Timed,
  found: Mapping[str, beams.BlockRetriever],
  questions: question_sets.QuestionSet,
  ks: Sequence[int],
  rules: Sequence[str],
  depth: int = 0,
) -> tuple[dict[str, dict[str, Any]], list[qa_answers.Answered]]:
  """Answer a set once with each retriever, after an untimed question.

  Args:
    retriever: receives each of `found` in turn.

  Returns:
    measures: retriever -> the measures of `qa_evaluate.evaluate`,
      questions_per_sec, and retrieval_ms of one question.
    answered: the answers by the first retriever, in the order of the questions.
  """
  measures, first = {}, []
  for name, one in found.items():
    retriever.function = one
    list(answerer(questions.questions[:1]))
    retriever.sec, timed = 0.0, TimedAnswerer(answerer)
    row, answered = qa_evaluate.evaluate(timed, questions, ks, rules, depth)
    row['questions_per_sec'] = len(answered) / timed.sec
    row['retrieval_ms'] = 1000 * retriever.sec / len(answered)
    measures[name] = row
    first = first or answered
  return measures, first


def retrieval_results(
  answered: Sequence[qa_answers.Answered],
  trained: trained_models.TrainedReader,
  rule: str,
) -> Iterator[dpr_json.Result]:
  """Yield the retrieved blocks of each question in DPR's form, best first.

  The results have no scores. Ids are `BlockStore.names`, which outlive changes
  of the corpus.
  """
  blocks = trained.data.blocks
  search = answer_search.QuestionSearch(blocks, rule, trained.data.tokenizer)
  for found in answered:
    ids = found.beam[found.beam >= 0]
    (hits,) = search.find(ids[None], [found.question])
    numbers = ids.tolist()
    rows = zip(
      blocks.names(numbers),
      blocks.titles(numbers),
      blocks.texts(numbers),
      hits.tolist(),
      strict=True,
    )
    yield dpr_json.Result(
      question=found.question.question,
      answers=tuple(found.question.answers),
      contexts=tuple(
        dpr_json.Context(id=name, title=title, text=text, has_answer=hit)
        for name, title, text, hit in rows
      ),
    )


def print_table(name: str, measures: Mapping[str, Mapping[str, Any]]) -> None:
  """Print a table of a set with a column for each retriever."""
  released = _RELEASED.get(name, {})
  (count,) = {row['questions'] for row in measures.values()}
  heads = ['measure', *measures]
  heads += [f'released, 13 M blocks, {x}' for x in released]
  beside = [
    dict(zip(_RELEASED_NAMES, row, strict=True)) for row in released.values()
  ]
  rows, lines = list(measures.values()), []
  names = dict.fromkeys(
    k for row in rows for k, x in row.items() if isinstance(x, dict)
  )
  for k in names:
    theirs = [f'{x[k]:.1f}' if k in x else '' for x in beside]
    lines.append([k, *(reports.share(row.get(k)) for row in rows), *theirs])
  for k, form in (('questions_per_sec', '{:,.1f}'), ('retrieval_ms', '{:.2f}')):
    lines.append([k, *(form.format(row[k]) for row in rows)])
  title = f'{name}: {count:,} questions'
  reports.print_table(heads, lines, title, wrap=True)


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Measure the newest checkpoint."""
  settings, values = config.evaluate, flags.FLAGS
  if values.retrieval_output and len(settings.questions) > 1:
    raise ValueError(
      f'--retrieval_output takes one set, but evaluate.questions names '
      f'{len(settings.questions)}.'
    )
  sets, trained = qa_evaluate.open_run(config, workdir)
  folder = pathlib.Path(trained.index_folder)
  found, missing = retrievers(trained, folder)
  timed = turns.Timed(next(iter(found.values())))
  answerer = qa_evaluate.make_answerer(trained, settings, timed)
  rules, tables = MATCHES[values.match], []
  depth = values.retrieval_depth if values.retrieval_output else 0
  for questions in sets:
    measures, answered = benchmark(
      answerer, timed, found, questions, settings.ks, rules, depth
    )
    tables.append(measures)
    print_table(questions.name, measures)
    if values.retrieval_output:
      rule = 'regex' if questions.kind == 'regex' else rules[0]
      results = retrieval_results(answered, trained, rule)
      dpr_json.write_results(values.retrieval_output, results)
      logging.info('Retrieval written to %s.', values.retrieval_output)
  if missing:
    progress.console().print(f'Without ScaNN: {missing}.')
  content = {'step': trained.step, 'without_scann': missing, 'sets': tables}
  path = reports.write_json(pathlib.Path(workdir) / FILE, content)
  logging.info('Written to %s.', path)


def define_flags() -> None:
  """Define --match, --retrieval_output and --retrieval_depth."""
  flags.DEFINE_enum(
    'match', 'all', list(MATCHES), 'Rule by which a block has an answer.'
  )
  flags.DEFINE_string(
    'retrieval_output',
    '',
    "File for the blocks of exact search, in DPR's JSON.",
  )
  flags.DEFINE_integer(
    'retrieval_depth', 100, 'Blocks of a question in that file.', lower_bound=1
  )


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, define_flags, writes=FILE)
