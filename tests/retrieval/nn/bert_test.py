# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT, its pooler and its head against NumPy on a checkpoint made here."""

import dataclasses
import functools

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrieval.kernels import backend
from retrieval.nn import bert, bert_checkpoint
from tests.retrieval.nn import tiny_bert


@pytest.fixture(scope='module')
def tensors():
  return tiny_bert.make_tensors()


@pytest.fixture(scope='module')
def loaded(tensors, tmp_path_factory):
  path = tiny_bert.save(tmp_path_factory.mktemp('bert'), tensors)
  return bert_checkpoint.load_mlm(path)


@pytest.fixture(scope='module')
def batch():
  rng = np.random.default_rng(1)
  ids = rng.integers(1, tiny_bert.V, (3, 8))
  mask = np.arange(8) < np.array([[8], [5], [1]])
  types = (np.arange(8) > 3).astype(int) * np.ones((3, 1), int)
  return tuple(jnp.asarray(x) for x in (ids, mask, types))


@functools.partial(jax.jit, static_argnames=('config', 'train'))
def _logits(config, params, head, batch, key, train):
  return bert.BertForMaskedLm(config).apply(
    {'params': {'bert': params, 'mlm_head': head}},
    *batch,
    train=train,
    rngs=None if key is None else {'dropout': key},
  )


def _mlm(config, params, head, batch, rng=None, train=False):
  key = None if rng is None else jax.random.key(rng)
  return np.asarray(_logits(config, params, head, batch, key, train))


@pytest.mark.parametrize('activation', list(tiny_bert.ACTIVATIONS))
def test_a_checkpoint_with_a_head_equals_numpy(
  tensors, batch, tmp_path, activation
):
  path = tiny_bert.save(tmp_path / 'model', tensors, hidden_act=activation)
  config, params, head = bert_checkpoint.load_mlm(path)
  assert (config.dropout_rate, config.attention_dropout_rate) == (0.2, 0.3)
  reference = tiny_bert.Reference(tensors, activation)
  hidden = reference.encode(*map(np.asarray, batch))
  out = bert.Bert(config).apply({'params': params}, *batch)
  np.testing.assert_allclose(out.hidden, hidden, atol=2e-5)
  np.testing.assert_allclose(out.pooled, reference.pool(hidden), atol=2e-5)
  logits = _mlm(config, params, head, batch)
  np.testing.assert_allclose(logits, reference.head(hidden), atol=1e-4)


def test_names_of_tensorflow_and_a_bare_encoder(tensors, loaded, tmp_path):
  config, params, head = loaded
  renamed = {}
  for name, x in tensors.items():
    name = name.replace('LayerNorm.weight', 'LayerNorm.gamma')
    renamed[name.replace('LayerNorm.bias', 'LayerNorm.beta')] = x
  decoder = tensors['bert.embeddings.word_embeddings.weight'].copy()
  renamed['cls.predictions.decoder.weight'] = decoder
  same = bert_checkpoint.load_mlm(tiny_bert.save(tmp_path / 'tf', renamed))
  jax.tree.map(np.testing.assert_array_equal, (params, head), same[1:])
  bare = {
    name.removeprefix('bert.'): x
    for name, x in tensors.items()
    if name.startswith('bert.') and 'pooler' not in name
  }
  path = tiny_bert.save(tmp_path / 'e', bare)
  found, encoder, none = bert_checkpoint.load_mlm(path)
  assert none is None and found == dataclasses.replace(config, pooler=False)
  ids = jnp.ones((1, 4), int)
  out = bert.Bert(found).apply({'params': encoder}, ids, ids > 0)
  assert out.pooled is None
  whole = bert.Bert(config).apply({'params': params}, ids, ids > 0)
  np.testing.assert_array_equal(out.hidden, whole.hidden)


def test_padding_changes_no_real_position(loaded, batch):
  ids, mask, types = batch
  plain = _mlm(*loaded, batch)
  ids_of_others = np.where(mask, ids, (ids + 7) % tiny_bert.V)
  other = ids_of_others, mask, np.where(mask, types, 0)
  np.testing.assert_array_equal(plain[mask], _mlm(*loaded, other)[mask])
  short = ids[1:2, :5], mask[1:2, :5], types[1:2, :5]
  np.testing.assert_allclose(plain[1, :5], _mlm(*loaded, short)[0], atol=1e-5)
  assert np.isfinite(_mlm(*loaded, (ids, np.zeros_like(mask), types))).all()


def test_the_last_layer_at_given_positions(loaded, batch):
  config, params, _ = loaded
  config = dataclasses.replace(config, remat=True)
  apply = jax.jit(bert.Bert(config).apply)
  whole = apply({'params': params}, *batch)
  positions = jnp.array([[0, 7, 3], [0, 4, 4], [0, 0, 0]])
  some = apply({'params': params}, *batch, positions)
  expected = np.take_along_axis(whole.hidden, positions[..., None], axis=1)
  np.testing.assert_allclose(some.hidden, expected, atol=1e-5)
  np.testing.assert_allclose(some.pooled, whole.pooled, atol=1e-5)


