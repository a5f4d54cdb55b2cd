# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers: nothing is lost, offsets are bytes, training repeats itself."""

import io
import json
import pickle
import random

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
import sentencepiece
import tokenizers as hf

from retrieval import tokenization
from retrieval.tokenization import sentencepiece as sentencepiece_lib

WORDS = (
  'the ant bee cat dog elm fig goat hen ink jay kite lamp moon nest oak pear '
  'quail rose sun tree urn vine wren yew zebra 1984 2026 caf\u00e9 stra\u00dfe'
).split()
HARD = (
  '',
  ' ',
  '\u2581',
  'a\u2581\u2581b \u2581 c',
  '\0x\0',
  '\r\n\t  \n\n ',
  'e\u0301\u0301 \u0301',
  '\U0001f469\u200d\U0001f680 \u65e5\u672c',
  '\ufeff\u200b\u00a0\u3000\ufb01\u2028',
  '<s></s><unk><pad><0x41>',
  '\x01\x7f\x85\U0010ffff\ufffe',
  'the ant' + ' ' * 500 + 'bee',
)


def _texts(count=400, seed=0):
  rng = random.Random(seed)
  return [
    '\n'.join(' '.join(rng.choices(WORDS, k=12)) for _ in range(3))
    for _ in range(count)
  ]


@pytest.fixture(scope='module')
def pieces(tmp_path_factory):
  path = tmp_path_factory.mktemp('tokenizer')
  return tokenization.train_sentencepiece(_texts(), path / 'model', 340)


def _check_lossless(tokenizer, text):
  data = text.encode()
  ids, offsets = tokenizer.encode(text)
  assert ids.dtype == np.int32 and offsets.dtype == np.int64
  assert offsets.shape == (len(ids), 2)
  assert tokenizer.decode(ids) == text
  assert tokenizer.token_num_bytes[ids].sum() == len(data)
  assert (tokenizer.token_num_bytes[ids] > 0).all()
  for token, (start, end) in zip(ids, offsets, strict=True):
    part = data[start:end].decode(errors='replace')
    assert tokenizer.decode([token]) == part
  # Spans cover the bytes one after the other.
  assert (offsets[1:, 0] == offsets[:-1, 1]).all()
  if data:
    assert offsets[0, 0] == 0 and offsets[-1, 1] == len(data)


@pytest.mark.parametrize('text', HARD)
def test_hard_texts_round_trip(pieces, text):
  _check_lossless(pieces, text)


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(
  st.one_of(
    st.text(),
    st.text(alphabet=' \u2581\0\r\n<>s/abe\u0301\U0001f41d\u00e9', max_size=60),
  )
)
def test_every_text_round_trips(pieces, text):
  _check_lossless(pieces, text)


def test_ids_and_specials(pieces):
  assert pieces.vocab_size == 340 == len(pieces.token_num_bytes)
  assert (pieces.pad_id, pieces.unk_id) == (0, 1)
  assert (pieces.bos_id, pieces.eos_id) == (2, 3)
  assert pieces.token_num_bytes.dtype == np.int32
  assert (pieces.token_num_bytes[:4] == 0).all()
  ids = pieces.encode('the ant').ids
  assert pieces.decode([2, *ids, 3, 0, 0]) == 'the ant'
  assert pieces.decode(np.zeros(0, np.int32)) == pieces.decode([]) == ''
  # Half a character is replaced, not refused.
  assert '\ufffd' in pieces.decode(pieces.encode('\U0001f41d').ids[:2])


def test_training_repeats_itself(tmp_path, monkeypatch):
  prints = set()
  for name, most in (('a', 300), ('b', 300), ('c', 10**6)):
    monkeypatch.setattr(sentencepiece_lib, '_MAX_LINES', most)
    made = tokenization.train_sentencepiece(
      iter(_texts()), tmp_path / name / 'model', 340
    )
    prints.add(made.fingerprint)
  assert len(prints) == 2  # a == b: sampled lines are the same lines
  assert sorted(p.name for p in (tmp_path / 'a').iterdir()) == ['model']


def test_a_vocabulary_of_128k_is_within_range(tmp_path):
  with pytest.raises(ValueError, match='128,000: too large for this text'):
    tokenization.train_sentencepiece(_texts(5), tmp_path / 'model', 128_000)


_PROBED = ['x', '\ufb01', '\t', 'e', '\u0301', '\r', '\n']
_FAITHFUL = {
  'normalization_rule_name': 'identity',
  'add_dummy_prefix': False,
  'remove_extra_whitespaces': False,
  'byte_fallback': True,
  'pad_id': 3,
}


