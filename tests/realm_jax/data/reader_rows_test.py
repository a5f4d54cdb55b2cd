# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Reader rows against concatenation, spans against a search of every span."""

import dataclasses
import json

import numpy as np
import pytest

from realm_jax.data import folder, reader_rows
from retrieval import tokenization
from retrieval.questions import answers as answers_lib
from tests.realm_jax.data import tiny_qa
from tests.realm_jax.nn import oracle
from tests.retrieval.text import json_corpus, tiny_blocks

L, Q, W = 24, 8, 3
NAMES = ('reader_ids', 'reader_mask', 'reader_types', 'reader_block_mask')


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  made = tiny_blocks.make(root, np.random.default_rng(0), num_documents=12)
  made.layout = _layout(made.tokenizer, row_length=L)
  return made


def _layout(tokenizer, **fields):
  fields = {'question_length': Q, 'max_span_width': W} | fields
  return tiny_qa.layout(tokenizer, **fields)


def _tokens(gather, block):
  if block < 0:
    return []
  tokens, [count] = gather(np.asarray([block]), 99)
  return tokens[0, :count].tolist()


def _questions(*lengths):
  rng = np.random.default_rng(1)
  return [rng.integers(5, 40, n).astype(np.int32) for n in lengths]


def _plain_row(layout, question, body, title=None):
  question = question[: layout.row_length - 3 - (title is not None)]
  head = [layout.cls_id, *question, layout.sep_id]
  asked = len(head)
  if title is not None:
    title = title[: layout.title_length][: layout.row_length - 2 - asked]
    head += [*title, layout.sep_id]
  body = body[: layout.row_length - len(head) - 1]
  ids = [*head, *body, layout.sep_id]
  pad = layout.row_length - len(ids)
  return (
    ids + [layout.pad_id] * pad,
    [True] * len(ids) + [False] * pad,
    [0] * asked + [1] * (len(ids) - asked) + [0] * pad,
    [False] * len(head) + [True] * len(body) + [False] * (1 + pad),
  )


@pytest.mark.parametrize('title_length', [0, 1])
def test_rows_are_concatenation(data, title_length):
  layout = dataclasses.replace(data.layout, title_length=title_length)
  room = L - 3 - title_length
  questions = _questions(4, 0, room - 1 - title_length, room, 99)
  ids = np.asarray([[0, 5], [-1, 3], [2, 1], [4, -1], [6, 7]])
  rows = reader_rows.reader_rows(layout, data.blocks, ids, questions)
  cut, titles = 0, data.blocks.gather_titles
  for i, question in enumerate(questions):
    for j, block in enumerate(ids[i].tolist()):
      title = _tokens(titles, block) if title_length else None
      body = _tokens(data.blocks.gather, block)
      want = _plain_row(layout, question.tolist(), body, title)
      assert tuple(rows[name][i, j].tolist() for name in NAMES) == want
      inside = rows['reader_block_mask'][i, j]
      if inside.any():
        assert rows['reader_starts'][i, j] == inside.argmax()
      cut += title_length > 0 and len(title) > title_length
  assert bool(cut) == bool(title_length)
  np.testing.assert_array_equal(rows['reader_valid'], ids >= 0)
  # A question leaves one token of the block, or none; it is cut only then.
  assert (rows['reader_block_mask'].sum(-1)[3:] == 0).all()
  kinds = {name: rows[name].dtype for name in rows}
  assert kinds['reader_ids'] == kinds['reader_types'] == np.int32
  assert kinds['reader_starts'] == np.int32 and kinds['reader_mask'] == np.bool_


