# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Aligned prompts, neighbors of one's own, stop strings, events, compilations."""

import functools

import numpy as np

from retro_jax.data import samples
from retro_jax.decoding import decode
from tests.retro_jax.decoding.tiny_decoding import (
  CONFIG,
  M,
  R,
  Retriever,
  detokenize,
  likeliest,
  prompts as _prompts,
  sample as _sample,
)


def _passages(count, seed):
  """Neighbors of a chunk: each of another length."""
  rng = np.random.default_rng(seed)
  lengths = rng.integers(1, R + 3, count)
  rows = [rng.integers(0, CONFIG.vocab_size, n) for n in lengths]
  return samples.given_neighbors(rows, R)


def test_aligned_prompts_end_where_a_chunk_ends():
  """Every token equals that of the whole model over the text padded left."""
  prompts = _prompts(1, 6, 8, 3)
  retriever = Retriever()
  got = _sample(prompts, retriever, align_prompt=True)
  assert [s.padding for s in got] == [3, 2, 0, 1]
  for prompt, s in zip(prompts, got, strict=True):
    assert s.tokens[: len(prompt)].tolist() == prompt
    chunks = [chunk.tolist() for chunk in s.chunks()]
    assert sum(chunks, []) == s.tokens.tolist()
    assert len(chunks[0]) == M - s.padding
    assert {len(chunk) for chunk in chunks[1:-1]} == {M}
    for chunk, found in zip(chunks, s.neighbors, strict=False):
      again = Retriever()([chunk], 2)
      np.testing.assert_array_equal(found.ids, again[0].ids)
    assert s.new_tokens.tolist() == likeliest(s)


def test_prompts_bring_their_own_neighbors():
  """One entry for every chunk, one a chunk, none at all; others retrieve."""
  prompts = _prompts(5, 6, 2, 7)
  every, chunk0, chunk1 = (_passages(n, n) for n in (3, 1, 2))
  mixed = [
    samples.Prompt(prompts[0], [every]),
    samples.Prompt(prompts[1], [chunk0, chunk1]),
    samples.Prompt(prompts[2], []),
    prompts[3],
  ]
  retriever = Retriever()
  got = _sample(mixed, retriever)
  none = samples.given_neighbors([], R)
  expected = (
    lambda u: every,
    lambda u: (chunk0, chunk1)[min(u, 1)],
    lambda u: none,
    got[3].neighbors.__getitem__,
  )
  for s, neighbors_of in zip(got, expected, strict=True):
    assert s.new_tokens.tolist() == likeliest(s)
    for u, found in enumerate(s.neighbors):
      np.testing.assert_array_equal(found.tokens, neighbors_of(u).tokens)
    assert len(s.neighbors) == len(s.tokens) // M
  assert len(retriever.rows) == len(got[3].neighbors)
  off = _sample(prompts)
  assert off[2].tokens.tolist() == got[2].tokens.tolist()
  assert off[0].tokens.tolist() != got[0].tokens.tolist()
  # Without a retriever the others are RETRO[OFF].
  alone = _sample(mixed)
  assert alone[0].tokens.tolist() == got[0].tokens.tolist()
  assert alone[3].tokens.tolist() == off[3].tokens.tolist()


def test_a_stop_string_ends_its_row_and_is_cut():
  prompts = _prompts(2, 7, 4, 1)
  free = _sample(prompts)
  text = free[0].text
  assert text == detokenize(free[0].new_tokens)
  stop = text[3:6]
  at = text.index(stop)
  others = [i for i, s in enumerate(free) if stop not in s.text]
  assert others
  got = _sample(prompts, stop_strings=(stop, '?'))
  assert got[0].text == text[:at]
  assert len(got[0].new_tokens) == at + 3
  for i in others:
    assert got[i].tokens.tolist() == free[i].tokens.tolist()
    assert got[i].text == free[i].text


def test_events_come_in_order():
  """The tokens and texts of a row's events are those of its sample."""
  prompts = _prompts(2, 9, 4, 1)
  events = list(_sample(prompts, Retriever(), run=decode.stream))
  want = _sample(prompts, Retriever())
  for i in range(4):
    *drawn, last = [e for e in events if e.row == i]
    assert last.sample.tokens.tolist() == want[i].tokens.tolist()
    assert [e.token for e in drawn] == want[i].new_tokens.tolist()
    text = ''.join(e.text for e in drawn)
    assert text + last.text == last.sample.text
  assert all(isinstance(e, samples.Finished) for e in events[-4:])


def test_nothing_is_compiled_while_the_text_grows():
  """Two programs serve all steps: with a complete chunk and without."""
  decode.next_logits.clear_cache()
  run = functools.partial(_sample, retrieve=Retriever())
  run(_prompts(2), max_new_tokens=M)
  # Buffers of 2 chunks, then of 8: one shape for all lengths.
  assert decode.next_logits._cache_size() == 2
  run(_prompts(2), max_new_tokens=7 * M)
  assert decode.next_logits._cache_size() == 4
  for length in (1, 3, 6):
    run(_prompts(length), max_new_tokens=26)
  assert decode.next_logits._cache_size() == 4
