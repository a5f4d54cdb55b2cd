# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sampling equals a step-by-step loop; truncation keeps the right tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.decoding import decode, drawing
from tests.retro_jax.decoding import tiny_decoding
from tests.retro_jax.decoding.tiny_decoding import CONFIG, M, R, Retriever
from tests.retro_jax.nn import tiny


def _recomputed(prompts, on, seed=0, c=CONFIG, **settings):
  """The slow way: the whole model over all windows for each token."""
  config = drawing.SamplingConfig(**{'temperature': 0.0} | settings)
  rows, firsts = [list(prompt) for prompt in prompts], [0] * len(prompts)
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
    if on:
      found = Retriever()(windows.reshape(-1, M), 2)
      shape = (len(rows), size, 2, R)
      complete = np.arange(size) < (last + 1)[:, None] // M
      neighbors = (
        np.stack([x.tokens for x in found]).reshape(shape),
        np.stack([x.mask for x in found]).reshape(shape)
        & complete[..., None, None],
      )
    logits = tiny.apply(c, tiny_decoding.params(c), windows, *neighbors)
    key = jax.random.fold_in(jax.random.key(seed), step)
    keys = [jax.random.fold_in(key, i) for i in range(len(rows))]
    drawn = drawing.draw(
      jnp.stack(keys), logits[np.arange(len(rows)), last], config
    )
    for row, token in zip(rows, drawn.tolist(), strict=True):
      row.append(token)
  return rows


def _tokens(samples):
  return [sample.tokens.tolist() for sample in samples]


@pytest.mark.parametrize('on', [True, False])
@pytest.mark.parametrize('tokens_per_call', [1, 100])
@pytest.mark.parametrize(
  ('temperature', 'context_chunks'), [(0.0, 4), (1.3, 8)]
)
def test_tokens_are_those_of_the_whole_model_at_every_step(
  on, tokens_per_call, temperature, context_chunks
):
  """Windows that move or need not; three of four rows end chunks at once."""
  prompts = tiny_decoding.prompts(9, 2, 6, 10)
  settings = {
    'temperature': temperature,
    'max_new_tokens': 20,
    'context_chunks': context_chunks,
    'seed': 3,
  }
  retrieve = Retriever() if on else None
  got = tiny_decoding.sample(
    prompts, retrieve, tokens_per_call=tokens_per_call, **settings
  )
  assert _tokens(got) == _recomputed(prompts, on, **settings)
  for prompt, sample in zip(prompts, got, strict=True):
    assert sample.prompt_length == len(prompt)
    complete = sample.chunks()[: len(sample.tokens) // M]
    assert {len(chunk) for chunk in complete} == {M}
    assert len(sample.neighbors) == (len(complete) if on else 0)
    for chunk, found in zip(complete, sample.neighbors, strict=on):
      again = Retriever()([chunk], 2)
      np.testing.assert_array_equal(found.ids, again[0].ids)
      assert found.titles == again[0].titles
  if on:  # Each complete chunk asked once.
    assert len(retrieve.rows) == sum(len(s.neighbors) for s in got)


@pytest.mark.parametrize('decoder', [tiny.LLAMA, tiny.GPT2])
def test_other_decoders_go_on_in_windows_that_move(decoder):
  """Positions are counted from where the window begins."""
  c = tiny.config(
    num_layers=2, cca_layers=(2,), encoder_num_layers=1, **decoder
  )
  prompts = tiny_decoding.prompts(10, 8)
  settings = {'max_new_tokens': 11, 'context_chunks': 4, 'c': c}
  got = tiny_decoding.sample(prompts, Retriever(), **settings)
  assert _tokens(got) == _recomputed(prompts, True, **settings)
  assert min(len(sample.tokens) for sample in got) > 4 * M + 1


def test_a_window_that_moves_costs_a_pass_over_its_own_row(monkeypatch):
  """Rows of different lengths, whose windows move at different times."""
  passes, whole = [], decode.first_logits

  def count(model, params, buffer, last):
    passes.append(len(last))
    return whole(model, params, buffer, last)

  monkeypatch.setattr(decode, 'first_logits', count)
  prompts = tiny_decoding.prompts(9, 2, 6, 10)
  settings = {'max_new_tokens': 20, 'context_chunks': 4}
  tiny_decoding.sample(prompts, **settings)
  assert passes == [4, 1, 1, 1, 1, 1]  # that of 10 tokens moves twice
  passes.clear()
  tiny_decoding.sample(prompts[:1] * 4, **settings)
  assert passes == [4, 4]


def test_tokens_of_a_chunk_are_drawn_in_one_call(monkeypatch):
  calls, drawn = [], decode.draw_tokens

  def count(*args):
    tokens, cache = drawn(*args)
    calls.append(int(np.subtract(*args[-1][::-1])))
    return tokens, cache

  monkeypatch.setattr(decode, 'draw_tokens', count)
  many = {'max_new_tokens': 2 * M + 2}
  prompts = [[1] * M, [2] * (2 * M)]
  tiny_decoding.sample(prompts, Retriever(), tokens_per_call=M, **many)
  assert calls == [M, M, 2]
  calls.clear()
  tiny_decoding.sample([[1]], tokens_per_call=100, context_chunks=2, **many)
  assert calls == [2 * M, 2]  # up to the end of the window


@pytest.mark.parametrize('tokens_per_call', [1, 3])
def test_rows_of_a_batch_do_not_disturb_each_other(tokens_per_call):
  prompts = tiny_decoding.prompts(2, 7, 4, 9)
  settings = {'max_new_tokens': 20, 'context_chunks': 4}
  together = tiny_decoding.sample(prompts, Retriever(), **settings)
  stop = int(together[0].new_tokens[3])
  settings |= {'stop_ids': (stop,), 'tokens_per_call': tokens_per_call}
  stopped = tiny_decoding.sample(prompts, Retriever(), **settings)
  for free, got in zip(together, stopped, strict=True):
    new = free.new_tokens.tolist()
    end = new.index(stop) + 1 if stop in new else len(new)
    assert got.new_tokens.tolist() == new[:end]
  assert len({len(got.new_tokens) for got in stopped}) > 1


def test_seed_decides_the_draws_and_banned_tokens_are_never_drawn():
  a, b, c = (
    tiny_decoding.sample([[2, 3]] * 4, seed=seed, temperature=1.5)
    for seed in (0, 0, 1)
  )
  assert _tokens(a) == _tokens(b) != _tokens(c)
  assert a[0].tokens.tolist() != a[1].tokens.tolist()
  banned = tuple(range(20))
  (rest,) = tiny_decoding.sample([[2, 3]], temperature=1.0, banned_ids=banned)
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


@pytest.mark.parametrize('scales', [(0.1,), (3.0,), (0.1, 9.0)])
def test_many_tokens_are_kept_as_few(scales):
  rng = np.random.default_rng(0)
  logits = [rng.normal(size=3000).round(1) * scale for scale in scales]
  logits = np.asarray(logits, np.float32)
  keep = drawing.keep_mask(jnp.asarray(logits), 0, 0.9)
  for row, kept in zip(logits, keep, strict=True):
    order = np.argsort(-row, kind='stable')
    mass = np.exp(row[order], dtype=np.float64)
    before = (mass.cumsum() - mass) / mass.sum()
    assert sorted(order[before < 0.9]) == np.flatnonzero(kept).tolist()


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
