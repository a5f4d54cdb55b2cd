# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Score a file of predicted answers or of retrieved passages.

  python -m experiments.score predictions.jsonl \
    --dataset=webquestions:test=test.json
  python -m experiments.score retrieved.json \
    --dataset=curatedtrec:test=large2180-test.tsv --output

FILE holds lines {"question", "prediction"}, or DPR's JSON of retrieved passages, or is of
RAG-evaluation-harnesses or FlashRAG, as `retrieval.questions.dpr_json` lists them. The
question set decides by which rule (`retrieval.questions.question_sets`); means come with their
95 % interval of a bootstrap over questions. --less=OTHER also scores another file of the
same form, and shows the differences, paired over the questions. --max_questions=N takes
the first N questions of the set. --output writes FILE.scores.json too.
"""

import pathlib
from typing import Any

from absl import flags

from experiments.engine import command, failures, reports
from retrieval.questions import dpr_json, question_sets, ranking, scoring
from retrieval.store import output_files

_RULES = {
  'official_exact_match': {
    'string': 'equal, NFD and normalised (ORQA)',
    'regex': 'pattern matches from the start (DrQA, ORQA)',
  },
  'contains': {
    'string': 'its normalised words hold an answer',
    'regex': 'pattern found anywhere in it, as whole words',
  },
  'exact_match_without_nfd': {'string': 'equal, normalised (DPR, FiD)'},
  'f1': {'string': 'overlap of tokens, NFD and normalised'},
  'substring': 'case-sensitive substring (ORQA, REALM)',
  'dpr': 'tokens follow each other (DPR)',
  'regex': 'pattern found anywhere (DPR)',
  scoring.FILE_RULE: 'has_answer of the file',
}
_COUNTS = ('empty', 'unknown', 'repeated', 'refused')


def _scores(
  path: str | pathlib.Path, question_set: question_sets.QuestionSet
) -> tuple[str, scoring.Scores]:
  where, first = next(dpr_json.records(path))
  with failures.named(path):
    if 'prediction' in first:
      predictions = scoring.read_predictions(path)
      scores = scoring.score_predictions(question_set, predictions)
      return 'predictions', scores
    if 'ctxs' in first:
      results = dpr_json.read_results(path)
      return 'retrieval', scoring.score_retrieval(question_set, results)
  raise ValueError(
    f"{where}: expected a field 'prediction' or 'ctxs', not only {sorted(first)}."
  )


def score(
  path: str | pathlib.Path,
  question_set: question_sets.QuestionSet,
  less: str | pathlib.Path = '',
) -> dict[str, Any]:
  """Score a file of predictions or of retrieved passages.

  Args:
    less: another file, whose scores are taken off question by question.

  Returns:
    JSON values: file; form, 'predictions' or 'retrieval'; dataset; kind of its answers;
    count of its questions; questions missing in the file (they count as wrong);
    predictions that are empty, of unknown questions, repeated or refused; `metrics`
    and `differences` to `less`: name -> mean and interval.

  Raises:
    ValueError: when `less` has another form, or belongs to another question set.
  """
  form, scores = _scores(path, question_set)
  differences = {}
  if less:
    other_form, other = _scores(less, question_set)
    if other_form != form:
      raise ValueError(
        f'--less={less}: a file of {other_form}; expected {form}, as {path} is.'
      )
    both = [name for name in scores.values if name in other.values]
    if other.missing != scores.missing or not both:
      raise ValueError(
        f'--less={less}: {other.missing} questions missing and the metrics '
        f'{[*other.values]}; expected {scores.missing} and some of '
        f'{[*scores.values]}, as {path} has. --max_questions takes the first of both.'
      )
    differences = {x: scores.values[x] - other.values[x] for x in both}
  return {
    'file': str(path),
    'form': form,
    'dataset': question_set.name,
    'kind': question_set.kind,
    'count': len(question_set.questions),
    'missing': scores.missing,
    **{name: getattr(scores, name) for name in _COUNTS},
    'metrics': _intervals(scores.values),
    'less': str(less),
    'differences': _intervals(differences),
  }


def _intervals(values: ranking.Values) -> dict[str, dict[str, float]]:
  return {name: vars(x) for name, x in ranking.intervals(values).items()}


def print_table(report: dict[str, Any]) -> None:
  """Print a table of the report, in per cent."""
  counts = [f'{report["count"]} questions', f'{report["missing"]} missing']
  counts += [f'{n} {x}' for x in _COUNTS if (n := report[x])]
  title = f'{report["file"]} on {report["dataset"]}: {", ".join(counts)}'
  caption = ''
  if report['empty']:
    caption = (
      f'{report["empty"]} predictions are empty. By the official rule an empty one is '
      'right where the gold answer is an article, such as "A" or "The".'
    )
  heads, lines = ('metric', '%', '95 % interval', 'right is'), []
  for name, interval in report['metrics'].items():
    rule, _, top = name.partition('/')
    meaning = _RULES[rule]
    if isinstance(meaning, dict):
      meaning = meaning[report['kind']]
    lines.append((top or name, *_cells(interval, '.2f'), meaning))
  reports.print_table(heads, lines, title, caption, wrap=True)
  if report['less']:
    lines = [(x, *_cells(y, '+.2f')) for x, y in report['differences'].items()]
    reports.print_table(heads[:3], lines, f'less {report["less"]}', wrap=True)


def _cells(interval: dict[str, float], form: str) -> tuple[str, str]:
  """The mean and the interval, in per cent."""
  percent = {name: 100 * x for name, x in interval.items()}
  return f'{percent["mean"]:{form}}', reports.ends(percent, form, ' to ')


def main(argv: list[str]) -> None:
  """Print the table and, with --output, write it as JSON."""
  if len(argv) != 2:
    raise ValueError(f'expected one FILE to score, not {argv[1:]}.')
  path = f'{argv[1]}.scores.json'
  if flags.FLAGS.output:
    output_files.check_writable(path)
  question_set = question_sets.load(
    flags.FLAGS.dataset,
    allow_other_counts=flags.FLAGS.allow_other_counts,
    unanswerable=True,
  ).first(flags.FLAGS.max_questions)
  report = score(argv[1], question_set, flags.FLAGS.less)
  print_table(report)
  if flags.FLAGS.output:
    reports.write_json(path, report)
    print(f'wrote {path}')


if __name__ == '__main__':
  flags.DEFINE_string('dataset', None, 'NAME:SPLIT=PATH,PATH of the questions.')
  flags.DEFINE_string('less', '', 'Another file to compare with.')
  flags.DEFINE_integer(
    'max_questions', 0, 'Take the first N questions; 0: all.', lower_bound=0
  )
  flags.DEFINE_bool('output', False, 'Write FILE.scores.json too.')
  flags.DEFINE_bool(
    'allow_other_counts', False, "Take other than a split's official number."
  )
  flags.mark_flag_as_required('dataset')
  command.main_of_script(main)
