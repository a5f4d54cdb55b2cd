# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The official record files: read as corpora, and blocks come back from them."""

import types

import numpy as np
import pytest

from retrieval import tokenization
from retrieval.formats import tf_example, tfrecord
from retrieval.text import (
  blocks as blocks_lib,
  corpus,
  official_records,
  tokens as tokens_lib,
)
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
  return tf_example.encode(
    {k: v for k, v in (features | changes).items() if v is not None}
  )


KINDS = {'orqa_corpus': 'body', 'realm_pretraining': 'text'}


@pytest.mark.parametrize(('kind', 'name'), KINDS.items())
def test_shards_of_examples(tmp_path, kind, name):
  for i in range(2):
    shard = tmp_path / f'wiki-0000{i}-of-00002'
    tfrecord.write(shard, [_example(name)] * (2 - i), packed=True)
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
  tfrecord.write(tmp_path / 'a-00000-of-00001', records, packed=True)
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


WORDS = 'the ant bee zo ##e saw moon may 1999 . big house here , x'.split()
PAGES = (
  ('The Ant', 'The ant saw Zoë. The bee saw the moon.\n\nThe ant? Saw it.'),
  ('', 'Zoë saw the big moon here. The bee saw the ant, the bee, the house.'),
  ('Moon', '  The moon saw the ant in May 1999.  '),
)


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  """A block store of a few short blocks."""
  root = tmp_path_factory.mktemp('blocks')
  vocabulary = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *WORDS]
  (root / 'vocab.txt').write_text('\n'.join(vocabulary))
  rows = [
    {'id': f'{i}', 'title': title, 'text': text}
    for i, (title, text) in enumerate(PAGES)
  ]
  tokens = tokens_lib.build_token_store(
    root / 'tokens',
    json_corpus.write(root, rows),
    root / 'vocab.txt',
    with_title=False,
    with_text=True,
    documents_per_shard=2,
  )
  blocks = blocks_lib.build_block_store(
    root / 'blocks', tokens, root / 'vocab.txt', max_length=17
  )
  assert blocks.num_blocks > len(PAGES)
  return types.SimpleNamespace(
    blocks=blocks,
    ids=range(blocks.num_blocks),
    vocabulary=vocabulary,
    tokenizer=tokenization.load_tokenizer(root / 'vocab.txt'),
  )


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
  monkeypatch.setattr(official_records, '_BATCH', 2)


def _check_same_blocks(documents, made):
  assert [d.text for d in documents] == made.blocks.texts(made.ids)
  assert [d.title for d in documents] == made.blocks.titles(made.ids)


def test_blocks_come_back(made, tmp_path):
  official_records.write_blocks(tmp_path / 'new', made.blocks)
  _check_same_blocks(json_corpus.read('orqa_blocks', tmp_path / 'new'), made)


def test_examples_hold_the_blocks_tokens_and_sentences(made, tmp_path):
  official_records.write_examples(tmp_path, made.blocks)
  records = list(tfrecord.read(tmp_path / 'examples.tfr'))
  assert len(records) == made.blocks.num_blocks
  tokenizer, many = made.tokenizer, 0
  for i, record in enumerate(records):
    example = tf_example.decode(record)
    assert sorted(example) == ['sentence_starts', 'title_ids', 'token_ids']
    [text], [title] = made.blocks.texts([i]), made.blocks.titles([i])
    starts = example['sentence_starts'].tolist()
    pieces = np.split(example['token_ids'], starts)
    sentences = made.blocks.sentence_bytes(np.asarray(made.blocks.sentences(i)))
    sentences = sentences - made.blocks.byte_spans(np.asarray([i]))[0, 0]
    assert starts[0] == 0 and len(sentences) == len(starts)
    for piece, (low, high) in zip(pieces[1:], sentences, strict=True):
      sentence = text.encode()[low:high].decode()
      assert piece.tolist() == tokenizer.encode(sentence).ids.tolist()
    assert example['title_ids'].tolist() == tokenizer.encode(title).ids.tolist()
    many += len(starts) > 1
  assert many


def test_retrieval_corpus(made, tmp_path):
  calls = []
  official_records.write_retrieval_corpus(
    tmp_path / 'new/wiki',
    made.blocks,
    made.tokenizer,
    2,
    progress=lambda *call: calls.append(call),
  )
  assert sorted(p.name for p in (tmp_path / 'new').iterdir()) == [
    'wiki-00000-of-00002',
    'wiki-00001-of-00002',
  ]
  documents = json_corpus.read('orqa_corpus', tmp_path / 'new')
  _check_same_blocks(documents, made)
  total = made.blocks.num_blocks
  assert calls[-1] == (total, total) and calls == sorted(calls)
  second = [d for d in documents if 'wiki-00001' in d.id]
  assert len(second) == total // 2
  assert (tmp_path / 'new/wiki-00000-of-00002').read_bytes()[:2] == b'\x1f\x8b'
  record = next(tfrecord.read(tmp_path / 'new/wiki-00000-of-00002'))
  example = tf_example.decode(record)
  for name, text in (
    ('title', documents[0].title),
    ('body', documents[0].text),
  ):
    ids = made.tokenizer.encode(text).ids.tolist()
    assert example[f'{name}_token_ids'].tolist() == ids
    assert example[f'{name}_token_starts'].tolist() == [-1] * len(ids)
    assert example[f'{name}_token_stops'].tolist() == [-1] * len(ids)
    texts = [piece.decode() for piece in example[f'{name}_token_texts']]
    assert texts == [made.vocabulary[i] for i in ids]
  assert '##e' in texts  # the first block's body has it
  assert set(example) == {'title', 'body'} | {
    f'{name}_token_{field}'
    for name in ('title', 'body')
    for field in ('texts', 'starts', 'stops', 'ids')
  }


def _first_words(blocks):
  """A salient span in every second block: its first word."""
  return lambda ids: [
    np.asarray([[0, len(text.split()[0].encode())]] if i % 2 else [])
    for i, text in zip(ids, blocks.texts(ids.tolist()), strict=True)
  ]


def test_pretraining_corpus(made, tmp_path):
  blocks = made.blocks
  official_records.write_pretraining(
    tmp_path / 'wiki', blocks, _first_words(blocks), 3
  )
  found = json_corpus.opened('realm_pretraining', tmp_path)
  _check_same_blocks(list(found), made)
  for i, annotation in enumerate(found.annotations()):
    sentences = blocks.sentence_bytes(np.asarray(blocks.sentences(i)))
    first = blocks.byte_spans(np.asarray([i]))[0, 0]
    assert annotation.sentences.tolist() == (sentences - first).tolist()
    [text] = blocks.texts([i])
    words = [text.encode()[a:b].decode() for a, b in annotation.spans]
    assert words == text.split()[: i % 2]
