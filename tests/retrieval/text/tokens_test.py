# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Token stores: texts, titles and the bytes of each token."""

import unicodedata
from unittest import mock

import numpy as np
import pytest

from retrieval import tokenization
from retrieval.store import executors
from retrieval.text import tokens as tokens_lib
from tests.retrieval.store import tiny_stores
from tests.retrieval.text import json_corpus, tiny_blocks

TEXTS = (
  ' The mill\r\nstood in Rome. ',
  'Cr\u00f6wn, Cro\u0308wn: \u65e5\u672c \U0001f41d in 1066!',
  'x',
  '\tPar\u00eds\u2028was\u00a0in R\u00f3me \ufb01\x00n.\n',
  'river ' * 40,
)


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  """A corpus beyond ASCII, a folder, and what its WordPiece tokenizer made."""
  root = tmp_path_factory.mktemp('tokens')
  rows = [
    {'id': f'd{i}', 'title': f'T\u00eftle {i}', 'text': text}
    for i, text in enumerate(TEXTS)
  ]
  corpus = json_corpus.write(root, rows)
  tiny_blocks.write_vocabulary(root / 'tokenizer')
  return corpus, root, _build(corpus, root, 'texts')


def _build(corpus, root, name, documents_per_shard=2, num_processes=1):
  return tokens_lib.build_token_store(
    root / name,
    corpus,
    root / 'tokenizer',
    with_title=False,
    with_text=True,
    documents_per_shard=documents_per_shard,
    num_processes=num_processes,
  )


def _plain(text):
  """Lower case without accents, as the WordPiece tokenizer reads it."""
  decomposed = unicodedata.normalize('NFD', text.lower())
  return ''.join(x for x in decomposed if unicodedata.category(x) != 'Mn')


def test_one_shard_starts_no_process(data):
  corpus, root, tokens = data
  with mock.patch.object(executors.Processes, 'run') as started:
    made = _build(corpus, root, 'one', len(TEXTS) + 1, num_processes=2)
    assert not started.called
  for i in range(len(TEXTS)):
    np.testing.assert_array_equal(made.document(i), tokens.document(i))


def test_bytes_of_tokens_are_their_wordpieces(data):
  _, root, tokens = data
  tokenizer = tokenization.load_tokenizer(root / 'tokenizer')
  unknown = []
  for i in range(len(TEXTS)):
    ids, raw = tokens.document(i), tokens.text_bytes(i)
    slices = [raw[low:high].decode() for low, high in tokens.token_bytes(i)]
    assert len(ids) == len(slices) and slices[0] == ''
    spans = tokens.token_bytes(i)
    assert spans.dtype == np.int32 and (np.diff(spans[:, 0]) >= 0).all()
    for token, found in zip(ids[1:].tolist(), slices[1:], strict=True):
      if token == tokenizer.unk_id:
        unknown.append(found)
      else:
        piece = tokenizer.decode([token]).removeprefix('##')
        assert _plain(found) == piece
  assert unknown == ['\u65e5', '\u672c', '\U0001f41d', '\ufb01\x00n']


def test_processes_write_the_same_bytes(data):
  corpus, root, tokens = data
  _build(corpus, root, 'two', num_processes=2)
  found = tiny_stores.file_hashes(root / 'two')
  assert found == tiny_stores.file_hashes(tokens.path)
