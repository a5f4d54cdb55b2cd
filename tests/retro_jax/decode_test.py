# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sampling equals a step-by-step loop; truncation keeps the right tokens."""

import dataclasses
import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrieval import retriever as retriever_lib
from retro_jax import decode
from retro_jax import model
from tests.retro_jax import tiny

CONFIG = tiny.config()
M, R = CONFIG.chunk_length, CONFIG.neighbor_length
GREEDY = decode.SamplingConfig(
  temperature=0.0, max_new_tokens=9, num_neighbors=2, context_chunks=8
)


@functools.cache
def _params():
  return tiny.params(CONFIG)


class Summing(nn.Module):
  """Counts modulo V all that a position may see, each thing with its weight."""

  config: model.RetroConfig

  def __call__(self, tokens, neighbors=None, mask=None):
    weights = 3 * jnp.arange(tokens.shape[1]) + 1
    seen = jnp.cumsum(tokens * weights, axis=1)
    if neighbors is not None:
      weights = (
        5 * jnp.arange(neighbors[0].size).reshape(neighbors[0].shape) + 1
      )
      sums = ((neighbors + 1) * mask * weights).sum((2, 3))
      sums = jnp.cumsum(sums, axis=1)  # of chunks 0..u
      u = (jnp.arange(tokens.shape[1]) + 1) // M - 1
      seen += jnp.where(u >= 0, sums[:, u], 0)
    return jax.nn.one_hot(seen % self.config.vocab_size, self.config.vocab_size)


SUMMING = Summing(CONFIG)


class Retriever:
  """Neighbors that depend on every token of the chunk; counts its calls."""

  def __init__(self):
    self.rows = []

  def __call__(self, rows, k):
    self.rows += [tuple(np.asarray(row).tolist()) for row in rows]
    seeds = [hash(tuple(np.asarray(row).tolist())) % 2**32 for row in rows]
    rngs = [np.random.default_rng(seed) for seed in seeds]
    shape = (k, R)
    tokens = np.stack([r.integers(0, 23, shape, np.int32) for r in rngs])
    mask = np.stack([r.random(shape) < 0.8 for r in rngs])
    ids = np.stack([r.integers(0, 99, k) for r in rngs])
    titles = [[f'title {i}' for i in row] for row in ids]
    return retriever_lib.Retrieved(ids, -1.0 * ids, tokens, mask, titles)


