# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Prompts with passages: what each token is conditioned on, and what is read."""

import numpy as np
import pytest

from retrieval.search import retriever as retriever_lib
from retro_jax.data import folder as retro_data
from retro_jax.evaluation import in_context

SETTINGS = in_context.Settings(
  stride=4, query_length=3, passage_length=5, window=40, batch_size=2
)
SEPARATOR = [98, 99]


def _cost(before, target):
  """Nats of a stand-in for a model: they depend on all tokens before the target."""
  h = 1
  for token in [*before, target]:
    h = (h * 31 + int(token) + 7) % 10_007
  return h / 10_007


def _nats(row):
  """Each target's cost by its own segment alone, scored or not."""
  found = np.full(row['tokens'].shape, np.nan)
  for b, t in np.ndindex(found.shape):
    own = row['segment_ids'][b, : t + 1] == row['segment_ids'][b, t]
    found[b, t] = _cost(row['tokens'][b, : t + 1][own], row['targets'][b, t])
  return found


def _passages(names):
  made = {x: np.arange(3) + 40 + 10 * i for i, x in enumerate(sorted({*names}))}
  made['-'] = np.zeros(0, np.int32)
  return [made[x] for x in names]


def _slow(tokens, passages, settings):
  """One stride after the other, each in a prompt of its own."""
  total, s = 0.0, settings.stride
  longest = 0
  for j in range(-(-len(tokens) // s)):
    passage = [] if passages is None else passages[j].tolist()
    end = min((j + 1) * s, len(tokens))
    room = settings.window - 1
    if passages is not None:
      room -= settings.passage_length + len(SEPARATOR)
    start = 0
    while end - start > room:
      start += room // 2 // s * s
    head = [tokens[0], *passage, *(SEPARATOR if passage else [])]
    longest = max(longest, len(head) + end - start)
    for t in range(max(j * s, 1), end):
      total += _cost([*head, *tokens[max(start, 1) : t]], tokens[t])
  assert longest <= settings.window + 1
  return total


@pytest.mark.parametrize('length', [1, 2, 17, 40, 93])
def test_each_token_is_scored_once_after_its_own_passage(length):
  rng = np.random.default_rng(length)
  tokens = rng.integers(0, 30, length)
  passages = _passages(('-' + 'aabcccab' * 9)[: -(-length // SETTINGS.stride)])
  for given in (passages, None):
    prompts = list(
      in_context.make_prompts(tokens, given, SETTINGS, SEPARATOR, 1)
    )
    assert all(len(x.tokens) <= SETTINGS.window for x in prompts)
    scored = [x.tokens[x.first :] for x in prompts]
    np.testing.assert_array_equal(np.concatenate([*scored, []]), tokens[1:])
    got = in_context.score(_nats, prompts, 2, SETTINGS)
    assert got[0] == 0
    np.testing.assert_allclose(got[1], _slow(tokens, given, SETTINGS))


def test_strides_with_the_same_passage_are_one_prompt():
  passages = _passages('-aaab')
  prompts = list(in_context.make_prompts(np.arange(20), passages, SETTINGS))
  assert [len(x.tokens) - x.first for x in prompts] == [3, 12, 4]


@pytest.fixture(scope='module')
def data(root):
  return retro_data.DataFolder(root)


class _Nearest:
  """Finds chunks 0, 1, 2, ... for each text, and remembers what was asked."""

  unit = 'nothing'

  def __init__(self):
    self.asked = []

  def search(self, texts, k, subset=None):
    self.asked.append((list(texts), k))
    ids = np.tile(np.arange(k), (len(texts), 1))
    return ids, np.zeros(ids.shape, np.float32)


@pytest.fixture
def passages(data):
  chunks = data.chunks('train')
  nearest = retriever_lib.IndexRetriever(chunks, _Nearest(), '')
  return in_context.Passages(nearest, chunks, data.tokenizer)


def test_the_own_document_is_never_read(data, passages):
  chunks = data.chunks('train')
  hashes = chunks.document_hashes(np.arange(99))
  tokens = np.asarray(chunks.tokens.document(5), np.int32)
  for own in (hashes[0], hashes[-1]):
    first, *others = passages.of_strides(tokens, own, SETTINGS)
    assert not len(first)  # no text before it, so no query
    best = np.flatnonzero(hashes != own)[:1]
    text, mask = chunks.gather(best, SETTINGS.passage_length)
    expected = [x for x in text[mask] if x != data.tokenizer.bos_id]
    assert others and all(x.tolist() == expected for x in others)


def test_documents_with_and_without_passages(data, passages):
  settings = in_context.Settings(
    stride=8, query_length=4, passage_length=6, window=48, batch_size=2
  )
  rows, seen = [], []

  def nats(row):
    rows.append(row)
    return np.ones(row['tokens'].shape)

  for read in (passages, None):
    result = in_context.evaluate(
      nats,
      data.chunks('valid'),
      data.tokenizer,
      settings,
      read,
      max_documents=3,
      progress=lambda *x: seen.append(x),
    )
    np.testing.assert_array_equal(result.nats, result.tokens)
  assert seen[:3] == [(1, 3), (2, 3), (3, 3)]
  row = rows[0]
  begins = np.flatnonzero(np.diff(row['segment_ids'][0], prepend=0))
  assert set(row['tokens'][0, begins]) <= {0, data.tokenizer.bos_id}
  first, _ = passages.datastore.gather(np.array([0]), 6)
  text = data.tokenizer.decode(first[0])
  assert text.strip() in data.tokenizer.decode(row['tokens'][0])
  queries = [x for texts, _ in passages.retriever.index.asked for x in texts]
  assert '' in queries and len(set(queries)) > 3
