# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The official record files: read as corpora, and blocks come back from them."""

import numpy as np
import pytest

from retrieval.formats import tfrecord
from retrieval.text import corpus
from tests.retrieval.formats import examples
from tests.retrieval.text import json_corpus

Document = corpus.Document

BLOCKS = (' First\r\nblock. ', 'Second \u2028 e\u0301', 'Third \U0001f41d.')
TITLES = ('Ants', '', 'Über')


def _write_blocks(path, blocks=BLOCKS, titles=TITLES, suffix=''):
  path.mkdir(exist_ok=True)
  for name, texts in (('blocks', blocks), ('titles', titles)):
    data = (t if isinstance(t, bytes) else t.encode() for t in texts)
    tfrecord.write(path / f'{name}.tfr{suffix}', data)
  return path


DOCUMENTS = [
  Document(str(i), title, text)
  for i, (title, text) in enumerate(zip(TITLES, BLOCKS, strict=True))
]


@pytest.mark.parametrize('suffix', ['', '.gz'])
def test_blocks_with_their_titles(tmp_path, suffix):
  _write_blocks(tmp_path, suffix=suffix)
  assert json_corpus.read('orqa_blocks', tmp_path) == DOCUMENTS
  assert (
    json_corpus.read('orqa_blocks', tmp_path / f'blocks.tfr{suffix}')
    == DOCUMENTS
  )
  assert (
    json_corpus.read('orqa_blocks', tmp_path, max_documents=2) == DOCUMENTS[:2]
  )


def test_a_bad_block_is_named_or_counted_and_the_others_keep_their_ids(
  tmp_path,
):
  good, bad = BLOCKS, list(BLOCKS)
  bad[1] = b'ab\xff'
  _write_blocks(tmp_path, bad)
  message = r'blocks.tfr: record 1: byte 2 \(0xff\) is not UTF-8'
  with pytest.raises(ValueError, match=message):
    json_corpus.read('orqa_blocks', tmp_path)
  skipping = json_corpus.opened('orqa_blocks', tmp_path, on_error='skip')
  assert list(skipping) == [DOCUMENTS[0], DOCUMENTS[2]]
  assert skipping.skipped == {'invalid UTF-8': 1}
  _write_blocks(tmp_path, good, ['Ants', b'\xff', ''])
  with pytest.raises(ValueError, match=r'titles.tfr: record 1: byte 0'):
    json_corpus.read('orqa_blocks', tmp_path)
  _write_blocks(tmp_path, ['x', ' \n', 'y'])
  assert [d.id for d in json_corpus.read('orqa_blocks', tmp_path)] == ['0', '2']


def test_damage_ends_every_kind_even_when_skipping(tmp_path):
  _write_blocks(tmp_path)
  data = (tmp_path / 'blocks.tfr').read_bytes()
  (tmp_path / 'blocks.tfr').write_bytes(data[:-1])
  tfrecord.write(tmp_path / 'x-00000-of-00001', [_example()])
  data = (tmp_path / 'x-00000-of-00001').read_bytes()
  (tmp_path / 'x-00000-of-00001').write_bytes(data[:-1])
  for kind, number in (
    ('orqa_blocks', 2),
    ('orqa_corpus', 0),
    ('realm_pretraining', 0),
  ):
    with pytest.raises(ValueError, match=f'record {number} at byte .*ends'):
      json_corpus.read(kind, tmp_path, on_error='skip')


TEXT = 'Zoë saw it in May 1999. So did Bo.'
NUMBERS = {
  'sentence_byte_start': [0, 25],
  'sentence_byte_limit': [24, 35],
  'span_byte_start': [0, 15, 32],
  'span_byte_limit': [4, 23, 34],
}


def _example(text_name='text', **changes):
  features = {'title': [b'Zo'], text_name: [TEXT.encode()], 'uid': [b'7']}
  features |= {k: np.asarray(v, np.int64) for k, v in NUMBERS.items()}
  return examples.encode(
    {k: v for k, v in (features | changes).items() if v is not None}
  )


KINDS = {'orqa_corpus': 'body', 'realm_pretraining': 'text'}


@pytest.mark.parametrize(('kind', 'name'), KINDS.items())
def test_shards_of_examples(tmp_path, kind, name):
  for i in range(2):
    shard = tmp_path / f'wiki-0000{i}-of-00002'
    tfrecord.write(tmp_path / 'a.gz', [_example(name)] * (2 - i))
    (tmp_path / 'a.gz').rename(shard)
  (tmp_path / 'notes.txt').write_text('not read')
  expected = [
    Document(f'wiki-0000{i}-of-00002:{j}', 'Zo', TEXT)
    for i, j in ((0, 0), (0, 1), (1, 0))
  ]
  assert json_corpus.read(kind, tmp_path) == expected
  assert json_corpus.read(kind, tmp_path / 'wiki-*') == expected
  assert (
    json_corpus.read(kind, tmp_path / 'wiki-00001-of-00002') == expected[2:]
  )
  (tmp_path / 'wiki-00001-of-00002').rename(tmp_path / 'one.tfrecord')
  assert 'one.tfrecord:0' in [d.id for d in json_corpus.read(kind, tmp_path)]
  with pytest.raises(FileNotFoundError, match='corpus.path'):
    json_corpus.opened(kind, tmp_path / 'none')


BAD = {
  'invalid tf.train.Example': (
    b'The text.',
    'not a tf.train.Example: Error parsing',
  ),
  'missing field text': (
    _example('body'),
    "no field 'text'; the record has ['body', 'sentence_byte_limit', ",
  ),
  'wrong type of text': (_example(text=[b'a', b'b']), "'text' is list"),
  'invalid UTF-8': (_example(text=[b'\xff']), 'byte 0 (0xff) is not UTF-8'),
}


@pytest.mark.parametrize('reason', BAD)
def test_a_bad_example_is_named_or_counted(tmp_path, reason):
  record, message = BAD[reason]
  path = tmp_path / 'a.tfrecord'
  tfrecord.write(path, [_example(), record, _example()])
  with pytest.raises(ValueError) as error:
    json_corpus.read('realm_pretraining', path)
  assert str(error.value).startswith(f'{path}: record 1')
  assert message in str(error.value)
  skipping = json_corpus.opened('realm_pretraining', path, on_error='skip')
  assert [d.id for d in skipping] == ['a.tfrecord:0', 'a.tfrecord:2']
  assert skipping.skipped == {reason: 1}


def test_annotations_come_with_the_documents_ids(tmp_path):
  none = dict.fromkeys(('span_byte_start', 'span_byte_limit'))
  empty = {name: [] for name in NUMBERS}
  records = [_example(), _example(**none), _example(**empty)]
  tfrecord.write(tmp_path / 'a-00000-of-00001', records)
  found = json_corpus.opened('realm_pretraining', tmp_path)
  annotations = list(found.annotations())
  assert [a.document_id for a in annotations] == [d.id for d in found]
  [_, sentences, spans] = annotations[0]
  text = TEXT.encode()
  assert sentences.dtype == spans.dtype == np.int64
  assert [text[a:b].decode() for a, b in sentences] == [
    'Zoë saw it in May 1999.',
    'So did Bo.',
  ]
  assert [text[a:b].decode() for a, b in spans] == ['Zoë', 'May 1999', 'Bo']
  assert [len(a.sentences) for a in annotations] == [2, 2, 0]
  assert [a.spans.shape for a in annotations] == [(3, 2), (0, 2), (0, 2)]
  with pytest.raises(ValueError, match="'vital' has no sentences and spans"):
    corpus.Corpus(corpus.CorpusConfig()).annotations()