def test_titles_hold_no_answer(data):
  layout = dataclasses.replace(data.layout, title_length=1)
  ids = np.asarray([[0, 5], [-1, 3], [2, 1]])
  rows = reader_rows.reader_rows(layout, data.blocks, ids, _questions(4, 0, 2))
  answers = [[np.asarray(_tokens(data.blocks.gather_titles, 0)[:1])]] * len(ids)
  spans = reader_rows.token_spans(layout, rows, answers)
  np.testing.assert_array_equal(spans, _every_span(rows, answers))
  assert spans[0, 0].sum() < (rows['reader_ids'][0, 0] == answers[0][0]).sum()
  # Patterns match as without titles, further on in the row.
  _, plain = _patterns(data, ids, [['mill|river']] * len(ids))
  _, moved = _patterns(data, ids, [['mill|river']] * len(ids), layout)
  assert moved.any() and moved.sum() <= plain.sum()
  with pytest.raises(ValueError, match='title_length'):
    dataclasses.replace(layout, title_length=L - 4)


def test_question_rows_are_cut(data):
  rows = reader_rows.question_rows(data.layout, _questions(0, 3, Q - 2, 50))
  for i, question in enumerate(_questions(0, 3, Q - 2, 50)):
    want = [data.layout.cls_id, *question[: Q - 2], data.layout.sep_id]
    mask = rows['question_mask'][i]
    assert rows['question_ids'][i][mask].tolist() == want
    assert mask.tolist() == [True] * len(want) + [False] * (Q - len(want))
    assert (rows['question_ids'][i][~mask] == data.layout.pad_id).all()


def _every_span(rows, answers):
  """Looks at every span of every row."""
  ids, inside = rows['reader_ids'], rows['reader_block_mask']
  correct = np.zeros((*ids.shape[:2], W, L), bool)
  for b, r, w, s in np.ndindex(*correct.shape):
    if s + w < L and inside[b, r, s : s + w + 1].all():
      span = ids[b, r, s : s + w + 1].tolist()
      correct[b, r, w, s] = any(span == x.tolist() for x in answers[b])
  return correct


def test_spans_are_all_places_of_the_answers_in_the_block(data):
  ids = np.asarray([[0, 5, 2], [1, -1, 3], [4, 6, 7]])
  answers = [['Paris', 'the', 'mill river'], ['1066', 'crown crown'], ['Zz']]
  encode = data.tokenizer.encode
  tokens = [[encode(x).ids for x in row] for row in answers]
  tokens[2] += [np.zeros(0, np.int32), np.arange(W + 1)]
  # The questions hold the answers, which do not count there.
  questions = [np.concatenate([*row, encode('the').ids]) for row in tokens]
  rows = reader_rows.reader_rows(data.layout, data.blocks, ids, questions)
  found = reader_rows.token_spans(data.layout, rows, tokens)
  assert found.shape == (3, 3, W, L) and found.dtype == bool
  np.testing.assert_array_equal(found, _every_span(rows, tokens))
  assert found[0].any() and found[1].any() and not found[2].any()
  assert not found[1, 1].any() and (found[0].sum((1, 2)) > 1).any()


def _patterns(data, ids, patterns, layout=None):
  layout = layout or data.layout
  questions = _questions(*[3] * len(ids))
  rows = reader_rows.reader_rows(layout, data.blocks, ids, questions)
  return rows, reader_rows.pattern_spans(
    layout, data.blocks, ids, rows, patterns
  )


def test_spans_of_patterns_cover_what_they_match(data):
  ids = np.arange(data.blocks.num_blocks).reshape(-1, 1)
  patterns = (r'\s*mill\s*', '^the', r'\b1\d\d|99\b', 'river (paris|rome)')
  for pattern in (*patterns, 'o', r'\.$', r'(the|mill|.)+', '(', 'zz'):
    rows, found = _patterns(data, ids, [[pattern]] * len(ids))
    want = np.zeros_like(found)
    for b, text in enumerate(data.blocks.texts(ids[:, 0])):
      offsets = data.tokenizer.encode(text).offsets
      start = rows['reader_starts'][b, 0]
      room = rows['reader_block_mask'][b, 0].sum()
      compiled = answers_lib.compile_regex(pattern)
      for match in compiled.find_all(text) if compiled else ():
        a, z = match.span()
        inside = [
          i for i, (x, y) in enumerate(offsets.tolist()) if x < z and y > a
        ]
        if inside and inside[-1] - inside[0] < W and inside[-1] < room:
          want[b, 0, inside[-1] - inside[0], start + inside[0]] = True
    np.testing.assert_array_equal(found, want, pattern)
    assert found.any() == (pattern not in ('(', 'zz', r'(the|mill|.)+'))


