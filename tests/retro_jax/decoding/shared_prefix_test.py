# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Continuations after a shared prefix are those of the whole prompts."""

import numpy as np
import pytest

from retro_jax.decoding import shared_prefix
from retro_jax.nn import retro as model
from tests.retro_jax.nn import tiny

DECODERS = {
  'rotary': tiny.LLAMA | {'head_norms': True},
  'absolute': tiny.GPT2 | {'max_positions': 256},
}


def _greedy(c, params, prompt, count):
  """Tokens by one pass over the whole text for each."""
  text = np.zeros((1, 96), np.int32)
  text[0, : len(prompt)] = prompt
  for n in range(len(prompt), len(prompt) + count):
    logits = tiny.apply(c, params, text)
    text[0, n] = int(np.argmax(logits[0, n - 1]))
  return text[0, len(prompt) : len(prompt) + count].tolist()


@pytest.mark.parametrize('kind', [*DECODERS])
def test_each_row_is_continued_as_if_alone(kind):
  c = tiny.config(num_layers=2, cca_layers=(), **DECODERS[kind])
  params, rng = tiny.params(c), np.random.default_rng(5)
  prefix = rng.integers(0, c.vocab_size, 7)
  tails = [rng.integers(0, c.vocab_size, n) for n in (3, 66, 1, 9, 70)]
  wanted = [_greedy(c, params, [*prefix, *tail], 6) for tail in tails]
  stop = wanted[0][3]
  seen = []
  got = shared_prefix.write(
    model.Retro(c),
    params,
    prefix,
    tails,
    max_new_tokens=6,
    is_done=lambda tokens: tokens[-1] == stop,
    batch_size=2,
    progress=lambda *x: seen.append(x),
  )
  ends = [x.index(stop) + 1 if stop in x else 6 for x in wanted]
  assert got == [x[:n] for x, n in zip(wanted, ends, strict=True)]
  assert min(ends) < 6 and seen == [(2, 5), (4, 5), (5, 5)]
