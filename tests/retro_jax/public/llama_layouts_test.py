# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Llama's layout of Hugging Face and its variants, against numpy."""

import json
import pathlib

import numpy as np
import pytest

from retro_jax.public import llama_layouts
from tests.retro_jax.nn import public_reference, step_test, tiny

VOCAB = 19
_SCALINGS = pathlib.Path(__file__).parents[2] / 'data/rotary_scaling.json'


def _config(settings):
  return tiny.config(
    **llama_layouts.fields(settings), vocab_size=VOCAB, cca_layers=()
  )


@pytest.mark.parametrize('kind', ['llama', 'qwen2', 'qwen3'])
def test_logits_and_steps_are_those_of_the_tensors(kind):
  tied = kind != 'qwen2'
  tensors = public_reference.hugging_face_tensors(VOCAB, kind, tied)
  settings = public_reference.hugging_face_settings(
    kind, tie_word_embeddings=tied, sliding_window=9, use_sliding_window=False
  )
  c = _config(settings)
  assert c.tie_readout == tied and c.decoder.num_kv_heads == 2
  params = llama_layouts.params(tensors, c)
  tokens = np.random.default_rng(4).integers(0, VOCAB, (2, 11), np.int32)
  expected = np.stack(
    [public_reference.hugging_face(tensors, x) for x in tokens]
  )
  got = tiny.apply(c, params, tokens)
  np.testing.assert_allclose(got, expected, rtol=0, atol=2e-4)

  # One token more, by the cache.
  last = np.array([9, 9])
  _, cache = step_test._fill(c, params, tokens, last=last)
  step, _ = step_test._step(c, params, cache, tokens[:, 10], last + 1)
  np.testing.assert_allclose(step, expected[:, 10], rtol=0, atol=2e-4)


def test_what_a_file_may_hold_beside_the_tensors():
  tensors = public_reference.hugging_face_tensors(VOCAB + 3)
  table = tensors['model.embed_tokens.weight']
  more = {
    'lm_head.weight': table,  # the embeddings once more
    'model.layers.0.self_attn.rotary_emb.inv_freq': np.ones(4, np.float32),
  }
  c = _config(public_reference.hugging_face_settings())
  params = llama_layouts.params(tensors | more, c)
  np.testing.assert_array_equal(params['embedding'], table[:VOCAB])


@pytest.mark.parametrize(
  'changed, message',
  [
    ({'model_type': 'gemma'}, "model_type 'gemma'; expected one of"),
    ({'rope_scaling': {'rope_type': 'longrope'}}, "scaled by 'longrope'"),
    ({'rope_scaling': {'type': 'linear'}}, r"linear: lacks \['factor'\]"),
    ({'rope_scaling': {'type': 'linear', 'factor': 'x'}}, 'factor'),
    (
      {'rope_scaling': {'type': 'linear', 'factor': 2, 'new': 1}},
      r"rope_scaling: \['new'\]",
    ),
    ({'rope_parameters': {'rope_type': 'yarn'}}, 'yarn: lacks'),
    ({'rope_scaling': {'factor': 2.0}}, r"\['factor'\] without rope_type"),
    ({'rope_parameters': {'partial_rotary_factor': 0.5}}, 'partial_rotary'),
    ({'quantization_config': {'quant_method': 'fp8'}}, "'fp8'"),
    ({'sliding_window': 4096}, 'sliding_window=4096; expected none'),
    (
      {'layer_types': ['full_attention', 'sliding_attention']},
      r"layer_types \['sliding_attention'\]; expected full_attention",
    ),
    ({'mlp_bias': True}, 'mlp_bias=True; expected False'),
    ({'hidden_act': 'gelu'}, "hidden_act 'gelu'; expected 'silu'"),
    ({'num_attention_heads': 0}, 'num_attention_heads=0: expected a whole'),
    ({'rope_theta': 'x'}, "rope_theta='x': expected a number"),
  ],
)
def test_what_is_not_here_is_named(changed, message):
  with pytest.raises(ValueError, match=message):
    llama_layouts.fields(public_reference.hugging_face_settings(**changed))


def test_newer_files_have_the_base_elsewhere():
  settings = public_reference.hugging_face_settings()
  base = settings.pop('rope_theta')
  newer = {'rope_parameters': {'rope_type': 'default', 'rope_theta': base}}
  found = llama_layouts.fields(settings | newer)
  assert found['decoder']['rotary_base'] == base
  del settings['hidden_size']
  with pytest.raises(ValueError, match='hidden_size=None'):
    llama_layouts.fields(settings)


@pytest.mark.parametrize(
  'case', json.loads(_SCALINGS.read_text()), ids=lambda x: str(x['width'])
)
@pytest.mark.parametrize('name', ['rope_scaling', 'rope_parameters'])
def test_scaled_positions_are_those_of_transformers(case, name):
  """Frequencies and growth by transformers 5.24."""
  given = {name: case['settings']}
  found = llama_layouts.fields(public_reference.hugging_face_settings(**given))
  scaling = found['decoder']['rotary_scaling']
  got = scaling.frequencies(case['width'], case['base'])
  np.testing.assert_allclose(got, case['frequencies'], rtol=2e-6)
  assert scaling.growth == pytest.approx(case['growth'], rel=1e-6)


def test_logits_with_scaled_positions():
  """They are those of the tensors, turned by the stretched and longer vectors."""
  given = {'rope_type': 'yarn', 'factor': 4.0}
  given['original_max_position_embeddings'] = 64
  settings = public_reference.hugging_face_settings(rope_scaling=given)
  c = _config(settings)
  scaling = c.decoder.rotary_scaling
  tensors = public_reference.hugging_face_tensors(VOCAB)
  tokens = np.random.default_rng(4).integers(0, VOCAB, 11, np.int32)
  width = public_reference.LLAMA['head_dim']
  steps = scaling.frequencies(width, public_reference.LLAMA['base'])
  assert scaling.growth > 1.1

  def turn(x, angle):
    plain = public_reference.LLAMA['base'] ** (
      -2 * np.arange(width // 2) / width
    )
    return scaling.growth * public_reference.turn_halves(
      x, angle / plain * steps
    )

  expected = public_reference.hugging_face(tensors, tokens, turn)
  got = tiny.apply(c, llama_layouts.params(tensors, c), tokens[None])[0]
  np.testing.assert_allclose(got, expected, rtol=0, atol=2e-4)
