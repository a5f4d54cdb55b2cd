# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sampling equals a step-by-step loop; truncation keeps the right tokens."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.decoding import decode, drawing
from retro_jax.nn import retro as model
from tests.retro_jax.decoding import fake_retrieval
from tests.retro_jax.nn import tiny

CONFIG = tiny.config(num_layers=2, cca_layers=(1, 2))
M, R = CONFIG.chunk_length, CONFIG.neighbor_length
GREEDY = drawing.SamplingConfig(
  temperature=0.0, max_new_tokens=9, num_neighbors=2, context_chunks=8
)


@functools.cache
def _params(c=CONFIG):
  return tiny.params(c)


def _sample(*args, c=CONFIG, **kwargs):
  return decode.sample(model.Retro(c), _params(c), *args, **kwargs)


def _recomputed(prompts, config, retrieve, seed=0, c=CONFIG):
  """The slow way: the whole model over all windows for each token."""
  rows = [list(prompt) for prompt in prompts]
  firsts = [0] * len(rows)
  longest = max(map(len, rows)) + config.max_new_tokens
  size = min(1 << (-(-longest // M) - 1).bit_length(), config.context_chunks)
  for step in range(config.max_new_tokens):
    windows = np.zeros((len(rows), size * M), np.int32)
    last = np.zeros(len(rows), int)
    for i, row in enumerate(rows):
      if len(row) - firsts[i] * M > size * M:
        firsts[i] = -(-len(row) // M) - max(2, size // 2)
      window = row[firsts[i] * M :]
      windows[i, : len(window)] = window
      last[i] = len(window) - 1
    neighbors = ()
    if retrieve:
      k = config.num_neighbors
      found = retrieve(windows.reshape(-1, M), k)
      shape = (len(rows), size, k, R)
      complete = np.arange(size) < (last + 1)[:, None] // M
      neighbors = (
        found.tokens.reshape(shape),
        found.mask.reshape(shape) & complete[..., None, None],
      )
    logits = tiny.apply(c, _params(c), windows, *neighbors)
    key = jax.random.fold_in(jax.random.key(seed), step)
    keys = [jax.random.fold_in(key, i) for i in range(len(rows))]
    drawn = drawing.draw(
      jnp.stack(keys), logits[np.arange(len(rows)), last], config
    )
    for row, token in zip(rows, drawn.tolist(), strict=True):
      row.append(token)
  return rows


@pytest.mark.parametrize('on', [True, False])
@pytest.mark.parametrize('tokens_per_call', [1, 100])
@pytest.mark.parametrize(
  ('temperature', 'context_chunks'), [(0.0, 4), (1.3, 8)]
)
def test_tokens_are_those_of_the_whole_model_at_every_step(
  on, tokens_per_call, temperature, context_chunks
):
  """Windows that move or need not; three of four rows end chunks at once."""
  rng = np.random.default_rng(0)
  prompts = [rng.integers(0, 23, n).tolist() for n in (9, 2, 6, 10)]
  config = drawing.SamplingConfig(
    temperature=temperature,
    max_new_tokens=20,
    context_chunks=context_chunks,
    tokens_per_call=tokens_per_call,
  )
  retrieve = fake_retrieval.Retriever() if on else None
  got = _sample(prompts, config, retrieve=retrieve, seed=3)
  expected = _recomputed(
    prompts, config, fake_retrieval.Retriever() if on else None, seed=3
  )
  assert [sample.tokens.tolist() for sample in got] == expected
  for prompt, sample in zip(prompts, got, strict=True):
    tokens = sample.tokens.tolist()
    assert sample.prompt_length == len(prompt)
    assert tokens == prompt + sample.new_tokens.tolist()
    chunks = [tuple(chunk.tolist()) for chunk in sample.chunks()]
    assert [len(chunk) for chunk in chunks[:-1]] == [M] * (len(chunks) - 1)
    assert sum(chunks, ()) == tuple(tokens)
    complete = chunks[: len(tokens) // M]
    assert len(sample.neighbors) == (len(complete) if on else 0)
    for chunk, found in zip(complete, sample.neighbors, strict=on):
      again = fake_retrieval.Retriever()([chunk], 2)
      np.testing.assert_array_equal(found.ids, again.ids[0])
      assert found.titles == again.titles[0]
  if on:  # Each complete chunk asked once.
    assert len(retrieve.rows) == sum(len(s.neighbors) for s in got)


@pytest.mark.parametrize('decoder', [tiny.LLAMA, tiny.GPT2])
def test_other_decoders_go_on_in_windows_that_move(decoder):
  """Positions are counted from where the window begins."""
  c = tiny.config(
    num_layers=2, cca_layers=(2,), encoder_num_layers=1, **decoder
  )
  rng = np.random.default_rng(0)
  prompts = [rng.integers(0, 23, n).tolist() for n in (10, 8)]
  config = drawing.SamplingConfig(
    temperature=0.0, max_new_tokens=11, context_chunks=4
  )
  got = _sample(prompts, config, retrieve=fake_retrieval.Retriever(), c=c)
  expected = _recomputed(prompts, config, fake_retrieval.Retriever(), c=c)
  assert [sample.tokens.tolist() for sample in got] == expected
  assert min(map(len, expected)) > 4 * M + 1


def test_a_window_that_moves_costs_a_pass_over_its_own_row(monkeypatch):
  """Rows of different lengths, whose windows move at different times."""
  passes, whole = [], decode.first_logits

  def count(model, params, buffer, last):
    passes.append(len(last))
    return whole(model, params, buffer, last)

  monkeypatch.setattr(decode, 'first_logits', count)
  rng = np.random.default_rng(0)
  prompts = [rng.integers(0, 23, n).tolist() for n in (9, 2, 6, 10)]
  config = drawing.SamplingConfig(
    temperature=0.0, max_new_tokens=20, context_chunks=4
  )
  _sample(prompts, config)
  assert passes == [4, 1, 1, 1, 1, 1]  # that of 10 tokens moves twice
  passes.clear()
  _sample(prompts[:1] * 4, config)
  assert passes == [4, 4]


def test_tokens_of_a_chunk_are_drawn_in_one_call(monkeypatch):
  calls, drawn = [], decode.draw_tokens

  def count(*args):
    tokens, cache = drawn(*args)
    calls.append(int(np.subtract(*args[-1][::-1])))
    return tokens, cache

  monkeypatch.setattr(decode, 'draw_tokens', count)
  config = dataclasses.replace(
    GREEDY, max_new_tokens=2 * M + 2, tokens_per_call=M
  )
  prompts = [[1] * M, [2] * (2 * M)]
  _sample(prompts, config, retrieve=fake_retrieval.Retriever())
  assert calls == [M, M, 2]
  calls.clear()
  _sample(
    [[1]], dataclasses.replace(config, tokens_per_call=100, context_chunks=2)
  )
  assert calls == [2 * M, 2]  # up to the end of the window


def test_parameters_cast_once_give_the_same_logits():
  c = dataclasses.replace(CONFIG, dtype='bfloat16', copy_gate=True)
  params, retro = _params(c), model.Retro(c)
  tokens = jnp.arange(2 * M)[None] % 23
  neighbors = jnp.arange(4 * R).reshape(1, 2, 2, R) % 23
  buffer = {'tokens': tokens, 'neighbors': neighbors}
  last = jnp.array([M + 1])
  step = {'tokens': jnp.array([5]), 'position': last + 1}

  def after(params):
    _, cache = decode.first_logits(retro, _params(c), buffer, last)
    return decode.next_logits(retro, params, cache, step)[0]

  np.testing.assert_array_equal(
    after(decode.narrowed(params, c.dtype)), after(params)
  )


@pytest.mark.parametrize('tokens_per_call', [1, 3])
def test_rows_of_a_batch_do_not_disturb_each_other(tokens_per_call):
  rng = np.random.default_rng(0)
  prompts = [rng.integers(0, 23, n).tolist() for n in (2, 7, 4, 9)]
  config = drawing.SamplingConfig(
    temperature=0.0, max_new_tokens=20, context_chunks=4
  )
  together = _sample(prompts, config, retrieve=fake_retrieval.Retriever())
  stop = int(together[0].new_tokens[3])
  config = dataclasses.replace(
    config, stop_ids=(stop,), tokens_per_call=tokens_per_call
  )
  stopped = _sample(prompts, config, retrieve=fake_retrieval.Retriever())
  for free, got in zip(together, stopped, strict=True):
    new = free.new_tokens.tolist()
    end = new.index(stop) + 1 if stop in new else len(new)
    assert got.new_tokens.tolist() == new[:end]
  assert len({len(got.new_tokens) for got in stopped}) > 1


def test_seed_decides_the_draws():
  config = drawing.SamplingConfig(max_new_tokens=12, temperature=1.5)
  run = functools.partial(
    decode.sample, model.Retro(CONFIG), _params(), [[2, 3]] * 4, config
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
    drawing.SamplingConfig(temperature=0.0, max_new_tokens=9, stop_ids=(stop,))
  )
  assert stopped.new_tokens.tolist() == free.new_tokens[: at + 1].tolist()
  banned = tuple(range(20))
  (rest,) = run(
    drawing.SamplingConfig(max_new_tokens=14, banned_ids=banned), seed=3
  )
  assert rest.new_tokens.min() >= 20


@pytest.mark.parametrize(
  ('top_k', 'top_p', 'kept'),
  [
    (0, 1.0, [0, 1, 2, 3]),
    (0, 0.4, [0]),
    (0, 0.79, [0, 1]),
    (0, 0.81, [0, 1, 2]),
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
    keep = drawing.keep_mask(jnp.asarray(logits[:, place]), top_k, top_p)
    want = sorted(order[i] for i in kept)
    assert np.flatnonzero(keep[0]).tolist() == want


def test_draws_follow_the_tempered_distribution():
  logits = jnp.log(jnp.array([0.5, 0.3, 0.15, 0.05]))
  keys = jax.random.split(jax.random.key(0), 20_000)
  rows = jnp.broadcast_to(logits, (len(keys), 4))
  config = drawing.SamplingConfig(temperature=2.0, top_p=0.8)
  drawn = jax.jit(drawing.draw, static_argnames='config')(keys, rows, config)
  root = np.sqrt([0.5, 0.3, 0.15])  # .80 of the mass at temperature 2
  got = np.bincount(drawn, minlength=4) / len(keys)
  np.testing.assert_allclose(got[:3], root / root.sum(), atol=0.015)
  assert got[3] == 0
