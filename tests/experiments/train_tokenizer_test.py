# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The command trains where the preparing command looks, once."""

import json

import pytest

from configs import retro_pretrain_quickstart
from experiments import train_tokenizer
from retrieval import tokenizers

_LINES = [
  {'id': str(i), 'title': f'Page {i}', 'text': f'The ant saw bee {i}.\n' * 9}
  for i in range(60)
]


@pytest.fixture
def config(tmp_path):
  path = tmp_path / 'pages.jsonl'
  path.write_text('\n'.join(map(json.dumps, _LINES)))
  config = retro_pretrain_quickstart.get_config('test')
  config.corpus.kind = 'jsonl'
  config.corpus.path = str(path)
  config.tokenizer.vocab_size = 276
  return config


def test_trains_once_and_says_what_came_out(config, tmp_path, capsys):
  train_tokenizer.run(config, str(tmp_path))
  model = tmp_path / 'data/tokenizer/model'
  assert tokenizers.load_tokenizer(model.parent).vocab_size == 276
  out = capsys.readouterr().out
  assert 'equal after decoding' in out and 'bytes a token' in out
  written = model.stat().st_mtime_ns
  train_tokenizer.run(config, str(tmp_path))
  assert model.stat().st_mtime_ns == written


def test_another_size_is_refused(config, tmp_path):
  train_tokenizer.run(config, str(tmp_path))
  config.tokenizer.vocab_size = 280
  with pytest.raises(ValueError, match='276 pieces .* vocab_size is 280'):
    train_tokenizer.run(config, str(tmp_path))


def test_a_bad_line_is_named(config, tmp_path):
  with open(config.corpus.path, 'a') as f:
    f.write('\n{"id": 1}\n')
  with pytest.raises(ValueError, match="pages.jsonl:61: no field 'title'"):
    train_tokenizer.run(config, str(tmp_path))
  assert not (tmp_path / 'data').exists()
