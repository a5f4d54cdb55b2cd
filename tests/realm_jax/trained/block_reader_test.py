# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Reading some blocks at a time finds what reading all of them at once finds."""

import dataclasses
import functools

import jax
from jax import numpy as jnp
import numpy as np
import pytest

from realm_jax.nn import open_qa
from realm_jax.objectives import reader_losses
from realm_jax.trained import block_reader
from tests.realm_jax.data import tiny_qa


@functools.cache
def _given():
  config = tiny_qa.config()
  params = tiny_qa.params(config)
  batch = jax.tree.map(jnp.asarray, tiny_qa.batch(b=3, c=6, r=4))
  return open_qa.OpenQa(config), params, batch


@pytest.mark.parametrize(
  ('read_at_once', 'many', 'answers'),
  [(0, 1, 7), (0, 1, 60), (5, 16, 7)],
)
def test_equals_the_best_of_all_blocks_together(
  read_at_once, many, answers, monkeypatch
):
  monkeypatch.setattr(
    block_reader, '_MANY', many
  )  # 1: by the length of each row
  model, params, batch = _given()
  mask = np.asarray(batch['reader_mask'])
  assert mask.sum(axis=-1).min() <= (mask.shape[-1] + 1) // 2
  scores = tiny_qa.span_scores(model, params, batch)
  expected = reader_losses.best_spans(scores, answers)
  found = jax.jit(
    functools.partial(
      block_reader.predict_spans,
      model,
      num_answers=answers,
      read_at_once=read_at_once,
    )
  )(params, batch)
  np.testing.assert_allclose(found.spans.score, expected.score, atol=1e-5)
  for name in ('block', 'start', 'width'):
    np.testing.assert_array_equal(
      getattr(found.spans, name), getattr(expected, name), name
    )
  everything = jax.nn.logsumexp(scores.reshape(3, -1), axis=-1)
  np.testing.assert_allclose(
    found.log_null, -np.logaddexp(0, everything), rtol=1e-5
  )
  there = np.asarray(expected.block) >= 0
  right = np.asarray(batch['reader_correct'])[
    np.arange(3)[:, None], expected.block, expected.width - 1, expected.start
  ]
  np.testing.assert_array_equal(np.asarray(found.correct)[there], right[there])


def test_beside_a_null_answer_spans_are_scored_without_the_retriever():
  model, params, batch = _given()
  null = open_qa.OpenQa(dataclasses.replace(model.config, null_answer=True))
  found = jax.jit(functools.partial(block_reader.predict_spans, null))(
    params, batch
  )
  scores = tiny_qa.span_scores(
    model, params, batch | {'beam_scores': jnp.zeros((3, 6))}
  )
  expected = reader_losses.best_spans(scores, 1)
  np.testing.assert_allclose(found.spans.score, expected.score, atol=1e-5)
