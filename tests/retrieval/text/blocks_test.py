# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Blocks and sentences as spans of their documents."""

from hypothesis import given, strategies as st
import numpy as np
import pytest

from retrieval.text import blocks as blocks_lib, corpus as corpus_lib, packing
from tests.retrieval.text import tiny_blocks


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  return tiny_blocks.make(root, np.random.default_rng(0))


def test_sentences_are_stripped_and_in_order():
  text = ' Dr. Ünder met 日本.\nIt rained!  Yes?\n\n The end'
  found = [text[a:b] for a, b in packing.split_sentences(text)]
  assert found == ['Dr. Ünder met 日本.', 'It rained!', 'Yes?', 'The end']


@given(st.text())
def test_sentences_cover_all_but_blanks(text):
  found = packing.split_sentences(text)
  flat = [position for span in found for position in span]
  assert flat == sorted(flat)
  kept = ''.join(text[a:b] for a, b in found)
  assert ''.join(kept.split()) == ''.join(text.split())


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(3, 12))
def test_packing_is_greedy(lengths, budget):
  blocks = packing.pack(lengths, budget)
  assert [i for a, b in blocks for i in range(a, b)] == [*range(len(lengths))]
  for (first, limit), after in zip(blocks, [*blocks[1:], None], strict=False):
    used = sum(lengths[first:limit])
    assert used <= budget or limit == first + 1
    if after:
      assert used + lengths[after[0]] > budget


def test_blocks_are_spans_within_their_budget(data):
  blocks, tokenizer = data.blocks, data.tokenizer
  ids = np.arange(blocks.num_blocks)
  tokens, lengths = blocks.gather(ids, 32)
  titles, title_lengths = blocks.gather_titles(ids, 32)
  assert (lengths + title_lengths + 3 <= 32).all() and (lengths > 0).all()
  for i in ids:
    document = data.documents[int(blocks.documents(ids)[i])]
    start, limit = blocks.byte_spans[ids][i]
    raw = document['text'].encode()
    assert blocks.texts([i]) == [raw[start:limit].decode()]
    assert blocks.titles([i]) == [document['title']]
    want = tokenizer.encode(blocks.texts([i])[0]).ids
    np.testing.assert_array_equal(tokens[i, : lengths[i]], want)
    assert not tokens[i, lengths[i] :].any()
    want = tokenizer.encode(document['title']).ids
    np.testing.assert_array_equal(titles[i, : title_lengths[i]], want)


def test_blocks_hold_every_sentence_once(data):
  blocks = data.blocks
  seen = [s for i in range(blocks.num_blocks) for s in blocks.sentences(i)]
  assert seen == list(range(blocks.num_sentences))
  ids = np.asarray(seen)
  owners = blocks.sentence_blocks(ids)
  for i in range(blocks.num_blocks):
    assert (owners[list(blocks.sentences(i))] == i).all()
  inside = blocks.token_spans[owners]
  spans = blocks.sentence_tokens[ids]
  assert (spans[:, 0] >= inside[:, 0]).all()
  assert (spans[:, 1] <= inside[:, 1]).all()
  tokens, counts = blocks.gather_sentences(ids, 40)
  for i, (start, limit) in zip(ids, blocks.sentence_bytes[ids], strict=True):
    text = data.tokens.text_bytes(int(blocks.documents(owners)[i]))
    want = data.tokenizer.encode(text[start:limit].decode()).ids
    np.testing.assert_array_equal(tokens[i, : counts[i]], want)
  total = sum(len(packing.split_sentences(d['text'])) for d in data.documents)
  assert blocks.num_sentences == total


def test_names_lead_to_the_bytes_of_blocks(data):
  blocks = data.blocks
  ids = np.arange(blocks.num_blocks)
  by_id = {x['id']: x['text'].encode() for x in data.documents}
  names = blocks.names([*ids, -1])
  assert names.pop() == '' and len({*names}) == blocks.num_blocks
  for name, text in zip(names, blocks.texts(ids), strict=True):
    document, _, span = name.rpartition(':')
    start, limit = map(int, span.split('-'))
    assert by_id[document][start:limit].decode() == text


def test_no_block_and_cut_blocks(data):
  tokens, lengths = data.blocks.gather(np.asarray([[0, -1]]), 3)
  assert tokens.shape == (1, 2, 3) and lengths.tolist() == [[3, 0]]
  assert not tokens[0, 1].any()
  titles, lengths = data.blocks.gather_titles(np.asarray([-1]), 3)
  assert not titles.any() and not lengths.any()
  assert data.blocks.texts([-1]) == data.blocks.titles([-1]) == ['']


