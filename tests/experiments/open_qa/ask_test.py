# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions asked, from all sides."""

import dataclasses
import io
import json
import os
import subprocess
import sys
import types

import pytest
import rich.console

from experiments import ask, score
from experiments.engine import configs
from experiments.open_qa import trained_reader
from realm_jax.nn import open_qa
from realm_jax.trained import answers, block_reader
from retrieval.questions import question_sets
from tests import xla_flags
from tests.experiments.open_qa import tiny_open_qa

ASKED = 'The mill of 1066 stood in the river?'


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  return tiny_open_qa.fine_tuned(tmp_path_factory.mktemp('ask'))


@pytest.fixture(scope='module')
def answerer(made):
  return trained_reader.open_reader(made.workdir).open_answerer(
    answers=3, batch_size=8
  )


@pytest.fixture(scope='module')
def found(answerer):
  [found] = answerer.answer([ASKED])
  return found


@pytest.fixture
def run(made, monkeypatch, capsys):
  """Runs the command; returns what it printed."""

  def run(config=made.config, workdir=made.workdir, opened=None, **values):
    if opened is not None:
      reader = types.SimpleNamespace(open_answerer=lambda **_: opened)
      reader.with_retriever = lambda **_: reader
      monkeypatch.setattr(trained_reader, 'open_reader', lambda *_: reader)
    given = types.SimpleNamespace(FLAGS=tiny_open_qa.Flags(**values))
    monkeypatch.setattr(ask, 'flags', given)
    config = configs.replaced(config, data_dir='')
    ask.run(config, str(workdir))
    return capsys.readouterr().out

  return run


# What is shown.


def test_a_record_says_where_the_answer_stands(answerer, found):
  blocks = answerer.trained.data.blocks
  row = found.record(3)
  assert row['question'] == ASKED
  assert row['prediction'] == row['answer'] == found.text
  assert len(row['runner_ups']) == 2
  scores = [row['score'], *(x['score'] for x in row['runner_ups'])]
  assert scores == sorted(scores, reverse=True)
  assert len(found.answers) == 20
  assert sum(a.share for a in found.answers) == pytest.approx(1)
  for one in (row, *row['runner_ups']):
    start, end = one['span']
    assert one['text'][start:end] == one['answer']
    assert blocks.texts([one['block']]) == [one['text']]
    assert one['title'] == one['document'].replace('d', 'Mill ')


def _printed(found, **settings):
  file = io.StringIO()
  console = rich.console.Console(file=file, width=200, **settings)
  ask.print_answers(found, console, 2)
  return file.getvalue()


def test_the_span_is_marked_with_and_without_color(answerer, found):
  plain = _printed(found)
  assert f'[[{found.text}]]' in plain
  assert 'runner-up' in plain and '\x1b' not in plain
  colored = _printed(
    found, force_terminal=True, color_system='standard', no_color=False
  )
  assert '[[' not in colored
  before = f'\x1b[1;30;103m{found.text}\x1b[0m'
  assert before in colored


def test_html_marks_the_span_and_escapes_the_text(found):
  page = found.to_html(3)
  assert f'<mark>{found.text}</mark>' in page and page.count('<tr>') == 3
  assert '&lt;b&gt; <mark>x</mark> &amp;' in answers.block_html(
    '', '<b> x &', (4, 5)
  )


# How it is asked.


def test_questions_by_flag(run, found):
  printed = run(question=[ASKED, 'Rome?'])
  assert ASKED in printed and 'Rome?' in printed
  assert f'  {found.text}   logit {found.answers[0].score:.2f}' in printed


def _documents(row):
  return {int(x['document'][1:]) for x in (row, *row['runner_ups'])}


def test_documents_that_fit_a_filter_are_read(run, made, tmp_path):
  path = tmp_path / 'answers.jsonl'
  asked = {'question': [ASKED], 'output': str(path), 'answers': 5}
  found = []
  for date, where in (('2004', ''), ('', "{'year': [2007, 2030]}")):
    config = configs.replaced(made.config, **{'lookup.where': where})
    run(config, as_of=date, **asked)
    found.append(_documents(json.loads(path.read_text())))
  assert found[0] <= {*range(5)} and found[1] <= {7, 30}
  for values in ({'as_of': 'May'}, {'config': config, 'as_of': '2004'}):
    with pytest.raises(ValueError, match='as_of'):
      run(**asked | values)
  reader = trained_reader.open_reader(made.workdir)
  reader = reader.with_retriever(where={'year': (2010, 2012)})
  [answered] = reader.answer([ASKED])
  assert _documents(answered.record(5)) <= {10, 11, 12}


def test_questions_as_they_are_typed(run, answerer, found, monkeypatch):
  monkeypatch.setattr(sys, 'stdin', io.StringIO(f'{ASKED}\n\nnever asked\n'))
  printed = run(opened=answerer)
  assert f'  {found.text}   logit' in printed and 'never' not in printed
  monkeypatch.setattr(sys, 'stdin', io.StringIO(''))
  assert run(opened=answerer) == ''


def test_a_reader_with_a_null_answer_may_say_that_there_is_none(made):
  reader = trained_reader.open_reader(made.workdir)
  config = dataclasses.replace(reader.model.config, null_answer=True)
  reader = dataclasses.replace(reader, model=open_qa.OpenQa(config))
  [found] = reader.answer(ASKED)
  shares = sum(answer.share for answer in found.answers)
  assert 0 < found.answerable < 1 and shares <= found.answerable + 1e-6
  assert found.silent == (found.confidence < 1 - found.answerable)
  span = reader.params['reader']['span_score']
  span['bias'] = span['bias'] - 20  # no span can win
  reader = dataclasses.replace(reader)
  [silent] = reader.answer(ASKED)
  assert silent.text == '' and silent.answerable < 1e-3
  assert answers.SILENT in _printed(silent) and found.answers[0].source


