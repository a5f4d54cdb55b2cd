# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions are completed by their blocks, answers and gold spans."""

import dataclasses

import numpy as np
import pytest

from realm_jax.data import folder, question_rows
from realm_jax.nn import open_qa
from realm_jax.trained import beams, reader_configs
from retrieval import settings
from retrieval.questions import question_files
from tests.retrieval.text import tiny_blocks

TEXTS = (
  'The mill stood in Paris.',
  'The river was in Rome.',
  'The crown stood in 1999 in Paris.',
)
# Best first, of each row; what is found for the row without a question is not.
FOUND = ((2, 1, 0), (0, 2, -1), (0, 1, 2))


class FixedRetriever(beams.BeamRetriever):
  """Finds FOUND."""

  def __init__(self):
    self.asked = []

  def __call__(self, params, rows, texts, k):
    self.asked.append((params, texts, k))
    scores = np.zeros((len(FOUND), k), np.float32)
    return beams.Beam(np.asarray(FOUND), scores, {'beam_scores': scores})


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  given = [
    {'id': f'd{i}', 'title': 'Mill', 'text': text}
    for i, text in enumerate(TEXTS)
  ]
  made = tiny_blocks.make(
    tmp_path_factory.mktemp('data'),
    np.random.default_rng(0),
    given=given,
    whole_documents=True,
  )
  assert made.blocks.num_blocks == len(TEXTS)
  made.folder = folder.DataFolder(made.root)
  made.layout = reader_configs.reader_layout(_config(), made.folder)
  made.source = question_rows.QuestionSource(
    [
      question_files.Question('a', 'in the mill', ('Paris', 'crown 1066')),
      question_files.Question('b', 'the crown', (r'IN 19\d\d',), 'regex'),
    ],
    made.tokenizer,
    made.layout,
  )
  made.batch = made.source.rows(np.asarray([0, 1]), 3)
  return made


def test_rows_longer_than_the_models_are_refused(data):
  for name in ('row_length', 'question_length'):
    lookup = dataclasses.replace(_config().lookup, **{name: 513})
    config = dataclasses.replace(_config(), retriever='dense', lookup=lookup)
    with pytest.raises(
      settings.SettingsError, match=f'config.lookup.{name}=513'
    ):
      reader_configs.reader_layout(config, data.folder)


def _config(**settings):
  lookup = {'retriever_beam': 10, 'reader_beam': 5} | settings
  return reader_configs.ReaderConfig(
    lookup=reader_configs.Lookup(row_length=24, question_length=8, **lookup),
    reader=open_qa.SpanConfig(max_span_width=3),
  )


def _selector(data, retriever, **settings):
  return beams.BeamSelector(_config(**settings), data.folder, retriever)


def _complete(data, **settings):
  """The completed batch, and what the retriever was asked."""
  retriever = FixedRetriever()
  selector = _selector(data, retriever, **settings)
  return selector.select('params', data.batch, data.source), retriever.asked


def test_beams_are_no_larger_than_there_are_blocks(data):
  beams_of = _selector(data, FixedRetriever())
  assert (beams_of.retriever_beam, beams_of.reader_beam) == (3, 3)
  found, asked = _complete(data)
  assert asked == [('params', ['in the mill', 'the crown', ''], 3)]
  ids = [[2, 1, 0], [0, 2, -1], [-1, -1, -1]]
  assert found['beam_ids'].tolist() == ids
  np.testing.assert_array_equal(found['beam_valid'], np.asarray(ids) >= 0)
  np.testing.assert_array_equal(found['reader_valid'], found['beam_valid'])
  assert found['reader_ids'].shape == (3, 3, 24)
  assert found['reader_correct'].shape == (3, 3, 3, 24)
  assert {*data.batch} < {*found}


@pytest.mark.parametrize('rule', ['substring', 'dpr'])
def test_blocks_with_an_answer_are_marked(data, rule):
  found, _ = _complete(data, rule=rule)
  assert found['beam_has_answer'].tolist() == [
    [True, False, True],  # Paris
    [False, True, False],  # in 1999
    [False, False, False],  # there is no question
  ]


def test_gold_spans_are_the_answers(data):
  found, _ = _complete(data)
  spans = [
    (
      (question, block),
      found['reader_ids'][question, block, start : start + wider + 1].tolist(),
    )
    for question, block, wider, start in zip(
      *np.nonzero(found['reader_correct']), strict=True
    )
  ]
  paris, year = (
    data.tokenizer.encode(text).ids.tolist() for text in ('Paris', 'in 1999')
  )
  assert len(paris) == 1 and len(year) == 2
  assert spans == [((0, 0), paris), ((0, 2), paris), ((1, 1), year)]
