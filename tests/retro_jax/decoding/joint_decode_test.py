# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sampling from a joint model: the prompt's end retrieves, and its chunk reads it."""

import pytest

from retro_jax.data import samples
from retro_jax.decoding import decode, drawing
from retro_jax.nn import models
from tests.retro_jax.decoding import tiny_decoding
from tests.retro_jax.decoding.tiny_decoding import M, R, Retriever, likeliest
from tests.retro_jax.nn import tiny

CONFIG = tiny.config(
  num_layers=2,
  cca_layers=(1, 2),
  joint=True,
  joint_rank=2,
  begin_id=1,
  **tiny.LLAMA,
)


def _sample(prompts, retrieve=None, **settings):
  fields = {'temperature': 0.0, 'context_chunks': 8, 'max_new_tokens': 6}
  config = drawing.SamplingConfig(**fields | {'prompt_query': 3} | settings)
  model, params = models.of(CONFIG), tiny.params(CONFIG)
  made = tiny_decoding.as_prompts(prompts)
  how = {'detokenize': tiny_decoding.detokenize, 'retrieve': retrieve}
  return decode.sample(model, params, made, config, **how)


@pytest.mark.parametrize('length', [1, 2, M, M + 1, 2 * M, 3 * M - 1])
def test_tokens_are_those_of_the_whole_model(length):
  [prompt], retriever = tiny_decoding.prompts(length), Retriever()
  [sample] = _sample([prompt], retriever)
  assert sample.padding == -length % M
  assert sample.new_tokens.tolist() == likeliest(sample, CONFIG)


def test_the_end_of_a_prompt_retrieves_and_each_chunk_after_it():
  [prompt], retriever = tiny_decoding.prompts(2 * M + 1), Retriever()
  [sample] = _sample([prompt], retriever, max_new_tokens=M + 1)
  grid = [0] * sample.padding + sample.tokens.tolist()
  own = tuple(prompt[-3:])
  assert (
    retriever.rows
    == [
      tuple(grid[sample.padding : M]),
      own,  # what the last chunk but one retrieved would not be read
      own,
      tuple(grid[3 * M : 4 * M]),
    ]
  )
  assert (
    sample.neighbors[1].tokens.tolist() == sample.neighbors[2].tokens.tolist()
  )


@pytest.mark.parametrize('joint', [True, False])
@pytest.mark.parametrize('query', [(5, 6, 7, 8, 9), ()])
def test_a_query_retrieves_for_the_whole_prompt(joint, query):
  [prompt], retriever = tiny_decoding.prompts(2 * M + 1), Retriever()
  draw, config = (
    (_sample, CONFIG) if joint else (tiny_decoding.sample, tiny_decoding.CONFIG)
  )
  made = samples.Prompt(prompt, query=query)
  [sample] = draw([made], retriever, max_new_tokens=M + 1)
  grid = [0] * sample.padding + sample.tokens.tolist()
  end, written = query[-M:], tuple(grid[3 * M : 4 * M])
  assert retriever.rows == [(), end if joint else (), end, written]
  assert sample.padding == M - 1
  assert sample.new_tokens.tolist() == likeliest(sample, config)


def test_rows_do_not_disturb_each_other():
  prompts = tiny_decoding.prompts(2, 7, M, 9)
  settings = {'max_new_tokens': 20, 'context_chunks': 4}
  together = _sample(prompts, Retriever(), **settings)
  for prompt, sample in zip(prompts, together, strict=True):
    [alone] = _sample([prompt], Retriever(), **settings)
    assert alone.tokens.tolist() == sample.tokens.tolist()


def test_given_neighbors_are_read_by_the_prompt():
  [prompt] = tiny_decoding.prompts(3)
  far, near = (samples.given_neighbors([x], R) for x in ([3, 4], [5, 6, 7]))
  one, two = (
    _sample([samples.Prompt(prompt, [found])])[0] for found in (far, near)
  )
  assert one.new_tokens.tolist() == likeliest(one, CONFIG)
  assert two.new_tokens.tolist() == likeliest(two, CONFIG)
  off = _sample([samples.Prompt(prompt, ())])[0]
  assert off.new_tokens.tolist() != two.new_tokens.tolist()
