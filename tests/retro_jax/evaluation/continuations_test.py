# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Continuations: each token once with its context; equal to one long pass."""

import functools

import hypothesis
from hypothesis import strategies
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.data import samples
from retro_jax.evaluation import continuations
from retro_jax.nn import losses, retro as model
from tests.retro_jax.nn import tiny

M, R, K = 4, 7, 2


def _retrieve(rows, k):
  """Neighbors that depend on the chunk alone."""
  tokens = np.stack([np.resize(row + 1, (k, R)) % 23 for row in rows])
  mask = np.ones(tokens.shape, bool)
  mask[:, -1, 3:] = False
  tokens = tokens.astype(np.int32)
  return [
    samples.ChunkNeighbors(np.arange(k), np.zeros(k), *pair, [''] * k)
    for pair in zip(tokens, mask, strict=True)
  ]


@hypothesis.settings(deadline=None, max_examples=200)
@hypothesis.given(strategies.data())
def test_each_token_is_scored_once_with_context(data):
  n = data.draw(strategies.integers(2, 60))
  first = data.draw(strategies.integers(1, n - 1))
  chunks = data.draw(strategies.integers(1, 5))
  stride = data.draw(strategies.integers(1, chunks))
  text = continuations.Continuation(np.arange(n, dtype=np.int32), first)
  seen = []
  for window in continuations.make_windows(text, M, chunks, stride):
    assert window.end - window.start <= chunks
    row = continuations.make_row(text, window, M, chunks)
    where = np.flatnonzero(row['loss_mask'])
    seen += row['targets'][where].tolist()
    # All of the text before it, or what the stride leaves of a window.
    context = (chunks - stride) * M
    for position, target in zip(where, row['targets'][where], strict=True):
      assert row['tokens'][position] == target - 1
      assert position + 1 >= min(target, context)
  assert sorted(seen) == list(range(first, n))


def test_windows_of_a_whole_text_begin_with_it():
  for first, want in ((1, [(0, 0, 4), (2, 4, 5)]), (2, [(1, 3, 5), (0, 0, 3)])):
    text = continuations.Continuation(
      np.arange(4 * M + 2, dtype=np.int32), first
    )
    found = continuations.make_windows(text, M, 4, 2)
    assert [(x.start, x.scored, x.end) for x in found] == want


@pytest.mark.parametrize('retrieve', [None, _retrieve])
def test_scores_equal_a_pass_up_to_each_token(retrieve):
  """No later token is there, and no chunk that is incomplete has neighbors."""
  config = tiny.config(chunk_length=M, neighbor_length=R)
  params = jax.tree.map(jnp.asarray, tiny.params(config))
  of_row = functools.partial(losses.forward, model.Retro(config), params)
  forward, length = jax.jit(of_row), 6 * M

  def logits(tokens):
    rows = tokens[: len(tokens) // M * M].reshape(-1, M)
    found = retrieve(list(rows), K) if retrieve and len(rows) else []
    row = {'tokens': np.zeros(length, np.int32)}
    row['tokens'][: len(tokens)] = tokens
    row['segment_ids'] = (np.arange(length) < len(tokens)).astype(np.int32)
    pair = samples.stack(found, 6, (K, R))
    row |= dict(zip(('neighbors', 'neighbor_mask'), pair, strict=True))
    found = forward({name: x[None] for name, x in row.items()})
    return np.asarray(found, np.float64)[0, len(tokens) - 1]

  greedy = np.array([1, 7, 3, 5, 11, 2], np.int32)
  for _ in range(9):
    greedy = np.append(greedy, np.int32(logits(greedy).argmax()))
  rng = np.random.default_rng(0)
  texts = [continuations.Continuation(greedy, 6)] + [
    continuations.Continuation(rng.integers(0, 23, n).astype(np.int32), first)
    for n, first in ((9, 1), (24, 23), (17, 8), (2, 1))
  ]
  scores = jax.jit(
    functools.partial(losses.token_scores, model.Retro(config), params)
  )
  done = []
  nats, is_greedy, dropped = continuations.score(
    scores,
    texts,
    continuations.Settings(
      chunk_length=M,
      neighbor_length=R,
      sequence_chunks=6,
      stride_chunks=3,
      num_neighbors=K,
      batch_size=3,
    ),
    retrieve=retrieve,
    progress=lambda *x: done.append(x),
  )
  assert done[-1] == (5, 5) and not dropped.any()
  assert is_greedy.tolist() == [True, False, False, False, False]
  for text, got in zip(texts, nats, strict=True):
    want = 0.0
    for t in range(text.first, len(text.tokens)):
      found = logits(text.tokens[:t])
      want += np.logaddexp.reduce(found) - found[text.tokens[t]]
    assert got == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize('first', [0, 5])
def test_a_text_with_nothing_to_score_is_refused(first):
  text = continuations.Continuation(np.arange(5, dtype=np.int32), first)
  with pytest.raises(ValueError, match=f'from token {first} on; expected one'):
    continuations.make_windows(text, M, 3, 2)
