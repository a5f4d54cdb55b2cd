# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Open-domain question sets, with their splits, kinds of answers and scores.

NAME[:SPLIT][=PATH,PATH] specifies a set. Splits are ORQA's (Lee et al. 2019,
section 5): dev is a tenth of the official training questions, by the hash of
the question, and test is the split of published figures.

  webquestions:dev=trainmodel.json,val.json,devtest.json
  webquestions:test                    without files, from TFDS
  curatedtrec:test=large2180-test.tsv
  red_trivia:worldcapitals,elements    whole lists of the package
  red_trivia:test=general              split of a list
  custom:train=my.jsonl                or custom_regex, with answers as patterns
  asked:test=queries.jsonl             without answers, as `question_files.read_asked`
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import logging as std_logging
from typing import Any

from absl import logging
import farmhash

from retrieval import arguments
from retrieval.questions import qa_metrics, question_files, red_trivia
from retrieval.readers import tfds as tfds_reader

_NUM_BUCKETS = 100_000
_SPLITS = ('train', 'dev', 'test')
ALL = 'all'


@dataclasses.dataclass(frozen=True)
class Dataset:
  """Description of a question set."""

  kind: str  # kind of the answers: string, regex or none
  # source of the splits. 'held_out': the training files hold train and dev,
  # other files hold test; 'hashed': all files hold train, dev and test; 'none':
  # a file is a whole split, of any name.
  splits: str = 'none'
  # number of questions of train, dev and test in the official files
  counts: tuple[int, ...] = ()
  # data set, its split for 'test', and path of fields to the answers in a record;
  # () where TFDS lacks it
  tfds: tuple[str, ...] = ()
  # split -> number of questions in a known incomplete copy
  other_counts: Mapping[str, int] = dataclasses.field(default_factory=dict)

  def holds(self, split: str, question: str) -> bool:
    """Return whether a question from the files of a split belongs to it."""
    whole = self.splits == 'none' or split == ALL
    if whole or (self.splits, split) == ('held_out', 'test'):
      return True
    # TensorFlow's to_hash_bucket_fast, by which ORQA splits questions.
    tenth = farmhash.Fingerprint64(question) % _NUM_BUCKETS % 10
    named = {0: 'dev'} if self.splits == 'held_out' else {0: 'dev', 1: 'test'}
    return split == named.get(tenth, 'train')


# fmt: off
DATASETS = {
  'nq_open': Dataset('string', 'held_out', (79_168, 8_757, 3_610),
                     ('natural_questions_open', 'validation', 'answer')),
  'webquestions': Dataset('string', 'held_out', (3_417, 361, 2_032),
                          ('web_questions', 'test', 'answers')),
  # The author's large2180 lacks 7 training questions.
  'curatedtrec': Dataset('regex', 'held_out', (1_353, 133, 694),
                         other_counts={'train': 1_348, 'dev': 131}),
  'triviaqa': Dataset('string', 'held_out', (78_785, 8_837, 11_313),
                      ('trivia_qa/unfiltered.nocontext', 'validation',
                       'answer', 'aliases')),
  'squad_open': Dataset('string', 'held_out', (78_713, 8_886, 10_570),
                        ('squad/v1.1', 'validation', 'answers', 'text')),
  'opentriviaqa': Dataset('string', 'hashed'),
  'red_trivia': Dataset('string', 'hashed'),
  'custom': Dataset('string'),
  'custom_regex': Dataset('regex'),
  'asked': Dataset('none'),
}
# fmt: on
# kind of answers -> metric -> rule that compares a prediction with answers
_METRICS = {
  'string': {
    'official_exact_match': qa_metrics.exact_match,
    'contains': qa_metrics.contains,
    'exact_match_without_nfd': functools.partial(
      qa_metrics.exact_match, nfd=False
    ),
    'f1': qa_metrics.f1,
  },
  'regex': {
    'official_exact_match': qa_metrics.regex_match,
    'contains': functools.partial(qa_metrics.regex_match, anywhere=True),
  },
}


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class QuestionSet:
  """Questions of one split, with the rule that scores their answers."""

  dataset: str
  split: str
  kind: str  # kind of the answers, as of `Dataset`
  # questions with distinct ids; their texts may repeat
  questions: tuple[question_files.Question, ...]

  def __repr__(self) -> str:
    return f'<QuestionSet {self.name}: {len(self.questions):,} questions>'

  @property
  def name(self) -> str:
    """DATASET:SPLIT."""
    return f'{self.dataset}:{self.split}'

  @property
  def match_rules(self) -> tuple[str, ...]:
    """Rules of `answers` that test a text for these answers; () for none."""
    if self.kind == 'none':
      return ()
    return ('regex',) if self.kind == 'regex' else ('substring', 'dpr')

  def first(self, n: int) -> 'QuestionSet':
    """Return the set of the first n questions; 0 is all."""
    return dataclasses.replace(self, questions=self.questions[: n or None])

  @functools.cached_property
  def by_id(self) -> dict[str, question_files.Question]:
    """Questions by id."""
    return {question.id: question for question in self.questions}

  @functools.cached_property
  def by_text(self) -> dict[str, tuple[question_files.Question, ...]]:
    """Questions by text, mostly one each."""
    questions: dict[str, tuple] = {}
    for question in self.questions:
      text = question.question
      questions[text] = (*questions.get(text, ()), question)
    return questions

  def score(
    self, prediction: str, question: question_files.Question
  ) -> dict[str, float]:
    """Score a predicted answer, in its original characters.

    Returns:
      official_exact_match by ORQA's rule for the set, and contains, whether an
      answer stands in the prediction; for strings also exact_match_without_nfd, the
      rule of DPR and FiD, and f1.

    Raises:
      ValueError: for a question of another set, or without answers.
    """
    if self.kind == 'none':
      raise ValueError(f'{self.name}: has no answers to score by.')
    metrics, answers = _METRICS[self.kind], question.answers
    if not answers:  # it has none: silence is right
      return dict.fromkeys(metrics, float(not prediction.strip()))
    return {k: float(rule(prediction, answers)) for k, rule in metrics.items()}


