# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules, decay masks, AdamW; BERT's Adam is in the oracle of REALM."""

import dataclasses
import re

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.engine import optimizers
from retrieval.nn import bert, means, sharding

_CONFIG = optimizers.OptimizerConfig(
  learning_rate=2e-4, warmup_steps=750, final_fraction=0.1
)
_BERT = optimizers.OptimizerConfig(
  name='bert_adam',
  schedule='linear',
  learning_rate=1e-3,
  warmup_steps=4,
  weight_decay=0.01,
  b2=0.999,
  eps=1e-6,
)


@pytest.mark.parametrize(
  'step, expected',
  [
    (0, 1e-7),
    (375, (1e-7 + 2e-4) / 2),
    (750, 2e-4),
    (750 + 5000, (2e-4 + 2e-5) / 2),
    (750 + 2500, 2e-5 + (2e-4 - 2e-5) * (1 + np.cos(np.pi / 4)) / 2),
    (10_750, 2e-5),
  ],
)
def test_schedule(step, expected):
  schedule = optimizers.learning_rate_schedule(_CONFIG, num_steps=10_750)
  assert float(schedule(step)) == pytest.approx(expected, rel=1e-5, abs=2e-10)


@pytest.mark.parametrize(
  'num_steps, expected',
  [(200_000, 10_000), (50_009, 5000), (300, 100), (100, 50), (3, 1), (1, 0)],
)
@pytest.mark.parametrize('schedule', ['linear', 'cosine'])
def test_warmup_of_a_tenth(num_steps, expected, schedule):
  config = dataclasses.replace(_BERT, warmup_steps=-1, schedule=schedule)
  assert optimizers.warmup_steps(config, num_steps) == expected
  rate = optimizers.learning_rate_schedule(config, num_steps)
  top = max(float(rate(step)) for step in range(expected, expected + 2))
  decayed = 1 - expected / num_steps if schedule == 'linear' else 1
  assert top == pytest.approx(1e-3 * decayed, rel=1e-5)
  last = 1e-3 * config.final_fraction if schedule == 'cosine' else 0
  for step in (num_steps, 2 * num_steps):
    assert float(rate(step)) == pytest.approx(last, rel=1e-5)


def test_warmup_longer_than_the_run():
  with pytest.raises(ValueError, match='warmup_steps=750.*num_steps=500'):
    optimizers.learning_rate_schedule(_CONFIG, num_steps=500)


def test_one_step_equals_adamw_by_hand():
  config = dataclasses.replace(
    _CONFIG,
    learning_rate=0.1,
    warmup_steps=0,
    weight_decay=0.5,
  )
  rng = np.random.default_rng(0)
  params = {
    'kernel': rng.standard_normal((3, 2), np.float32),
    'bias': rng.standard_normal(2, np.float32),
  }
  grads = {
    'kernel': rng.standard_normal((3, 2), np.float32),
    'bias': rng.standard_normal(2, np.float32),
  }
  tx = optimizers.make_optimizer(config, num_steps=10)
  updates, _ = tx.update(grads, tx.init(params), params)
  norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
  assert norm > 1
  for name, decay in (('kernel', 0.5), ('bias', 0.0)):
    g = grads[name] / norm
    # After one step the corrected moments are g and g^2.
    expected = -0.1 * (g / (np.abs(g) + 1e-8) + decay * params[name])
    np.testing.assert_allclose(updates[name], expected, rtol=1e-5, atol=1e-7)


def test_berts_mask():
  config = bert.BertConfig(
    vocab_size=8, d_model=4, d_ff=4, num_heads=1, num_layers=1, max_length=4
  )
  model, ids = bert.BertForMaskedLm(config), jnp.ones((1, 4), jnp.int32)
  boxed = jax.eval_shape(
    lambda key: model.init(key, ids, ids > 0), jax.random.key(0)
  )
  for params in (boxed['params'], sharding.unbox(boxed['params'])):
    mask = nn.unbox(optimizers.bert_decay_mask(params))
    kept, decayed = (
      {
        '/'.join(k.key for k in path if hasattr(k, 'key'))
        for path, x in jax.tree_util.tree_leaves_with_path(mask)
        if x is decays
      }
      for decays in (False, True)
    )
    assert {name.rsplit('/')[-1] for name in kept} == {'bias', 'scale'}
    assert 'mlm_head/bias' in kept
    assert not re.search('norm|bias', ' '.join(decayed))
    parts = {part for name in decayed for part in name.split('/')}
    assert {'kernel', 'embedding', 'word', 'position', 'pooler'} <= parts
  # The two masks differ in bare vectors and in matrices of norms.
  bare = {'w': jnp.ones((2, 2)), 'norm': jnp.ones((2, 2)), 'v': jnp.ones(2)}
  assert optimizers.bert_decay_mask(bare) == {
    'w': True,
    'norm': False,
    'v': True,
  }
  assert optimizers.decay_mask(bare) == {'w': True, 'norm': True, 'v': False}


def test_matrices_decay_in_stacks_of_layers():
  """A stacked vector is a matrix by its shape alone."""
  init = nn.with_logical_partitioning(nn.initializers.ones, (None, 'embed'))
  params = {
    'layers_attn': {'q': jnp.ones((3, 2, 2)), 'scale': jnp.ones((3, 2))},
    'layers_cca': {'u': init(jax.random.key(0), (3, 2))},
    'layer_7_attn': {'q': jnp.ones((2, 2)), 'scale': jnp.ones(2)},
    'table': jnp.ones((2, 2)),
  }
  assert sharding.unbox(optimizers.decay_mask(params)) == {
    'layers_attn': {'q': True, 'scale': False},
    'layers_cca': {'u': False},
    'layer_7_attn': {'q': True, 'scale': False},
    'table': True,
  }
  assert optimizers.decay_mask(jnp.ones((2, 2)))


def test_microbatches_have_their_own_randomness():
  def loss(params, batch, key):
    mask = jnp.ones(len(batch), bool)
    value = means.of(params * jax.random.uniform(key), mask)
    return value, {}

  key = jax.random.key(0)
  found, _ = optimizers.value_and_grad(loss, 1.0, np.zeros((4, 1)), key, 2)
  draws = [jax.random.uniform(jax.random.fold_in(key, i)) for i in range(2)]
  assert draws[0] != draws[1]
  assert float(found['loss']) == pytest.approx(float(sum(draws) / 2))


def test_parts_of_the_model_have_learning_rates_of_their_own():
  config = optimizers.OptimizerConfig(
    warmup_steps=0, part_scales={'embedder': 0.25}
  )
  plain = dataclasses.replace(config, part_scales={})
  params = {name: {'w': jnp.ones((2, 2))} for name in ('embedder', 'encoder')}
  grads = jax.tree.map(lambda x: x * 0.1, params)
  found = []
  for one in (config, plain):
    tx = optimizers.make_optimizer(one, 10)
    found.append(tx.update(grads, tx.init(params), params)[0])
  scaled, whole = found
  np.testing.assert_allclose(
    scaled['embedder']['w'], 0.25 * whole['embedder']['w'], rtol=1e-6
  )
  np.testing.assert_array_equal(scaled['encoder']['w'], whole['encoder']['w'])
  other = dataclasses.replace(config, part_scales={'reader': 0.5})
  tx = optimizers.make_optimizer(other, 10)
  with pytest.raises(KeyError, match='reader'):
    tx.update(grads, tx.init(params), params)
