# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions and retrieved texts are scored on a whole question set."""

import json

import pytest

from retrieval.questions import dpr_json, question_files, question_sets, scoring

Q = question_files.Question


def _set(*rows, kind='string'):
  return question_sets.QuestionSet(
    dataset='custom',
    split='test',
    kind=kind,
    questions=tuple(Q(*row, kind) for row in rows),
  )


_SET = _set(
  ('1', 'where?', ('Lima', 'Peru')),
  ('2', 'who?', ('Ada Lovelace',)),
  ('3', 'when?', ('1843',)),
)


def _line(question, prediction, **fields):
  return {'question': question, 'prediction': prediction, **fields}


def test_predictions_in_and_out(tmp_path):
  path = tmp_path / 'made' / 'p.jsonl'
  rows = [_line('who?', '\u00c9', id='7', block=3), _line('why?', '')]
  scoring.write_predictions(path, rows)
  assert path.read_text(encoding='utf-8').splitlines() == [
    '{"question": "who?", "prediction": "\u00c9", "id": "7", "block": 3}',
    '{"question": "why?", "prediction": ""}',
  ]
  assert scoring.read_predictions(path) == rows
  path.write_text(json.dumps(rows))  # a list
  assert scoring.read_predictions(path) == rows
  path.write_text('{"question": "q", "prediction": null}')
  with pytest.raises(ValueError, match="jsonl:1: .*'prediction'"):
    scoring.read_predictions(path)


def test_missing_predictions_are_wrong(caplog):
  scores = scoring.score_predictions(
    _SET,
    [
      _line('who?', 'Lovelace'),
      _line('where?', 'Rome'),
      _line('where?', 'the Peru'),
      _line('what?', 'Peru'),
    ],
  )
  assert scores.values['official_exact_match'].tolist() == [1, 0, 0]
  assert scores.values['f1'].tolist() == pytest.approx([1, 2 / 3, 0])
  counts = (scores.missing, scores.unknown, scores.repeated)
  assert counts == (1, 1, 1)
  assert '1 of 3 questions in the file are not among the 3' in caplog.text


def test_empty_predictions_are_counted():
  letters = _set(('a', 'what?', ('The',)), ('b', 'who?', ('Ada',)))
  for empty in ('', ' a ', '...'):
    scores = scoring.score_predictions(
      letters, [_line('what?', empty), _line('who?', 'Ada')]
    )
    assert scores.empty == 1
    assert scores.values['official_exact_match'].tolist() == [1, 1]


def test_repeated_questions():
  twice = _set(('a', 'who?', ('Ada',)), ('b', 'who?', ('Bea',)))
  by_text = scoring.score_predictions(twice, [_line('who?', 'Ada')])
  assert by_text.values['official_exact_match'].tolist() == [1, 0]
  assert (by_text.missing, by_text.repeated) == (0, 0)
  by_id = scoring.score_predictions(
    twice, [_line('who?', 'Bea', id='b'), _line('who?', 'Ada', id='a')]
  )
  assert by_id.values['official_exact_match'].tolist() == [1, 1]
  assert by_id.repeated == 0
  # An id of another file says nothing.
  other = _line('where?', 'Lima', id='2')
  scores = scoring.score_predictions(_SET, [other])
  assert scores.values['official_exact_match'].tolist() == [1, 0, 0]


def _result(question, *texts, said=None):
  contexts = tuple(
    dpr_json.Context(title='Lima', text=text, has_answer=said) for text in texts
  )
  return dpr_json.Result(
    question=question, answers=('Rome',), contexts=contexts
  )


def test_retrieval_by_each_rule():
  scores = scoring.score_retrieval(
    _SET,
    [
      # Substrings regard case, tokens do not; titles and the file's own answers
      # do not count.
      _result('where?', 'Rome', 'lima', 'Limassol', 'x', 'x', said=False),
      _result('who?', 'of Ada  Lovelace', said=True),
    ],
  )
  found = {k: v.tolist() for k, v in scores.values.items()}
  assert found == {
    'substring/top_1': [0, 0, 0],
    'substring/top_5': [1, 0, 0],
    'dpr/top_1': [0, 1, 0],
    'dpr/top_5': [1, 1, 0],
    'file/top_1': [0, 1, 0],
    'file/top_5': [0, 1, 0],
  }
  assert (scores.missing, scores.unknown, scores.refused) == (1, 0, 0)


def test_what_the_file_does_not_say_is_not_shown():
  results = [_result('who?', 'a', said=True), _result('where?', 'b')]
  scores = scoring.score_retrieval(_SET, results)
  assert set(scores.values) == {'substring/top_1', 'dpr/top_1'}
  with pytest.raises(ValueError, match='no result holds any text'):
    scoring.score_retrieval(_SET, [_result('who?')])


def test_retrieval_by_pattern():
  patterns = _set(('1', 'how high?', (r'8,?8\d+',)), kind='regex')
  scores = scoring.score_retrieval(
    patterns, [_result('how high?', 'it is 8850 m')]
  )
  found = {k: v.tolist() for k, v in scores.values.items()}
  assert found == {'regex/top_1': [1]}
