# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rounding to 8 bits."""

import contextlib
import os

import jax
import numpy as np
import pytest

from retrieval.store import packed


@pytest.fixture
def params():
  rng = np.random.default_rng(0)
  values = {
    'word': {'embedding': rng.normal(size=(7, 5)) * np.arange(7)[:, None]},
    'dense': {'kernel': rng.normal(size=(4, 2, 3)), 'bias': rng.normal(size=3)},
  }
  values['dense']['kernel'][:, 1, 2] = 0
  return {
    name: {k: v.astype(np.float32) for k, v in part.items()}
    for name, part in values.items()
  }


def test_nothing_moves_by_more_than_half_a_level(params):
  arrays = packed.quantize(params)
  assert arrays['word/embedding'].dtype == np.int8
  # A scale for each token, and for each output of a kernel.
  assert arrays['word/embedding:scale'].shape == (7, 1)
  assert arrays['dense/kernel:scale'].shape == (1, 2, 3)
  found = packed.dequantize(arrays)
  np.testing.assert_array_equal(found['dense']['bias'], params['dense']['bias'])
  for part, name, axis in (('word', 'embedding', 1), ('dense', 'kernel', 0)):
    value = params[part][name]
    largest = np.abs(value).max(axis=axis, keepdims=True)
    error = np.abs(found[part][name] - value)
    assert (error <= largest / 254 * 1.0001).all()
    assert error.max() > 0
  assert not found['word']['embedding'][0].any()


def test_files_are_read_as_they_were_written(params, tmp_path):
  facts = {'step': 3, 'fingerprints': {'tokenizer': 'abc'}}
  parts = {f'{k}.safetensors': (k, x) for k, x in params.items()}
  packed.write(tmp_path, parts, {'a': 1}, **facts)
  whole = packed.dequantize(packed.quantize(params))
  jax.tree.map(
    np.testing.assert_array_equal, packed.load_params(tmp_path), whole
  )
  assert {*packed.load_params(tmp_path, ['word'])} == {'word'}
  shapes = packed.param_shapes(tmp_path)
  assert shapes['dense']['kernel'].shape == (4, 2, 3)
  packed.write(
    tmp_path,
    {'word.safetensors': parts['word.safetensors']},
    {'a': 2},
    bits=32,
    **facts,
  )
  found = packed.load_params(tmp_path)
  jax.tree.map(np.testing.assert_array_equal, found['word'], params['word'])
  jax.tree.map(np.testing.assert_array_equal, found['dense'], whole['dense'])
  assert packed.read_config(tmp_path) == {'a': 2}


def test_a_killed_writer_leaves_the_old_model_or_the_new_one(
  params, tmp_path, monkeypatch
):
  def write(folder, number):
    parts = {
      f'{name}.safetensors': (name, jax.tree.map(lambda x: number * x, part))
      for name, part in params.items()
    }
    facts = {'fingerprints': {}, 'bits': 32, 'step': number}
    packed.write(folder, parts, {'a': number}, **facts)

  def dies_after(steps):
    replace, left = os.replace, iter(range(steps))

    def limited(*paths):
      if next(left, None) is None:
        raise KeyboardInterrupt
      replace(*paths)

    return limited

  found = []
  for steps in range(8):
    folder = tmp_path / f'{steps}'
    write(folder, 1)
    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
      patch.setattr(os, 'replace', dies_after(steps))
      write(folder, 2)
    number = packed.read_config(folder)['a']
    assert packed.read_facts(folder).step == number
    want = jax.tree.map(lambda x, n=number: n * x, params)
    loaded = packed.load_params(folder)
    jax.tree.map(np.testing.assert_array_equal, loaded, want)
    found.append(number)
    write(folder, 3)
    assert packed.read_config(folder) == {'a': 3}
    assert not [*folder.glob('*.next')]
  assert found == [1, 1, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize(
  'name', ['word.safetensors', 'config.json', 'weights.json']
)
def test_a_flipped_bit_is_found(params, tmp_path, name):
  parts = {'word.safetensors': ('word', params['word'])}
  packed.write(tmp_path, parts, {'a': 'bc'}, step=3, fingerprints={'a': 'b'})
  data = bytearray((tmp_path / name).read_bytes())
  data[-5] ^= 1
  (tmp_path / name).write_bytes(data)
  with pytest.raises(ValueError, match=name):
    packed.read_config(tmp_path)
    packed.load_params(tmp_path)
  with pytest.raises(FileNotFoundError, match='no packed model here'):
    packed.read_facts(tmp_path / 'missing')