def test_equal_blocks_have_equal_hashes(tmp_path):
  rows = [
    {'id': 'a', 'title': 'T', 'text': 'The mill stood.'},
    {'id': 'b', 'title': 'T', 'text': 'The mill stood.'},
    {'id': 'c', 'title': 'U', 'text': 'The mill stood.'},
    {'id': 'd', 'title': 'T', 'text': 'The river stood.'},
  ]
  made = tiny_blocks.make(tmp_path, None, given=rows)
  a, b, c, d = made.blocks.all_hashes().tolist()
  assert a == b and len({a, c, d}) == 3


def test_titles_of_lists_are_dropped_from_wikipedia_alone(tmp_path):
  titles = [
    'List of mills',
    'Lists of rivers',
    'Index of Rome',
    'Outline of Paris',
    'Crown (disambiguation)',
    'A list of Rome',
    'Listing',
  ]
  rows = [
    {'id': str(i), 'title': title, 'text': 'The mill.'}
    for i, title in enumerate(titles)
  ]
  made = tiny_blocks.make(tmp_path, None, given=rows)
  assert made.blocks.num_blocks == 7 and made.blocks.num_dropped == 0

  def build(name, titles):
    return blocks_lib.build_block_store(
      tmp_path / name, made.tokens, made.tokenizer_path, drop_titles=titles
    )

  rule, own = blocks_lib.DROPPED_TITLES, ('Listing',)
  for kind, wikipedia, titles_given, expected in (
    ('jsonl', False, rule, ()),
    ('jsonl', True, rule, rule),
    ('vital', False, rule, rule),
    ('text', False, own, own),
  ):
    config = corpus_lib.CorpusConfig(kind=kind, wikipedia=wikipedia, path='x')
    assert blocks_lib.titles_to_drop(titles_given, config) == expected
  blocks = build('some', rule)
  assert blocks.titles(range(2)) == titles[-2:]
  assert blocks.num_blocks == 2 and blocks.num_dropped == 5
  with pytest.raises(ValueError, match='no block: 7 documents'):
    build('none', ('.*',))


def test_long_sentences_stand_alone_and_titles_leave_room(tmp_path):
  rows = [
    {
      'id': '0',
      'title': 'mill ' * 50,
      'text': 'In Rome. ' + 'the river ' * 40 + '. In Paris.',
    }
  ]
  made = tiny_blocks.make(tmp_path, None, given=rows, max_length=16)
  texts = made.blocks.texts(range(made.blocks.num_blocks))
  assert [len(text) > 100 for text in texts].count(True) == 1
  _, titles = made.blocks.gather_titles(np.arange(len(texts)), 99)
  assert titles.tolist() == [6] * len(texts)


def test_whole_documents_stay_whole(tmp_path):
  rows = tiny_blocks.documents(9, np.random.default_rng(1))
  made = tiny_blocks.make(
    tmp_path, None, given=rows, max_length=16, whole_documents=True
  )
  assert made.blocks.num_blocks == 9
  assert made.blocks.texts(range(9)) == [row['text'] for row in rows]


@pytest.mark.parametrize(
  ('language', 'parts'),
  [
    ('en', ['Am 3.', 'Oktober kam er.', 'Gut.']),
    ('de', ['Am 3. Oktober kam er.', 'Gut.']),
  ],
)
def test_languages_end_sentences_by_their_own_rules(language, parts):
  text = 'Am 3. Oktober kam er. Gut.'
  found = packing.split_sentences(text, language)
  assert [text[low:high] for low, high in found] == parts


def test_blocks_beyond_ascii_are_exact(tmp_path):
  parts = ['Ünder Röme 🐝 was mill.', 'Crown stööd in 1066!', 'París?', 'é x']
  text = ' \r\n'.join(f'  {part}' for part in parts)
  rows = [{'id': 'ä', 'title': 'Zoë', 'text': text}]
  made = tiny_blocks.make(tmp_path, None, given=rows, max_length=24)
  blocks = made.blocks
  assert blocks.num_sentences == 4 and blocks.num_blocks > 1
  raw = made.tokens.text_bytes(0)
  found = [raw[a:b].decode() for a, b in blocks.sentence_bytes[np.arange(4)]]
  assert found == parts
  texts = blocks.texts(range(blocks.num_blocks))
  assert ''.join(''.join(texts).split()) == ''.join(text.split())
  assert all(x == x.strip() and x in text for x in texts)
  assert blocks.titles([0]) == ['Zoë']