def load(
  spec: str,
  *,
  allow_other_counts: bool = False,
  answer_field: str = '',
  unanswerable: bool = False,
) -> QuestionSet:
  """Read a split of a question set, in the files' order.

  Args:
    allow_other_counts: whether the number of questions may differ from that of
      the official files.
    answer_field: field of JSON and tables with the answers; '': as their form has it.
    unanswerable: whether the set includes questions without an answer.

  Raises:
    ValueError: for an unknown set or split, or another number of questions than in
      the official files.
  """
  name, split, paths = _parse(spec)
  dataset = DATASETS[name]
  source = ', '.join(paths)
  if answer_field and (name == 'red_trivia' or not paths):
    raise ValueError(f'{spec}: answer_field {answer_field!r} is of files.')
  if name == 'red_trivia':
    rows = red_trivia.read(paths)
    source = source or 'Red-Trivia'
  elif paths:
    rows = _read_files(name, paths, answer_field)
  else:
    rows = _read_tfds(name, split)
    source = f'TFDS {dataset.tfds[0]}'
  questions = tuple(
    dataclasses.replace(row, kind=dataset.kind)
    for row in rows
    if dataset.holds(split, row.question)
  )
  if not questions:
    raise ValueError(f'{spec}: none of {len(rows)} questions in {source}.')
  _check_count(name, split, len(questions), source, allow_other_counts)
  if dataset.kind != 'none':
    answerable = tuple(x for x in questions if x.answers)
    if without := len(questions) - len(answerable):
      done = 'included' if unanswerable else 'left out'
      logging.info('%s: %d questions have no answer: %s.', spec, without, done)
    questions = questions if unanswerable else answerable
    if not questions:
      raise ValueError(f'{spec}: no question has an answer.')
  return QuestionSet(
    dataset=name, split=split, kind=dataset.kind, questions=questions
  )


def load_sets(
  specs: Sequence[str],
  most: int = 0,
  allow_other_counts: bool = False,
  field: str = 'evaluate.questions',
  unanswerable: bool = False,
) -> list[QuestionSet]:
  """Read the first `most` questions of each set of a config field; 0 for all.

  `unanswerable` is that of `load`.

  Raises:
    ValueError: for no set, or a set that is named twice.
  """
  if not specs:
    raise ValueError(
      f"{field} is empty: expected sets such as ('webquestions:test=test.json',)."
    )
  sets = [
    load(
      spec, allow_other_counts=allow_other_counts, unanswerable=unanswerable
    ).first(most)
    for spec in arguments.listed(specs, field)
  ]
  names = [one.name for one in sets]
  if len({*names}) < len(names):
    raise ValueError(f'A set is named twice: {", ".join(names)}.')
  return sets


