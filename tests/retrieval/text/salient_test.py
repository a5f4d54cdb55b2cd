# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The span store: which spans are kept, where they lie, and how it is built."""

import itertools

from hypothesis import given, strategies as st
import numpy as np
import pytest

from retrieval.text import salient, taggers
from tests.retrieval.text import tiny_blocks

NAMES = ('Paris', 'Rome', 'Rome crown', 'The mill', 'in', 'ill')


class Names:
  """Finds every occurrence of some words, as tokens or not."""

  labels = ('NAME', 'DATE')
  fingerprint = 'names'

  def tag(self, documents):
    dated = taggers.DateTagger().tag(documents)
    return [
      [
        *(
          taggers.Span(at, at + len(name), 'NAME')
          for name in NAMES
          for at in range(len(document.text))
          if document.text.startswith(name, at)
        ),
        *spans,
      ]
      for document, spans in zip(documents, dated, strict=True)
    ]


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  made = tiny_blocks.make(root, np.random.default_rng(0))
  made.spans = salient.build_salient_store(root / 'spans', made.blocks, Names())
  return made


def _map_slowly(spans, token_bytes, sentence_bytes):
  """`salient.map_spans`, one span and one token at a time."""
  rows = []
  for start, limit in spans:
    tokens = list(enumerate(token_bytes))[1:]
    inside = [i for i, (a, b) in tokens if start <= a and b <= limit]
    cut = any(a < edge < b for _, (a, b) in tokens for edge in (start, limit))
    holder = [
      i for i, (a, b) in enumerate(sentence_bytes) if a <= start and start < b
    ]
    if not holder:
      outcome = 'outside every block'
    elif limit > sentence_bytes[holder[0]][1]:
      outcome = 'crosses a sentence'
    elif cut:
      outcome = 'cuts a wordpiece'
    elif not inside:
      outcome = 'covers no token'
    else:
      outcome = 'kept'
    rows.append((holder, inside, outcome))
  return rows


@st.composite
def _layouts(draw):
  """Tokens with gaps and repetitions, sentences at their ends, any spans."""
  lengths = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3))))
  token_bytes, at = [(0, 0)], 0
  for gap, length in lengths:
    token_bytes.append((at + gap, at + gap + length))
    if draw(st.booleans()) and draw(st.booleans()):
      token_bytes.append(token_bytes[-1])  # one character, two tokens
    at += gap + length
  ends = draw(st.sets(st.sampled_from(token_bytes[1:]))) if lengths else set()
  ends = sorted(ends)
  sentences = [(a, b) for (_, a), (_, b) in itertools.pairwise([(0, 0), *ends])]
  places = st.integers(0, at + 2)
  pairs = st.tuples(places, places).filter(lambda pair: pair[0] < pair[1])
  return draw(st.lists(pairs)), token_bytes, sentences


@given(_layouts())
def test_mapping_equals_a_slow_reference(layout):
  arrays = (np.asarray(x, np.int64).reshape(-1, 2) for x in layout)
  sentence, tokens, outcome = salient.map_spans(*arrays)
  for i, (holder, inside, want) in enumerate(_map_slowly(*layout)):
    assert salient.OUTCOMES[outcome[i]] == want
    assert [sentence[i]] == (holder or [-1])
    if want == 'kept':
      assert list(range(*tokens[i])) == inside


def test_spans_are_whole_tokens_of_one_sentence(data):
  blocks, spans = data.blocks, data.spans
  assert 50 < spans.num_spans == len(spans.label)
  sentences = spans.sentence[:]
  token_spans = blocks.sentence_tokens[sentences]
  byte_spans = blocks.sentence_bytes[sentences]
  owners = blocks.documents(blocks.sentence_blocks(sentences))
  first, limit = spans.token_start[:], spans.token_limit[:]
  assert ((token_spans[:, 0] <= first) & (limit <= token_spans[:, 1])).all()
  assert (byte_spans[:, 0] <= spans.byte_start[:]).all()
  assert (spans.byte_limit[:] <= byte_spans[:, 1]).all()
  for i, document in enumerate(owners.tolist()):
    raw = data.documents[document]['text'].encode()
    name = raw[spans.byte_start[i] : spans.byte_limit[i]].decode()
    want = data.tokenizer.encode(name).ids
    row = data.tokens.document(document)
    np.testing.assert_array_equal(row[first[i] : limit[i]], want)
    label = spans.labels[spans.label[i]]
    assert name in (NAMES if label == 'NAME' else ('1066', '1999'))


def test_what_is_wrong_is_counted(tmp_path):
  text = 'The mill stood in \u200bParis.  Rome was in Rome.\n\nThe river Mills.'
  spans = {
    'kept': [
      'Paris',
      '\u200bParis.',
      'Rome was',
      'river',
      'stood',
      'mill stood in',
      'The mill',
    ],
    'repeated': ['The mill', 'Paris'],
    'outside every block': ['  Rome', '\n'],
    'crosses a sentence': ['Paris.  Rome', 'Rome.\n'],
    'cuts a wordpiece': ['ver Mil', 'he mill', 'mill stoo'],
    'covers no token': ['\u200b', ' '],
  }
  rows = []
  for names in spans.values():
    for name in names:
      at = len(text[: text.index(name)].encode())
      rows.append([at, at + len(name.encode())])
  given = [
    {'id': 'a', 'title': '', 'text': text},
    {'id': 'l', 'title': 'List of mills', 'text': 'Rome.'},
    {'id': 'n', 'title': '', 'text': 'Rome.'},
  ]
  data = tiny_blocks.make(tmp_path, None, given=given, drop_titles=('List of',))
  tagger = taggers.AnnotatedTagger([('a', rows), ('l', [[0, 4]])])
  found = salient.build_salient_store(tmp_path / 'spans', data.blocks, tagger)
  want = {name: len(names) for name, names in spans.items()}
  assert found.counts() == {'documents': 2, **want, 'SPAN': 7}
  assert found.num_spans == 7
  # What no token stands for is not part of a span.
  raw = text.encode()
  bounds = zip(found.byte_start[:], found.byte_limit[:], strict=True)
  names = [raw[a:b].decode() for a, b in bounds]
  assert names == [
    'The mill',
    'mill stood in',
    'stood',
    'Paris',
    'Paris.',
    'Rome was',
    'river',
  ]


def test_a_store_without_spans_is_refused(data, tmp_path):
  tagger = taggers.AnnotatedTagger([('of another corpus', [[0, 1]])])
  with pytest.raises(ValueError, match='no salient span in 30 documents'):
    salient.build_salient_store(tmp_path / 'spans', data.blocks, tagger)
  assert not (tmp_path / 'spans').exists()