def _is_greedy(apply, tokens, start, retrieve, k=2):
  """Whether each token is the likeliest, by one pass over exactly these."""
  chunks = [tokens[i : i + M] for i in range(0, len(tokens) // M * M, M)]
  neighbors = ()
  if retrieve:
    found = retrieve(chunks, k)
    neighbors = (found.tokens[None], found.mask[None])
  logits = apply(np.array([tokens]), *neighbors)
  likeliest = np.argmax(logits[0], -1)[start - 1 : -1]
  return likeliest.tolist() == list(tokens[start:])


@pytest.mark.parametrize(
  ('retro', 'length'),
  [(model.Retro(CONFIG), 3), *((SUMMING, n) for n in (1, 3, 4, 5, 9))],
)
@pytest.mark.parametrize('on', [True, False])
def test_greedy_draws_the_likeliest_with_all_neighbors_so_far(
  retro, length, on
):
  prompt = np.random.default_rng(length).integers(0, 23, length).tolist()
  retrieve = Retriever() if on else None
  params = _params() if retro is not SUMMING else {}
  config = dataclasses.replace(GREEDY, max_new_tokens=13 - length)
  (got,) = decode.sample(retro, params, [prompt], config, retrieve=retrieve)
  want = got.tokens.tolist()
  assert len(want) == 13 and want[:length] == prompt
  apply = jax.jit(functools.partial(retro.apply, {'params': params}))
  assert _is_greedy(apply, want, length, Retriever() if on else None)
  assert got.prompt_length == length
  assert got.new_tokens.tolist() == want[length:]
  assert [len(chunk) for chunk in got.chunks()] == [4, 4, 4, 1]
  complete = [tuple(want[i : i + M]) for i in range(0, len(want) - M + 1, M)]
  if on:  # Each complete chunk asked once, in order.
    assert retrieve.rows == complete
    assert len(got.neighbors) == len(complete)
    again = Retriever()([complete[-1]], 2)
    np.testing.assert_array_equal(got.neighbors[-1].ids, again.ids[0])
    assert got.neighbors[-1].titles == again.titles[0]
  else:
    assert got.neighbors == []


def test_retrieval_changes_the_continuation_of_a_complete_chunk_at_once():
  """The last token of the first chunk reads the neighbors already."""
  one = decode.SamplingConfig(temperature=0.0, max_new_tokens=1)
  differs = 0
  for seed in range(12):
    prompt = np.random.default_rng(seed).integers(0, 23, M).tolist()
    (on,), (off,) = (
      decode.sample(model.Retro(CONFIG), _params(), [prompt], one, retrieve=r)
      for r in (Retriever(), None)
    )
    differs += on.tokens.tolist() != off.tokens.tolist()
  assert differs > 0


def test_rows_of_a_batch_do_not_disturb_each_other():
  rng = np.random.default_rng(0)
  prompts = [rng.integers(0, 23, n).tolist() for n in (2, 7, 4)]
  config = decode.SamplingConfig(
    temperature=0.0, max_new_tokens=9, context_chunks=8
  )
  run = functools.partial(decode.sample, SUMMING, {}, config=config)
  together = run(prompts=prompts, retrieve=Retriever())
  for prompt, got in zip(prompts, together, strict=True):
    (alone,) = run(prompts=[prompt], retrieve=Retriever())
    assert got.tokens.tolist() == alone.tokens.tolist()
  stop = int(together[0].new_tokens[3])
  config = dataclasses.replace(config, stop_ids=(stop,))
  stopped = run(prompts=prompts, config=config, retrieve=Retriever())
  for free, got in zip(together, stopped, strict=True):
    new = free.new_tokens.tolist()
    end = new.index(stop) + 1 if stop in new else len(new)
    assert got.new_tokens.tolist() == new[:end]
  assert len({len(got.new_tokens) for got in stopped}) > 1


def test_a_text_longer_than_the_buffer_goes_on_in_windows():
  prompt = np.random.default_rng(0).integers(0, 23, 3).tolist()
  config = decode.SamplingConfig(
    temperature=0.0, max_new_tokens=30, context_chunks=4, num_neighbors=2
  )
  retrieve = Retriever()
  (got,) = decode.sample(SUMMING, {}, [prompt], config, retrieve=retrieve)
  tokens, first = list(prompt), 0
  while len(tokens) < 33:  # the same windows, by hand
    if len(tokens) - first * M > 4 * M:
      first = -(-len(tokens) // M) - 2
    window = np.array(tokens[first * M :] + [0] * 4 * M)[: 4 * M]
    found = Retriever()(window.reshape(4, M), 2)
    now = len(tokens) - first * M
    complete = (np.arange(4) < now // M)[:, None, None]
    logits = SUMMING.apply(
      {},
      window[None],
      found.tokens[None],
      (found.mask & complete)[None],
    )
    tokens.append(int(np.argmax(logits[0, now - 1])))
  assert got.tokens.tolist() == tokens
  assert len(got.neighbors) == 33 // M == len(retrieve.rows)


def test_seed_decides_the_draws():
  config = decode.SamplingConfig(max_new_tokens=12, temperature=1.5)
  run = functools.partial(
    decode.sample, model.Retro(CONFIG), _params(), [[2, 3]] * 2, config
  )
  a, b, c = run(seed=0), run(seed=0), run(seed=1)
  assert a[0].tokens.tolist() == b[0].tokens.tolist()
  assert a[0].tokens.tolist() != a[1].tokens.tolist()
  assert a[0].tokens.tolist() != c[0].tokens.tolist()


def test_stops_at_a_stop_id_and_never_draws_a_banned_one():
  run = functools.partial(
    decode.sample, model.Retro(CONFIG), _params(), [[2, 3]]
  )
  (free,) = run(GREEDY)
  stop = int(free.new_tokens[4])
  at = free.new_tokens.tolist().index(stop)
  (stopped,) = run(
    decode.SamplingConfig(temperature=0.0, max_new_tokens=9, stop_ids=(stop,))
  )
  assert stopped.new_tokens.tolist() == free.new_tokens[: at + 1].tolist()
  banned = tuple(range(20))
  (rest,) = run(
    decode.SamplingConfig(max_new_tokens=30, banned_ids=banned), seed=3
  )
  assert rest.new_tokens.min() >= 20


@pytest.mark.parametrize(
  ('top_k', 'top_p', 'kept'),
  [
    (0, 1.0, [0, 1, 2, 3]),
    (0, 0.4, [0]),
    (0, 0.51, [0, 1]),
    (0, 0.79, [0, 1]),
    (0, 0.81, [0, 1, 2]),
    (0, 0.9, [0, 1, 2]),
    (0, 0.96, [0, 1, 2, 3]),
    (0, 1e-9, [0]),
    (2, 1.0, [0, 1]),
    (3, 0.6, [0, 1]),
    (2, 0.6, [0]),  # .5 of the .8 left is .625
    (9, 1.0, [0, 1, 2, 3]),
  ],
)
def test_top_p_keeps_the_smallest_set_with_that_mass(top_k, top_p, kept):
  logits = np.log([[0.5, 0.3, 0.15, 0.05]]).astype(np.float32)
  for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
    place = np.empty(4, int)
    place[order] = np.arange(4)  # token `order[i]` is the i-th likeliest
    keep = decode.keep_mask(jnp.asarray(logits[:, place]), top_k, top_p)
    want = sorted(order[i] for i in kept)
    assert np.flatnonzero(keep[0]).tolist() == want


def test_ties_are_broken_by_id():
  keep = decode.keep_mask(jnp.zeros((1, 8)), top_p=0.5)
  assert np.flatnonzero(keep[0]).tolist() == [0, 1, 2, 3]


def test_draws_follow_the_tempered_distribution():
  logits = jnp.log(jnp.array([0.5, 0.3, 0.15, 0.05]))
  keys = jax.random.split(jax.random.key(0), 20_000)
  rows = jnp.broadcast_to(logits, (len(keys), 4))
  config = decode.SamplingConfig(temperature=2.0, top_p=0.8)
  drawn = jax.jit(decode.draw, static_argnames='config')(keys, rows, config)
  root = np.sqrt([0.5, 0.3, 0.15])  # .80 of the mass at temperature 2
  got = np.bincount(drawn, minlength=4) / len(keys)
  np.testing.assert_allclose(got[:3], root / root.sum(), atol=0.015)
  assert got[3] == 0


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'top_p': 0.0}, r'top_p 0.0: expected in \(0, 1\]'),
    ({'temperature': -1.0}, 'temperature -1.0'),
    ({'max_new_tokens': -1}, 'max_new_tokens -1'),
  ],
)
def test_bad_settings(fields, message):
  with pytest.raises(ValueError, match=message):
    decode.SamplingConfig(**fields)


def test_bad_prompts():
  run = functools.partial(
    decode.sample, model.Retro(CONFIG), _params(), config=GREEDY
  )
  with pytest.raises(ValueError, match='Prompt 1 is empty'):
    run(prompts=[[1], []])
  with pytest.raises(ValueError, match=r'token ids 1..23, expected 0..22'):
    run(prompts=[[1, 23]])