@pytest.mark.parametrize(
  ('settings', 'message'),
  [
    ({'normalization_rule_name': 'nmt_nfkc'}, 'loses text'),
    ({'add_dummy_prefix': True}, 'loses text'),
    ({'remove_extra_whitespaces': True}, 'loses text'),
    ({'byte_fallback': False, 'user_defined_symbols': _PROBED}, 'loses text'),
    ({'pad_id': -1}, 'lacks a pad, bos or eos id'),
    ({}, ''),
  ],
)
def test_models_that_lose_text_are_refused(tmp_path, settings, message):
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.Train(
    sentence_iterator=iter([*_texts(), *'\ufb01 \t e\u0301 \r \n'.split(' ')]),
    model_writer=model,
    vocab_size=330,
    character_coverage=1.0,
    hard_vocab_limit=False,
    minloglevel=2,
    **_FAITHFUL | settings,
  )
  (tmp_path / 'model').write_bytes(model.getvalue())
  if message:
    with pytest.raises(ValueError, match=message):
      tokenization.load_tokenizer(tmp_path)
  else:
    _check_lossless(tokenization.load_tokenizer(tmp_path), HARD[3])


VOCAB = (
  '[PAD] [UNK] [CLS] [SEP] [MASK] the ant ants ##s cafe un ##want ##ed run '
  '##ning , . ! \u65e5 \u672c Ant \u00e9 stra\u00dfe'
).split()


@pytest.fixture(scope='module')
def vocab_dir(tmp_path_factory):
  path = tmp_path_factory.mktemp('wordpiece')
  (path / 'vocab.txt').write_text('\n'.join(VOCAB) + '\n', encoding='utf-8')
  return path


@pytest.fixture(scope='module')
def wordpiece(vocab_dir):
  return tokenization.WordPieceTokenizer(vocab_dir)


WORDPIECE_CASES = {
  # text -> (tokens, the bytes each one stands for); by hand.
  'The ants, unwanted!': (
    'the ants , un ##want ##ed !',
    ['The', 'ants', ',', 'un', 'want', 'ed', '!'],
  ),
  'Caf\u00e9 running\n': ('cafe run ##ning', ['Caf\u00e9', 'run', 'ning']),
  '\u65e5\u672c\U0001f41d the': (
    '\u65e5 \u672c [UNK] the',
    ['\u65e5', '\u672c', '\U0001f41d', 'the'],
  ),
  'cafe\u0301 x\u0301': ('cafe [UNK]', None),
  '': ('', []),
}


@pytest.mark.parametrize('text', WORDPIECE_CASES)
def test_wordpieces_and_byte_offsets(wordpiece, text):
  tokens, parts = WORDPIECE_CASES[text]
  ids, offsets = wordpiece.encode(text)
  assert [VOCAB[i] for i in ids] == tokens.split()
  assert ids.dtype == np.int32 and offsets.dtype == np.int64
  assert offsets.shape == (len(ids), 2)
  data = text.encode()
  found = [data[start:end].decode() for start, end in offsets]
  if parts is not None:
    assert found == parts


def test_wordpiece_specials(vocab_dir):
  tokenizer = tokenization.WordPieceTokenizer(vocab_dir / 'vocab.txt')
  assert tokenizer.vocab_size == len(VOCAB)
  assert (tokenizer.pad_id, tokenizer.unk_id) == (0, 1)
  assert tokenizer.cls_id == tokenizer.bos_id == 2
  assert tokenizer.sep_id == tokenizer.eos_id == 3
  assert tokenizer.mask_id == 4
  assert tokenizer.decode([2, 10, 11, 12, 3, 0]) == 'unwanted'


@pytest.mark.parametrize('max_length', [2, 3, 6, 100])
def test_wordpiece_input_of_bert(vocab_dir, max_length):
  texts = ['The ants, unwanted!', '', '\u65e5 the ' * 20, '? the']
  reference = hf.implementations.BertWordPieceTokenizer(
    str(vocab_dir / 'vocab.txt')
  )
  reference.enable_truncation(max_length)
  rows = tokenization.WordPieceTokenizer(vocab_dir).encode_ids_batch(
    texts, max_length
  )
  assert rows == [e.ids for e in reference.encode_batch(texts)]