def test_patterns_see_decomposed_text(tmp_path):
  text = 'Rome \u00e9e\u0301 \u65e5 mill\u00e9. The \u0130.'
  made = tiny_blocks.make(
    tmp_path,
    np.random.default_rng(0),
    given=[
      {'id': 'a', 'title': 'Mill', 'text': f'The mill was in Rome. {text}'}
    ],
    whole_documents=True,
  )
  layout = _layout(made.tokenizer, row_length=48)
  ids = np.asarray([[0, -1]])
  for pattern, want in {
    'e\u0301e': 'ee',
    '\u00e9$|mill\u00e9': 'mille',
    'the i\u0307': 'the i',
    '\u65e5': '[UNK]',
  }.items():
    rows, found = _patterns(made, ids, [['zz', pattern]], layout)
    [(_, block, width, start)] = np.argwhere(found).tolist()
    span = rows['reader_ids'][0, block, start : start + width + 1].tolist()
    if want == '[UNK]':
      assert span == [made.tokenizer.unk_id]
    else:
      assert span == made.tokenizer.encode(want).ids.tolist(), pattern


def test_rows_and_spans_are_those_of_the_port(tmp_path):
  """Hugging Face's retriever; here no question squeezes a block."""
  z = oracle.load('openqa')
  case = json.loads((oracle.PATH / 'config.json').read_text())
  tokenizer = tokenization.WordPieceTokenizer(oracle.PATH / 'vocab.txt')
  blocks = _oracle_blocks(tmp_path, case['blocks'])
  length = z['out/concat_input_ids'].shape[1]
  layout = _layout(
    tokenizer,
    row_length=length,
    question_length=z['in/question_ids'].shape[1],
    max_span_width=case['config']['max_span_width'],
  )
  question = tokenizer.encode(case['question']).ids
  np.testing.assert_array_equal(
    reader_rows.question_rows(layout, [question])['question_ids'],
    z['in/question_ids'],
  )
  ids = z['out/train_retrieved_ids']
  rows = reader_rows.reader_rows(layout, blocks, ids, [question])
  for ours, theirs in (
    ('reader_ids', 'concat_input_ids'),
    ('reader_mask', 'concat_attention_mask'),
    ('reader_types', 'concat_token_type_ids'),
  ):
    np.testing.assert_array_equal(rows[ours][0], z[f'out/{theirs}'], ours)
  answers = [tokenizer.encode(x).ids for x in case['answers']]
  for i, answer in enumerate(answers):
    np.testing.assert_array_equal(answer, z[f'in/answer_ids_{i}'])
  found = reader_rows.token_spans(layout, rows, [answers])[0]
  np.testing.assert_array_equal(found.any((1, 2)), z['out/has_answers'])
  starts, ends = z['out/start_positions'], z['out/end_positions']
  want = {
    (block, end - start, start)
    for block in range(len(starts))
    for start, end in zip(starts[block], ends[block], strict=True)
    if start >= 0
  }
  assert {*map(tuple, np.argwhere(found).tolist())} == want and want


def _oracle_blocks(root, texts):
  """Their blocks, tokenized by their vocabulary."""
  rows = [{'id': f'{i}', 'title': '', 'text': x} for i, x in enumerate(texts)]
  blocks = folder.build_blocks(
    root,
    json_corpus.write(root, rows),
    oracle.PATH / 'vocab.txt',
    tokens={},
    blocks={'whole_documents': True},
  )
  assert blocks.texts(range(len(texts))) == texts
  return blocks
