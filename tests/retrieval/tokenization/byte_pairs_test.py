# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Byte pairs: every text comes back, each token stands for its bytes."""

import json
import pickle

import hypothesis
from hypothesis import strategies
import pytest

from retrieval import tokenization
from retrieval.tokenization import byte_pairs
from tests.retrieval.tokenization import tiny_byte_pairs as tiny

END = dict.fromkeys(('bos', 'eos', 'pad'), tiny.SPECIALS[0])


def _write(folder, tokens=tiny.TOKENS, specials=END, **settings):
  merges = [m for m in tiny.MERGES if m.replace(' ', '') in tokens]
  spec = byte_pairs.make_spec(tokens, merges, [0, 1], **settings)
  byte_pairs.write(folder, spec, specials)
  return folder


@pytest.fixture(scope='module')
def tokenizer(tmp_path_factory):
  return tokenization.load_tokenizer(
    _write(tmp_path_factory.mktemp('tokenizer'))
  )


def _pieces(tokenizer, text):
  encoding = tokenizer.encode(text)
  data = text.encode()
  return [data[a:b] for a, b in encoding.offsets.tolist()]


@hypothesis.given(strategies.text(max_size=40))
@hypothesis.settings(max_examples=60, deadline=None)
def test_every_text_comes_back(tokenizer, text):
  encoding = tokenizer.encode(text)
  assert tokenizer.decode(encoding.ids) == text
  assert b''.join(_pieces(tokenizer, text)) == text.encode()
  assert tokenizer.token_num_bytes[encoding.ids].sum() == len(text.encode())


def test_merges_and_specials(tokenizer):
  assert isinstance(tokenizer, tokenization.Tokenizer)
  assert _pieces(tokenizer, 'the the ü12') == [
    b'the',
    b' the',
    b' ',
    'ü'.encode(),
    b'12',
  ]
  assert tokenizer.vocab_size == len(tiny.TOKENS) == 263
  assert tokenizer.bos_id == tokenizer.eos_id == tokenizer.pad_id == 0
  text = f'a{tiny.SPECIALS[0]}'
  encoding = tokenizer.encode(text)
  assert len(encoding.ids) == len(text) and 0 not in encoding.ids
  assert tokenizer.decode([0, *encoding.ids, 1]) == text


def test_digits_stand_alone_where_they_are_split(tmp_path):
  tokenizer = byte_pairs.BytePairTokenizer(_write(tmp_path, split_digits=True))
  assert _pieces(tokenizer, '1212') == [b'1', b'2', b'1', b'2']


def test_bytes_that_are_no_tokens_are_passed_over(tmp_path):
  tokens = [token for token in tiny.TOKENS if token != 'z']
  tokenizer = byte_pairs.BytePairTokenizer(_write(tmp_path, tokens))
  assert _pieces(tokenizer, 'üz the z') == ['ü'.encode(), b' the', b' ']


def test_dropout_is_for_training(tokenizer, tmp_path):
  spec = json.loads((_write(tmp_path) / byte_pairs.FILE).read_text())
  spec['model']['dropout'] = 0.5
  (tmp_path / byte_pairs.FILE).write_text(json.dumps(spec))
  other, text = byte_pairs.BytePairTokenizer(tmp_path), 'the the they then'
  encodings = {tuple(other.encode(text).ids.tolist()) for _ in range(9)}
  assert encodings == {tuple(tokenizer.encode(text).ids.tolist())}


def test_saved_and_sent_it_is_the_same(tokenizer, tmp_path):
  tokenizer.save(tmp_path)
  for other in (
    tokenization.load_tokenizer(tmp_path / 'tokenizer.json'),
    pickle.loads(pickle.dumps(tokenizer)),
  ):
    assert other.fingerprint == tokenizer.fingerprint
    assert other.decode(other.encode('the 日本').ids) == 'the 日本'
  specials = {**END, 'eos': tiny.SPECIALS[1]}
  other = byte_pairs.BytePairTokenizer(_write(tmp_path, specials=specials))
  assert other.eos_id == 1 and other.fingerprint != tokenizer.fingerprint


def _plain(folder, *contents, **flags):
  """A tokenizer with added tokens that are not special, from id 263 on."""
  spec = json.loads((_write(folder) / byte_pairs.FILE).read_text())
  for i, content in enumerate(contents, len(tiny.TOKENS)):
    added = {**spec['added_tokens'][0], 'id': i, 'content': content, **flags}
    spec['added_tokens'].append(added | {'special': False})
  (folder / byte_pairs.FILE).write_text(json.dumps(spec))
  return byte_pairs.BytePairTokenizer(folder)


@pytest.mark.parametrize('flags', [{}, {'lstrip': True, 'rstrip': True}])
def test_added_tokens_that_are_not_special_are_text(tmp_path, flags):
  made = _plain(tmp_path / 'a', 'LINDBY', '  ', 'ü本', **flags)
  made.save(tmp_path / 'b')
  for tokenizer in (made, pickle.loads(pickle.dumps(made))):
    assert tokenizer.vocab_size == 266
    text = 'theLINDBY LINDBY  ü本!<|other|>'
    ids, offsets = tokenizer.encode(text)
    assert [i for i in ids if i > 262] == [263, 263, 264, 265] and 1 not in ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode([263, 0, 265]) == 'LINDBYü本'
    assert tokenizer.token_num_bytes[263:].tolist() == [6, 2, 5]
    data = text.encode()
    assert b''.join(data[a:b] for a, b in offsets) == data


def test_what_is_no_byte_pairs_is_refused(tmp_path):
  path = tmp_path / 'tokenizer.json'
  path.write_text(json.dumps({'model': {'type': 'BPE', 'vocab': []}}))
  with pytest.raises(ValueError, match='tokenizer.json'):
    byte_pairs.BytePairTokenizer(path)
  _write(tmp_path, specials={**END, 'bos': '<s>'})
  with pytest.raises(ValueError, match=r"lacks \['<s>'\]"):
    tokenization.load_tokenizer(tmp_path)
