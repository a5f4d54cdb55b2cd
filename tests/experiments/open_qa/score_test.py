# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The command that scores anyone's files."""

import json
import subprocess
import sys

import pytest

from experiments import score
from retrieval.questions import dpr_json, question_sets


@pytest.fixture
def references(tmp_path):
  path = tmp_path / 'refs.jsonl'
  lines = [{'question': f'q{i}', 'answer': [f'A{i}']} for i in range(4)]
  path.write_text('\n'.join(map(json.dumps, lines)))
  return f'custom:test={path}'


def _predictions(path, *answers):
  lines = [
    {'question': f'q{i}', 'prediction': a} for i, a in enumerate(answers)
  ]
  path.write_text('\n'.join(map(json.dumps, lines)))
  return path


@pytest.mark.slow
def test_command(tmp_path, references):
  path = _predictions(tmp_path / 'p.jsonl', 'a0!', 'A0', 'A2', 'A3')
  command = [sys.executable, '-m', 'experiments.score', path, '--output']
  command += [f'--dataset={references}', f'--less={path}', '--max_questions=3']
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  rows = [line.split()[:5] for line in done.stdout.splitlines()]
  assert ['official_exact_match', '66.67', '-'] in [row[:3] for row in rows]
  assert 'custom:test: 3 questions, 0 missing' in ' '.join(done.stdout.split())
  report = json.loads((tmp_path / 'p.jsonl.scores.json').read_text())
  assert report['metrics']['f1'] == {'mean': 2 / 3, 'low': None, 'high': None}
  assert report['differences']['f1']['mean'] == 0 and report['count'] == 3
  assert (report['dataset'], report['form']) == ('custom:test', 'predictions')


def test_less_is_paired_over_the_questions(tmp_path, references, capsys):
  questions = question_sets.load(references)
  one = _predictions(tmp_path / 'one.jsonl', 'A0', 'x', 'A2', 'A3')
  two = _predictions(tmp_path / 'two.jsonl', 'A0', 'A1', 'x', 'x')
  score.print_table(score.score(one, questions.first(3), two))
  rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
  assert ['official_exact_match', '66.67'] in rows
  assert ['official_exact_match', '+0.00'] in rows  # one gained, one lost
  differences = score.score(one, questions, two)['differences']
  assert differences['official_exact_match']['mean'] == 0.25
  _predictions(two, 'A0', 'A1')
  with pytest.raises(ValueError, match=f'^--less={two}: 2 questions missing'):
    score.score(one, questions, two)
  other = tmp_path / 'r.json'
  context = dpr_json.Context(text='A0', has_answer=True)
  results = [dpr_json.Result(question='q0', contexts=(context,))]
  dpr_json.write_results(other, results)
  with pytest.raises(ValueError, match=f'^--less={other}: a file of retrieval'):
    score.score(one, questions, other)


def test_files_of_other_tools_are_scored(tmp_path):
  """RAG-evaluation-harnesses' passages, and FlashRAG's questions and answers."""
  asked, passages, answered = (tmp_path / f'{x}.json' for x in 'abc')
  rows = [
    {'id': f'test_{i}', 'question': f'q{i}', 'golden_answers': [f'A{i}']}
    for i in range(2)
  ]
  asked.write_text('\n'.join(map(json.dumps, rows)))
  lines = [
    {'query': f'q{i}', 'ctxs': [{'retrieval text': 'an A0'}]} for i in range(2)
  ]
  passages.write_text('\n'.join(map(json.dumps, lines)))
  output = {'pred': 'a1', 'retrieval_result': [{'contents': 'Title\nA0'}]}
  answered.write_text(json.dumps([row | {'output': output} for row in rows]))
  question_set = question_sets.load(f'custom:test={asked}')
  report = score.score(passages, question_set)
  assert report['form'] == 'retrieval' and not report['missing']
  assert report['metrics']['dpr/top_1']['mean'] == 0.5
  report = score.score(answered, question_set)
  assert report['form'] == 'predictions' and not report['missing']
  assert report['metrics']['official_exact_match']['mean'] == 0.5


def test_reports_are_printed(tmp_path, references, capsys):
  path = tmp_path / 'r.json'
  contexts = tuple(
    dpr_json.Context(text=text, has_answer=True)
    for text in ('a0', 'x', 'x', 'x', 'A0')
  )
  results = [dpr_json.Result(question=f'q{i}', contexts=contexts) for i in '01']
  dpr_json.write_results(path, results)
  questions = question_sets.load(references)
  score.print_table(score.score(path, questions))
  lines = [x.split() for x in capsys.readouterr().out.splitlines()]
  shown = [x for x in lines if x and x[0].startswith('top_')]
  assert [x[0] for x in shown] == 3 * ['top_1', 'top_5']
  assert [x[1] for x in shown] == ['0.00', *3 * ['25.00'], *2 * ['50.00']]
  path = _predictions(tmp_path / 'p.jsonl', '', 'The', 'A2')
  score.print_table(score.score(path, questions))
  printed = ' '.join(capsys.readouterr().out.split())
  assert '2 empty' in printed and '2 predictions are empty' in printed
