# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile files of tokenizers are refused in one line."""

import json

import pytest
import tokenizers as hf

from retrieval import tokenization

VOCAB = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'the', 'ant')


def _spec(change):
  vocabulary = {piece: i for i, piece in enumerate(VOCAB)}
  tokenizer = hf.implementations.BertWordPieceTokenizer(vocabulary)
  spec = json.loads(tokenizer.to_str())
  change(spec)
  return json.dumps(spec)


def _added(**fields):
  def change(spec):
    spec['added_tokens'].append(spec['added_tokens'][0] | fields)

  return change


# What it says of the file, beside its name.
HOSTILE = {
  'large_id': (lambda s: s['model']['vocab'].update(ant=2**31 - 1), "'ant'"),
  'two_of_one_id': (lambda s: s['model']['vocab'].update(ant=5), "'ant'"),
  'added_of_one_id': (_added(content='new', id=5), "'new'"),
  'added_without_id': (
    lambda s: s['added_tokens'].append({'content': 'x'}),
    '',
  ),
  'no_vocabulary': (
    lambda s: s.update(added_tokens=[], model=s['model'] | {'vocab': {}}),
    'lacks',
  ),
  'no_model': (lambda s: s.update(model=1), ''),
  'unknown_merge': (
    lambda s: s.update(
      model={
        'type': 'BPE',
        'vocab': {'a': 0, '<|endoftext|>': 1},
        'merges': ['a b'],
      },
      pre_tokenizer={
        'type': 'ByteLevel',
        'add_prefix_space': False,
        'trim_offsets': False,
      },
      added_tokens=[],
    ),
    '`b`',
  ),
}


@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_files_are_refused_by_name(tmp_path, name):
  change, named = HOSTILE[name]
  path = tmp_path / 'tokenizer.json'
  path.write_text(_spec(change))
  with pytest.raises(ValueError) as error:
    tokenization.load_tokenizer(path)
  message = str(error.value)
  assert str(path) in message and named in message and '\n' not in message


def test_what_is_not_json_is_refused(tmp_path):
  path = tmp_path / 'tokenizer.json'
  for data in (b'', b'\xff', b'[' * 99_999, b'[1]'):
    path.write_bytes(data)
    with pytest.raises(ValueError, match='tokenizer.json'):
      tokenization.load_tokenizer(path)


def test_a_regex_that_runs_away_is_an_error_of_one_line(tmp_path):
  def change(spec):
    pattern = {'Regex': '(a+)+$'}
    spec['pre_tokenizer'] = {
      'type': 'Split',
      'pattern': pattern,
      'behavior': 'Isolated',
      'invert': False,
    }

  path = tmp_path / 'tokenizer.json'
  path.write_text(_spec(change))
  tokenizer = tokenization.load_tokenizer(path)
  for encode in (
    tokenizer.encode,
    lambda x: tokenizer.encode_ids_batch([x], 9),
  ):
    with pytest.raises(ValueError, match='tokenizer.json: cannot encode'):
      encode('a' * 5000 + '!')
