# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every loss: one batch, its microbatches and eight devices give the same.

Rows have unequal numbers of targets, candidates and negatives, and some none. The
losses of tests/experiments/engine/toy_task.py do the same in two processes.
"""

import functools
import types
import typing

from flax import linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np
import pytest

from experiments.engine import optimizers, rooms
from realm_jax.nn import open_qa, realm as model_lib
from realm_jax.objectives import dpr, ict, losses, mlm, reader_losses
from retrieval.nn import sharding
from retro_jax.nn import losses as lm_losses

B, K, M, D, V = 16, 3, 4, 5, 19
REALM = typing.get_type_hints(losses.LossConfig)['objective']


class Model:
  """Stands for a Flax module: functions of parameters, each row by itself."""

  def __init__(self, call=None, config=None, **methods):
    self.config, self._methods = config, {None: call} | methods

  def apply(self, variables, *inputs, method=None, **settings):
    del settings['train'], settings['rngs']
    return self._methods[method](variables['params'], *inputs, **settings)


def _words(rng, *shape):
  return rng.integers(4, V, shape, np.int32)


def _some(rng, *shape):
  """A mask with rows of all sizes; one microbatch of four has nothing."""
  mask = rng.random(shape) < rng.random((shape[0], *[1] * (len(shape) - 1)))
  mask[::4] = False
  return mask


def _realm(objective):
  def call(table, batch):
    scores = table[batch['candidate_ids'], 0]
    found = table[batch['mlm_targets']].sum(-1)[:, None] + scores[..., None]
    gold = -jax.nn.softplus(found)
    return model_lib.RealmOutput(scores, gold, jnp.full_like(gold, -0.5))

  def draw(rng):
    valid = rng.random((B, K)) < 0.7
    valid[:, 0] = True  # the null block
    return {
      'candidate_ids': _words(rng, B, K),
      'candidate_valid': valid,
      'mlm_targets': _words(rng, B, M),
      'mlm_mask': _some(rng, B, M),
    }

  loss = functools.partial(losses.loss, Model(call), objective=objective)
  return loss, draw


def _mlm():
  def logits(table, batch):
    return table[batch['joint_ids']] @ table.T

  def draw(rng):
    return {
      'joint_ids': _words(rng, B, 1, M),
      'mlm_targets': _words(rng, B, M),
      'mlm_mask': _some(rng, B, M),
      'sentence_removed': rng.random(B) < 0.5,
    }

  return functools.partial(mlm.loss, Model(token_logits=logits)), draw


def _in_batch(loss, hard=0):
  """ICT and DPR."""

  def queries(table, ids, mask):
    return (table[ids] * mask[..., None]).sum(-2)

  def blocks(table, ids, mask, types):
    return jnp.tanh(queries(table, ids, mask))

  def draw(rng):
    shape = (B, 1 + hard) if hard else (B,)
    block_ids, valid = _words(rng, *shape, M), rng.random(shape) < 0.6
    valid.reshape(B, -1)[:, 0] = True
    number = np.arange(valid.size, dtype=np.uint32).reshape(*shape, 1)
    number[1] = number[2]  # two queries with the same blocks
    return {
      'query_ids': _words(rng, B, M),
      'query_mask': rng.random((B, M)) < 0.8,
      'block_ids': block_ids,
      'block_mask': block_ids > 6,
      'block_types': block_ids * 0,
      'block_hash': number,
      'block_valid': valid,
      'row_valid': _some(rng, B),
      'sentence_removed': rng.random(B) < 0.7,
    }

  model = Model(embed_queries=queries, embed_blocks=blocks)
  return functools.partial(loss, model, mask_duplicates=True), draw


def _beams(null_answer=False):
  def read(table, batch):
    spans = table[batch['reader_ids'], :2]
    return jnp.moveaxis(spans, -1, -2)

  def score(table, batch):
    question = table[batch['question_ids']].sum(1)
    return jnp.einsum('bcd,bd->bc', batch['beam_vectors'], question)

  def draw(rng):
    correct = rng.random((B, 2, 2, M)) < 0.3
    correct[rng.random(B) < 0.5] = False  # the reader rests
    return {
      'question_ids': _words(rng, B, M),
      'row_valid': _some(rng, B),
      'beam_vectors': rng.standard_normal((B, K, D), np.float32),
      'beam_valid': rng.random((B, K)) < 0.8,
      'beam_has_answer': rng.random((B, K)) < 0.3,
      'reader_ids': _words(rng, B, 2, M),
      'reader_valid': np.ones((B, 2), bool),
      'reader_correct': correct,
    }

  config = open_qa.SpanConfig(max_span_width=2, null_answer=null_answer)
  model = Model(config=config, read_beam=read, beam_scores=score)
  loss = functools.partial(reader_losses.loss, model, early_weight=0.5)
  return loss, draw


def _bigrams(table, tokens, neighbors, mask, *, segment_ids, targets):
  """A language model that reads the neighbors of the chunk before."""
  read = (table[neighbors] * mask[..., None]).sum((2, 3))
  read = jnp.roll(jnp.repeat(read, M, axis=1), M - 1, axis=1)
  log_probs = jax.nn.log_softmax((table[tokens] + read) @ table.T)
  return -jnp.take_along_axis(log_probs, targets[..., None], -1)[..., 0]


_LM = Model(_bigrams, types.SimpleNamespace(cca_layers=(1,), chunk_length=M))


def _text(rng):
  tokens = _words(rng, B, 3 * M)
  return {
    'tokens': tokens,
    'targets': np.roll(tokens, -1, axis=1),
    'loss_mask': _some(rng, B, 3 * M),
    'segment_ids': np.ones_like(tokens),
    'neighbors': _words(rng, B, 3, K, 2),
    'neighbor_mask': rng.random((B, 3, K, 2)) < 0.8,
  }


# Losses of each task that is trained: name -> function that makes (loss, draw).
CASES = {
  'retro': {'': lambda: (functools.partial(lm_losses.loss, _LM), _text)},
  'realm': {x: functools.partial(_realm, x) for x in typing.get_args(REALM)},
  'ict': {'': functools.partial(_in_batch, ict.loss)},
  'mlm': {'': _mlm},
  'open_qa': {
    '': _beams,
    'null': functools.partial(_beams, null_answer=True),
  },
  'dpr': {'': functools.partial(_in_batch, dpr.loss, 2)},
}
IN_BATCH = ('ict', 'dpr')


def test_no_objective_is_forgotten():
  trained = {task for task, room in rooms.ROOMS.items() if 'train' in room}
  assert trained == {*CASES, 'retro_qa'}  # which has the loss of retro


def _step(loss, in_batch, num_parts):
  if in_batch:
    loss, num_parts = functools.partial(loss, num_chunks=num_parts), 1

  def step(params, batch):
    trained = functools.partial(loss, train=False)
    key = jax.random.key(0)
    return optimizers.value_and_grad(trained, params, batch, key, num_parts)

  return jax.jit(step)


def _same(found, expected, atol):
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=atol),
    found,
    expected,
  )


@pytest.mark.usefixtures('unchecked')
@pytest.mark.parametrize(
  'task, name', [(task, name) for task in CASES for name in CASES[task]]
)
def test_a_batch_may_be_cut(task, name):
  loss, draw = CASES[task][name]()
  params = 0.7 * jax.random.normal(jax.random.key(0), (V, D))
  batches = [
    jax.tree.map(jnp.asarray, draw(np.random.default_rng(seed)))
    for seed in range(2)
  ]
  whole, parts, cut = (_step(loss, task in IN_BATCH, n) for n in (1, 4, 2))
  mesh = sharding.make_mesh(4, 2)
  shardings = [NamedSharding(mesh, x) for x in (P(), P(('data', 'fsdp')))]
  for batch in batches:
    expected = jax.device_get(whole(params, batch))
    found = [parts(params, batch)]
    with jax.set_mesh(mesh), nn.logical_axis_rules(sharding.make_rules()):
      found.append(cut(*map(jax.device_put, (params, batch), shardings)))
    size = np.abs(expected[1]).max()
    assert size > 0
    for metrics, grads in found:
      _same(metrics, expected[0], 1e-6)
      _same(grads, expected[1], 2e-6 * size)
