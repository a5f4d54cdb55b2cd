# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenizing processes end with the process that started them."""

import pathlib
import signal
import subprocess
import sys
import time

import pytest

from retrieval import tokenizers

ROOT = pathlib.Path(__file__).parents[2]

_ENDLESS = """
import itertools, sys, time, types
sys.path.insert(0, {root!r})
from retrieval import corpus, tokens

class Endless(types.SimpleNamespace):
  def __iter__(self):
    for i in itertools.count():
      time.sleep(0.01)
      yield corpus.Document(str(i), '', 'river queen')

tokens.build_token_store(
  {out!r},
  Endless(fingerprint=lambda: 'endless', config='', skipped={{}}),
  {tokenizer!r},
  documents_per_shard=4,
  num_processes=2,
)
"""


def test_killed_job_leaves_no_process_behind(tmp_path):
  texts = [
    f'river queen tensor apple moon {i} ground corn mill past old where nobody'
    for i in range(50)
  ]
  tokenizers.train_sentencepiece(texts, tmp_path / 'tokenizer' / 'model', 295)
  script = _ENDLESS.format(
    root=str(ROOT),
    out=str(tmp_path / 'tokens'),
    tokenizer=str(tmp_path / 'tokenizer'),
  )
  process = subprocess.Popen(
    [sys.executable, '-c', script], stdout=subprocess.PIPE
  )
  deadline = time.monotonic() + 60
  while len(list(tmp_path.glob('tokens.partial-*/shard-*.json'))) < 4:
    assert process.poll() is None, 'The job ended before it could be killed.'
    assert time.monotonic() < deadline
    time.sleep(0.02)
  process.send_signal(signal.SIGKILL)
  # The workers have inherited the pipe: it ends when the last of them does.
  try:
    process.communicate(timeout=15)
  except subprocess.TimeoutExpired:
    pytest.fail('A worker outlived the process that started it.')