def test_specials_in_a_text_are_text(vocab_dir, tmp_path):
  made = tokenization.WordPieceTokenizer(vocab_dir)
  made.save(tmp_path)
  # Tokens that tokenizer.json adds; the second is no special to the library.
  spec = json.loads((tmp_path / 'tokenizer.json').read_text())
  added = spec['added_tokens'][0] | {'content': '</s>', 'id': len(VOCAB)}
  spec['added_tokens'] = [*spec['added_tokens'], added]
  spec['added_tokens'][3]['special'] = False  # [SEP]
  (tmp_path / 'tokenizer.json').write_text(json.dumps(spec))
  text = 'the [SEP] ant[MASK] [CLS]</s>, [PAD] [UNK]'
  for tokenizer in (
    made,
    pickle.loads(pickle.dumps(made)),
    tokenization.load_tokenizer(tmp_path),
  ):
    specials = {0, 2, 3, 4, len(VOCAB)}
    ids, offsets = tokenizer.encode(text)
    assert not specials & {*ids.tolist()} and 5 in ids and 6 in ids
    assert offsets[-1].tolist() == [len(text) - 1, len(text)]
    (row,) = tokenizer.encode_ids_batch([text], 99)
    assert row == [2, *ids.tolist(), 3]


def test_wordpiece_case(vocab_dir, tmp_path):
  text = 'Ant'
  lower, cased = VOCAB.index('ant'), VOCAB.index('Ant')
  make = tokenization.WordPieceTokenizer
  assert make(vocab_dir).encode(text).ids == [lower]
  (tmp_path / 'vocab.txt').write_bytes((vocab_dir / 'vocab.txt').read_bytes())
  config = tmp_path / 'tokenizer_config.json'
  config.write_text(json.dumps({'do_lower_case': False}))
  loaded = tokenization.load_tokenizer(tmp_path)
  assert loaded.encode(text).ids == [cased]
  assert loaded.fingerprint != make(vocab_dir).fingerprint


def test_vocabularies_of_other_programs(vocab_dir, tmp_path):
  reference = tokenization.WordPieceTokenizer(vocab_dir)
  lines = (vocab_dir / 'vocab.txt').read_bytes()
  crlf = b'\xef\xbb\xbf' + lines.replace(b'\n', b'\r\n')
  (tmp_path / 'vocab.txt').write_bytes(crlf)
  made = tokenization.load_tokenizer(tmp_path)
  assert made.fingerprint == reference.fingerprint
  made.save(tmp_path)
  spec = (tmp_path / 'tokenizer.json').read_bytes()
  (tmp_path / 'tokenizer.json').write_bytes(b'\xef\xbb\xbf' + spec)
  assert tokenization.load_tokenizer(tmp_path).fingerprint == made.fingerprint
  # A blank line has an id; of a piece that occurs twice the last one counts.
  (tmp_path / 'vocab.txt').write_bytes(lines + b'\nthe\n')
  made = tokenization.load_tokenizer(tmp_path / 'vocab.txt')
  assert made.encode('the').ids == [len(VOCAB) + 1]
  (tmp_path / 'vocab.txt').write_bytes(lines + b'\xe9\n')
  with pytest.raises(ValueError, match=rf'vocab.txt:{len(VOCAB) + 1}: '):
    tokenization.load_tokenizer(tmp_path / 'vocab.txt')


@pytest.mark.parametrize('kind', ['pieces', 'wordpiece'])
def test_saved_loaded_and_pickled_it_is_the_same(request, kind, tmp_path):
  first = request.getfixturevalue(kind)
  first.save(tmp_path / 'a')
  [file] = (tmp_path / 'a').iterdir()
  for path in (tmp_path / 'a', file):
    loaded = tokenization.load_tokenizer(path)
    assert type(loaded) is type(first)
    assert loaded.fingerprint == first.fingerprint
  for text in (*HARD, *WORDPIECE_CASES):
    for other in (loaded, pickle.loads(pickle.dumps(first))):
      for a, b in zip(first.encode(text), other.encode(text), strict=True):
        np.testing.assert_array_equal(a, b)


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(st.text(alphabet='the ant\u00e9\u65e5\U0001f41d,\u0301\n\0'))
def test_wordpiece_offsets_are_whole_characters(wordpiece, text):
  ids, offsets = wordpiece.encode(text)
  data = text.encode()
  for start, end in offsets:
    assert 0 <= start < end <= len(data)
    data[start:end].decode()
  assert (np.diff(offsets[:, 0]) > 0).all()
