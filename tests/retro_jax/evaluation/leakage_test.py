# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Shared runs against a quadratic count; curves against sums by hand."""

import math
import shutil

import hypothesis
from hypothesis import strategies
import numpy as np
import pytest

from retrieval import tokenization
from retrieval.text import (
  chunks as chunks_lib,
  tokens as tokens_lib,
)
from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import evaluate, leakage
from tests.retrieval.text import json_corpus
from tests.retro_jax.data import tiny_data

M = tiny_data.M


def _quadratic(a, b):
  """Longest common substring by dynamic programming."""
  best, before = 0, [0] * (len(b) + 1)
  for x in a:
    row = [0] * (len(b) + 1)
    for j, y in enumerate(b, start=1):
      row[j] = before[j - 1] + 1 if x == y else 0
    best, before = max(best, *row), row
  return best


_TOKENS = strategies.lists(strategies.integers(0, 3), max_size=20)


@hypothesis.settings(deadline=None, max_examples=200)
@hypothesis.given(_TOKENS, _TOKENS, _TOKENS)
def test_runs_equal_the_quadratic_count(chunk, one, other):
  """Each run ends where it is counted, within one neighbor."""
  length = max(len(one), len(other))
  rows = np.array([x + [9] * (length - len(x)) for x in (one, other)], int)
  runs = leakage.shared_runs(np.array(chunk, int), rows.reshape(2, length))
  for neighbor, found in zip(rows.tolist(), runs, strict=True):
    assert max(found, default=0) == _quadratic(chunk, neighbor)
    for end, size in enumerate(found.tolist(), start=1):
      run = neighbor[end - size : end]
      assert any(chunk[i : i + size] == run for i in range(len(chunk) + 1))


@hypothesis.settings(deadline=None, max_examples=100)
@hypothesis.given(*[strategies.lists(strategies.integers(-1, 2))] * 2)
def test_longest_runs_are_those_of_a_slow_count(text, memory):
  """A run at each token; tokens below 0 are equal to nothing."""

  def run(i, j):
    pairs = zip(text[i:], memory[j:], strict=False)
    same = [a == b >= 0 for a, b in pairs]
    return [*same, False].index(False)

  expected = [
    max((run(i, j) for j in range(len(memory))), default=0)
    for i in range(len(text))
  ]
  runs = leakage.longest_runs(np.array(text, int), np.array(memory, int))
  assert runs.tolist() == expected


def test_overlaps_are_of_the_chunks_own_tokens(root):
  reader = tiny_data.reader(root, 'valid', k=3)
  stores = reader.stores
  ids = np.arange(stores.chunks.num_chunks)
  got = leakage.overlaps(reader, ids)
  bos = stores.chunks.tokens.store.meta['bos_id']
  tokens, mask = stores.chunks.gather(ids, M)
  for i in ids:
    own = [int(t) for t in tokens[i][mask[i]] if t != bos]
    theirs, there = stores.datastore.gather(
      stores.neighbors.ids(ids[i : i + 1]), 2 * M
    )
    want = max(
      _quadratic(own, row[keep].tolist())
      for row, keep in zip(theirs[0], there[0], strict=True)
    )
    assert got[i] == want / max(len(own), 1)
  assert (tokens == bos).any() and 0 < got.mean() < 1
  with pytest.raises(ValueError, match='num_neighbors above 0'):
    leakage.overlaps(tiny_data.reader(root, 'valid', k=0), ids)


def test_bytes_of_chunks_are_those_of_the_documents(root, tmp_path):
  """Also where chunks end inside of a character that goes by its bytes."""
  texts = ['\N{RAT}\N{OX} river \N{TIGER}' * n for n in (1, 2, 7)] + ['moon']
  rows = [{'id': i, 'title': '', 'text': t} for i, t in enumerate(texts)]
  corpus = json_corpus.write(tmp_path, rows)
  shutil.copytree(root / 'tokenizer', tmp_path / 'tokenizer')
  tokens = tokens_lib.build_token_store(
    tmp_path / 'tokens', corpus, tmp_path / 'tokenizer'
  )
  chunks = chunks_lib.build_chunk_store(
    tmp_path / 'chunks', tokens, chunk_length=3
  )
  ids = np.arange(chunks.num_chunks)
  tokenizer = tokenization.load_tokenizer(root / 'tokenizer')
  got = leakage.count_bytes(chunks, ids, tokenizer)
  want = [len(text.encode()) for text in texts]
  np.testing.assert_array_equal(np.bincount(chunks.documents(ids), got), want)
  decoded = chunks.texts(ids)
  assert any('\N{REPLACEMENT CHARACTER}' in text for text in decoded)


def test_nats_of_a_chunk_are_those_of_its_own_tokens(root):
  """A model that charges each token its own id."""

  def score(row):
    return np.where(row['loss_mask'], row['targets'], 0)

  reader = tiny_data.reader(root, 'valid')
  got = evaluate.evaluate(score, reader, sequence_chunks=3, batch_size=2)
  documents = windows_lib.find_documents(reader.stores.chunks)
  ids, document = windows_lib.chunk_ids(documents)
  tokens, mask = reader.stores.chunks.gather(ids, M)
  want = np.where(mask, tokens, 0).sum(1)
  first = np.flatnonzero(np.diff(document, prepend=-1))
  want[first] -= tokens[first, 0]  # BOS is not predicted
  np.testing.assert_array_equal(got.chunk_nats, want)


def test_a_curve_is_made_of_sums_over_chunks():
  rng = np.random.default_rng(0)
  nats, overlap = rng.gamma(2, 20, 60), rng.integers(0, 9, 60) / 8
  num_bytes, document = rng.integers(0, 90, 60), np.repeat(np.arange(20), 3)
  alphas = [i / 8 for i in range(9)]
  where = nats, num_bytes, document, overlap
  for alpha, point in zip(alphas, leakage.curve(*where, alphas), strict=True):
    part = overlap <= alpha
    want = nats[part].sum() / num_bytes[part].sum() / math.log(2)
    assert point['bits_per_byte'] == pytest.approx(want)
    assert (point['alpha'], point['chunks']) == (alpha, part.sum())
    assert point['documents'] == len({*document[part]})
    assert point['share'] == part.mean()
  assert part.all() and point['low'] < want < point['high']
  few = np.arange(60) < 12  # 4 documents
  (point,) = leakage.curve(*(x[few] for x in where), [1.0])
  assert math.isnan(point['low']) and point['bits_per_byte'] > 0
