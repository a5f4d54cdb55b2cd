# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The command trains where the preparing command looks, once."""

import json

import pytest

from configs import retro_pretrain_quickstart
from experiments.retro import train_tokenizer
from retrieval import tokenization


def _words(i):
  # All pairs of two lists of syllables: enough for a few dozen pieces.
  parts = 'ant bee cow dog elk fox gnu hen'.split()
  return ' '.join(a + parts[i % 8] + b for a in parts for b in parts)


_LINES = [
  {'id': str(i), 'title': f'Page {i}', 'text': f'{_words(i)}\n' * 3}
  for i in range(60)
]


@pytest.fixture
def config(tmp_path):
  path = tmp_path / 'pages.jsonl'
  path.write_text('\n'.join(map(json.dumps, _LINES)))
  config = retro_pretrain_quickstart.get_config('test')
  config.corpus.kind = 'jsonl'
  config.corpus.path = str(path)
  config.tokenizer.vocab_size = 300
  return config


def test_trains_once_and_says_what_came_out(config, tmp_path, capsys):
  train_tokenizer.run(config, str(tmp_path))
  model = tmp_path / 'data/tokenizer/model'
  assert tokenization.load_tokenizer(model.parent).vocab_size == 300
  out = capsys.readouterr().out
  assert 'equal after decoding' in out and 'bytes a token' in out
  written = model.stat().st_mtime_ns
  train_tokenizer.run(config, str(tmp_path))
  assert model.stat().st_mtime_ns == written


def test_another_size_is_refused(config, tmp_path):
  train_tokenizer.run(config, str(tmp_path))
  config.tokenizer.vocab_size = 310
  with pytest.raises(ValueError, match='of 300 pieces .*vocab_size is 310'):
    train_tokenizer.run(config, str(tmp_path))


def test_a_bad_line_is_named(config, tmp_path):
  with open(config.corpus.path, 'a') as f:
    f.write('\n{"id": 1}\n')
  with pytest.raises(ValueError, match="pages.jsonl:61: no field 'title'"):
    train_tokenizer.run(config, str(tmp_path))
  assert not (tmp_path / 'data').exists()