def test_files_in_and_out(made, run, answerer, tmp_path):
  texts = [f'The mill {i} stood in?' for i in range(3)]
  plain, lines = tmp_path / 'asked.txt', tmp_path / 'asked.jsonl'
  plain.write_text('\n'.join(texts) + '\n\n')
  rows = [{'id': i, 'question': text} for i, text in enumerate(texts)]
  lines.write_text('\n'.join(map(json.dumps, rows)))
  written = []
  for file in (plain, lines):
    out = tmp_path / 'new' / f'{file.name}.answers.jsonl'
    run(opened=answerer, input=str(file), output=str(out))
    written.append([json.loads(x) for x in out.read_text().splitlines()])
  for rows in written:
    assert [row['question'] for row in rows] == texts
  assert [row.pop('id') for row in written[0]] == [
    f'asked.txt:{i}' for i in (1, 2, 3)
  ]
  assert [row.pop('id') for row in written[1]] == ['0', '1', '2']
  assert written[0] == written[1]
  assert set(written[0][0]) >= {'answer', 'score', 'share', 'title', 'text'}
  report = score.score(out, question_sets.load(tiny_open_qa.sets(made.data)[0]))
  assert (report['count'], report['missing'], report['unknown']) == (6, 3, 0)


def test_each_question_is_read_with_a_question_mark(answerer, monkeypatch):
  read, call = [], block_reader.Answerer.__call__

  def recorded(self, asked, progress=None):
    read.extend(x.question for x in asked)
    return call(self, asked, progress)

  monkeypatch.setattr(block_reader.Answerer, '__call__', recorded)
  asked = [ASKED, ASKED.rstrip('?'), 'Mill？']
  found = answerer.answer(asked)
  assert read == [ASKED, ASKED, 'Mill？']
  assert [x.question.question for x in found] == asked


def test_a_question_without_a_block_has_no_answer(made):
  reader = trained_reader.open_reader(made.workdir)
  [found] = reader.with_retriever('bm25').answer(['zzz qqq'])
  assert found.answers == () and (found.beam == -1).all()
  row = found.record()
  assert row['prediction'] == '' and row['runner_ups'] == []
  assert 'no block was found' in _printed(found)
  assert 'no block was found' in found._repr_html_()


# Bad input.


def test_bad_flags_are_refused(made, run, answerer, tmp_path):
  for values, message in (
    ({'question': [' ']}, '--question is empty'),
    ({'question': ['Who?'], 'input': 'x.txt'}, 'expected one of them'),
    ({'output': 'x.jsonl'}, '--output needs'),
    ({'question': ['Who?'], 'answers': 0}, 'answers=0'),
    ({'question': ['Who?'], 'reader_beam': -1}, 'reader_beam=-1'),
    ({'question': ['Who?'], 'retriever': 'unknown'}, "retriever='unknown'"),
    ({'question': ['Who?'], 'risk': 1.0}, 'risk=1.0'),
    ({'question': ['Who?'], 'risk': 0.2, 'answers': 21}, 'answers=21'),
  ):
    with pytest.raises(ValueError, match=message):
      run(**values)
  with pytest.raises(FileNotFoundError, match='risk=0.2.*calibrate'):
    run(question=['Who?'], risk=0.2)
  with pytest.raises(FileNotFoundError, match='x.txt'):
    run(input=str(tmp_path / 'x.txt'))
  with pytest.raises(FileNotFoundError, match='no trained model here'):
    run(workdir=tmp_path, question=['Who?'])
  with pytest.raises(ValueError, match='Question 1 is empty'):
    answerer.answer(['Who?', ''])


@pytest.mark.parametrize(
  'name, call',
  [
    ('questions', lambda x: x.answer(5)),
    ('questions', lambda x: x.answer([1])),
    ('questions', lambda x: x.answer(b'Who?')),
    ('questions', lambda x: x.answer(['Who?', 'Who \ud800?'])),
    ('reader_beam', lambda x: x.with_retriever(reader_beam=-1)),
    ('reader_beam', lambda x: x.with_retriever(reader_beam='3')),
    ('retriever', lambda x: x.with_retriever(5)),
    ('texts', lambda x: x.as_realm().retrieve(5)),
    ('k', lambda x: x.as_realm().retrieve('Who?', 0)),
    ('k', lambda x: x.as_realm().retrieve('Who?', float('nan'))),
  ],
)
@pytest.mark.usefixtures('unchecked')
def test_arguments_that_do_not_fit_are_refused_by_name(answerer, name, call):
  with pytest.raises(ValueError, match=f'^{name}'):
    call(answerer.trained)


@pytest.mark.slow
def test_the_packaged_reader_answers_from_the_packaged_articles(tmp_path):
  command = [sys.executable, '-m', 'experiments.ask']
  done, again = (
    subprocess.run(
      [*command, '--question=Who discovered penicillin?'],
      env=os.environ | {'XLA_FLAGS': xla_flags.FAST},
      cwd=tmp_path,
      capture_output=True,
      text=True,
    )
    for _ in range(2)
  )
  assert done.returncode == 0, done.stderr
  assert 'Alexander Fleming' in done.stdout
  assert again.stdout and done.stdout.endswith(again.stdout)