def test_recomputing_changes_nothing(loaded, batch):
  """Outputs and gradients, with the same dropout drawn again."""
  config, params, head = loaded
  config = dataclasses.replace(config, num_layers=1)
  params = {k: v for k, v in params.items() if k != 'layer_1'}

  def loss(params, remat):
    remat_config = dataclasses.replace(config, remat=remat)
    key = jax.random.key(0)
    logits = _logits(remat_config, params, head, batch, key, True)
    return (jax.nn.log_softmax(logits)[..., 3] * batch[1]).sum()

  grad = jax.value_and_grad(loss)
  plain, again = grad(params, False), grad(params, True)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
    plain,
    again,
  )
  recomputed = [
    'remat' in str(jax.make_jaxpr(loss, static_argnums=1)(params, remat))
    for remat in (False, True)
  ]
  assert recomputed == [False, True]


def test_a_loop_of_layers_changes_nothing(loaded, batch, monkeypatch):
  config, params, _ = loaded
  positions = jnp.asarray([[0, 3], [1, 2], [0, 0]])

  def make(remat):
    model = bert.Bert(dataclasses.replace(config, remat=remat))

    def loss(params):
      out = model.apply({'params': params}, *batch, positions)
      return jnp.sin(out.hidden).sum()

    return loss

  expected = jax.jit(jax.value_and_grad(make(False)))(params)
  monkeypatch.setattr(backend, 'is_cpu', lambda: False)
  close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
  for remat in (False, True):
    looped = jax.jit(jax.value_and_grad(make(remat)))(params)
    jax.tree.map(close, looped, expected)
    names = [x.primitive.name for x in jax.make_jaxpr(make(remat))(params).eqns]
    assert names.count('scan') == 1


@pytest.mark.parametrize('which', ['dropout_rate', 'attention_dropout_rate'])
def test_dropout_acts_in_training_alone(loaded, batch, which):
  config, params, head = loaded
  rates = {'dropout_rate': 0.0, 'attention_dropout_rate': 0.0, which: 0.4}
  config = dataclasses.replace(config, **rates)

  def run(rng, **kwargs):
    return _mlm(config, params, head, batch, rng, **kwargs)

  plain = _mlm(*loaded, batch)
  np.testing.assert_array_equal(run(None), plain)
  np.testing.assert_array_equal(run(1), plain)
  first = run(1, train=True)
  np.testing.assert_array_equal(run(1, train=True), first)
  assert np.abs(first - plain).max() > 0.1
  assert np.abs(run(2, train=True) - first).max() > 0.1
  with pytest.raises(flax.errors.InvalidRngError):
    run(None, train=True)


def test_dropout_of_attention_keeps_the_mean(loaded, batch):
  """The output of attention is linear in the dropped weights."""
  config, params, _ = loaded
  config = dataclasses.replace(config, attention_dropout_rate=0.5)
  module = bert.Attention(config)
  params = {'params': params['layer_0']['attention']}
  rng = np.random.default_rng(0)
  x = jnp.asarray(
    rng.standard_normal((*batch[0].shape, config.d_model)), jnp.float32
  )
  mask = jnp.asarray(batch[1], bool)

  def draw(key):
    return module.apply(params, x, x, mask, True, rngs={'dropout': key})

  keys = jax.random.split(jax.random.key(0), 2000)
  drawn = np.asarray(jax.jit(jax.vmap(draw))(keys))
  plain = module.apply(params, x, x, mask, False)
  error = drawn.std(axis=0) / len(keys) ** 0.5
  assert (np.abs(drawn.mean(axis=0) - plain) <= 6 * error + 1e-5).all()
  assert (error > 1e-4).any()


def test_gradient_of_a_frequent_word_is_a_float32_sum():
  # A sum of ones in bfloat16 stops at 256.
  config = bert.BertConfig(
    vocab_size=4, d_model=8, num_heads=2, num_layers=1, d_ff=8, dtype='bfloat16'
  )
  word = bert.embedding(config, 4, 'vocab', 'word')
  ids = jnp.zeros((8, 128), jnp.int32)
  params = flax.core.meta.unbox(word.init(jax.random.key(0), ids))

  def total(params):
    return word.apply(params, ids).astype(jnp.bfloat16).sum()

  found = jax.jit(jax.grad(total))(params)['params']['embedding']
  np.testing.assert_array_equal(found[0], 1024)


def test_bfloat16_is_close_to_float32(loaded, batch):
  config, params, head = loaded
  half = dataclasses.replace(config, dtype=jnp.bfloat16)
  out = bert.Bert(half).apply({'params': params}, *batch)
  assert out.hidden.dtype == out.pooled.dtype == jnp.bfloat16
  whole = bert.Bert(config).apply({'params': params}, *batch)
  # bfloat16 has 8 bits; hidden states are of size 1.
  error = np.abs(out.hidden.astype(np.float32) - whole.hidden)
  assert 0 < error.max() < 0.08 and error.mean() < 0.015
  logits = _mlm(half, params, head, batch)
  assert logits.dtype == np.float32
  exact = _mlm(config, params, head, batch)
  error = np.abs(logits - exact)
  assert 0 < error.mean() < 0.015 * np.abs(exact).mean()