def of_field(sets: Any, name: str) -> list[question_files.Question]:
  """Read the sets of a field of a config's `questions`, 'train' or 'dev'.

  Raises:
    ValueError: when the field names no set.
  """
  loaded = load_sets(
    getattr(sets, name),
    allow_other_counts=sets.allow_other_counts,
    field=f'questions.{name}',
  )
  questions = [question for one in loaded for question in one.questions]
  most = sets.max_train if name == 'train' else 0
  return questions[: most or None]


def check_questions(config: Any) -> None:
  """Read the questions of a config before any long work starts.

  A dev set is necessary where `eval_batches` is above 0.

  Raises:
    ValueError: when a section names no set, or see `load`.
  """
  of_field(config.questions, 'train')
  if config.eval_batches or config.questions.dev:
    of_field(config.questions, 'dev')


def _parse(spec: str) -> tuple[str, str, tuple[str, ...]]:
  """Return name, split and paths of a specification."""
  head, equals, tail = spec.partition('=')
  name, _, split = head.partition(':')
  paths = tuple(path.strip() for path in tail.split(',')) if equals else ()
  if not all(paths) or len({*paths}) < len(paths):
    raise ValueError(f'{spec!r}: a path is empty or stands twice.')
  if name not in DATASETS:
    raise ValueError(
      f'{spec!r}: no question set {name!r}; expected '
      f'NAME:SPLIT=PATH with one of {sorted(DATASETS)}.'
    )
  dataset, packaged = DATASETS[name], name == 'red_trivia'
  if packaged and not paths and split not in (*_SPLITS, ALL, ''):
    split, paths = '', tuple(split.split(','))
  if not split and (packaged or dataset.splits == 'none'):
    split = ALL
  known = (*_SPLITS, ALL) if dataset.splits == 'hashed' else _SPLITS
  if dataset.splits != 'none' and split not in known:
    raise ValueError(f'{spec!r}: split {split!r}; expected one of {known}.')
  if not (packaged or paths or dataset.tfds):
    raise ValueError(f'{spec!r}: needs files, {name}:{split}=PATH.')
  return name, split, paths


def _read_files(
  name: str, paths: Sequence[str], answer_field: str
) -> list[question_files.Question]:
  questions, ids, kind = [], set(), DATASETS[name].kind
  for number, path in enumerate(paths):
    if kind == 'none':
      rows = question_files.read_asked(path)
    else:
      rows = question_files.read_questions(path, answer_field)
    if kind == 'string' and rows[0].kind == 'regex':
      raise ValueError(
        f'{path}: answers are regular expressions; {name} expects '
        'strings (custom_regex or curatedtrec take them).'
      )
    if any(row.id in ids for row in rows):
      # The id of a line without one has its file's name; two files may share it.
      rows = [dataclasses.replace(r, id=f'{number}/{r.id}') for r in rows]
    ids.update(row.id for row in rows)
    questions += rows
  return questions


def _read_tfds(dataset: str, split: str) -> list[question_files.Question]:
  name, test, *fields = DATASETS[dataset].tfds
  source_split = test if split == 'test' else 'train'
  # It warns of each failed connection, which the error repeats.
  std_logging.getLogger('urllib3.connectionpool').setLevel(std_logging.ERROR)
  try:
    source = tfds_reader.load_source(name, source_split)
  except (OSError, ValueError, KeyError, NotImplementedError) as e:
    reason = ' '.join(str(e).split())
    raise ValueError(
      f'{dataset}:{split} needs files, {dataset}:{split}=PATH,PATH: the '
      f'set cannot be downloaded, nor is it prepared, as {name} of TFDS ({reason}).'
    ) from None
  questions = []
  for i in range(len(source)):
    answers = record = source[i]
    for field in fields:
      answers = answers[field]
    texts = dict.fromkeys(x for x in map(_decoded, answers) if x.strip())
    place, text = f'{name}[{source_split}]:{i}', _decoded(record['question'])
    questions.append(question_files.Question(place, text, tuple(texts)))
  return questions


def _decoded(value: bytes | str) -> str:
  return value.decode() if isinstance(value, bytes) else str(value)


def _check_count(
  name: str, split: str, count: int, source: str, allow: bool
) -> None:
  dataset = DATASETS[name]
  official = dict(zip(_SPLITS, dataset.counts, strict=False))
  expected = official.get(split, count)
  if count == expected:
    return
  message = f'{name}:{split} has {expected} questions, {source} gave {count}.'
  if not allow and count != dataset.other_counts.get(split):
    raise ValueError(
      f'{message} Name all official files of the split, or allow other counts.'
    )
  logging.warning('%s Its figures are not quite comparable.', message)
