# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rounding to 8 bits; models written whole, in parts, or not at all."""

import contextlib
import gzip
import os

import jax
import numpy as np
import pytest

from retrieval.store import packed
from tests.retrieval.store import tiny_stores


@pytest.fixture
def params():
  rng = np.random.default_rng(0)
  values = {
    'word': {'embedding': rng.normal(size=(7, 5)) * np.arange(7)[:, None]},
    'dense': {'kernel': rng.normal(size=(4, 2, 3)), 'bias': rng.normal(size=3)},
  }
  values['dense']['kernel'][:, 1, 2] = 0
  # Not as they lie in a file: a decoder's matrices are read transposed.
  return {
    name: {k: np.asarray(v, np.float32, order='F') for k, v in part.items()}
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
  packed.write(tmp_path, params, {'a': 1}, **facts)
  whole = packed.dequantize(packed.quantize(params))
  jax.tree.map(
    np.testing.assert_array_equal, packed.load_params(tmp_path), whole
  )
  assert {*packed.load_params(tmp_path, ['word'])} == {'word'}
  shapes = packed.param_shapes(tmp_path)
  assert jax.tree.map(lambda x: x.shape, shapes) == jax.tree.map(
    np.shape, whole
  )
  packed.write(tmp_path, {'word': params['word']}, {'a': 2}, bits=32, **facts)
  found = packed.load_params(tmp_path)
  jax.tree.map(np.testing.assert_array_equal, found['word'], params['word'])
  jax.tree.map(np.testing.assert_array_equal, found['dense'], whole['dense'])
  assert packed.read_config(tmp_path) == {'a': 2}
  packed.write(tmp_path / 'new', {'': params}, {}, **facts)
  found = packed.load_params(tmp_path / 'new')
  jax.tree.map(np.testing.assert_array_equal, found, whole)
  assert all(x.flags.aligned for x in jax.tree.leaves(found))


@contextlib.contextmanager
def _dies_after(steps, monkeypatch):
  replace, left = os.replace, iter(range(steps))

  def limited(*paths):
    if next(left, None) is None:
      raise KeyboardInterrupt
    replace(*paths)

  with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
    patch.setattr(os, 'replace', limited)
    yield


@pytest.mark.parametrize('is_new', [True, False])
def test_a_partly_written_model_is_refused(
  params, tmp_path, monkeypatch, is_new
):
  def write(folder, number):
    parts = jax.tree.map(lambda x: number * x, params)
    facts = {'fingerprints': {}, 'bits': 32, 'step': number}
    packed.write(folder, parts, {'a': number}, **facts)

  def read(folder):
    """The number of a whole model, or the name of the file that is wrong."""
    try:
      number = packed.read_config(folder)['a']
      found = packed.load_params(folder)
    except (ValueError, FileNotFoundError) as error:
      return str(error).split(':')[0].removeprefix(f'{folder}/')
    want = jax.tree.map(lambda x: number * x, params)
    jax.tree.map(np.testing.assert_array_equal, found, want)
    assert packed.read_facts(folder).step == number
    return number

  found = []
  for steps in range(5):
    folder = tmp_path / f'{steps}'
    if not is_new:
      write(folder, 1)
    with _dies_after(steps, monkeypatch):
      write(folder, 2)
    found.append(read(folder))
    write(folder, 3)
    assert read(folder) == 3
  weights = [packed.WEIGHTS] * 4
  damaged = ['dense.safetensors.gz'] * 2 + ['config.json']
  assert found == [*(weights if is_new else [1, *damaged]), 2]


@pytest.mark.parametrize(
  'name', ['word.safetensors.gz', 'config.json', 'weights.json']
)
def test_a_flipped_bit_is_found(params, tmp_path, name):
  parts = {'word': params['word']}
  packed.write(tmp_path, parts, {'a': 'bc'}, step=3, fingerprints={'a': 'b'})
  tiny_stores.flip(tmp_path / name, -5)
  with pytest.raises(ValueError, match=name):
    packed.read_config(tmp_path)
    packed.load_params(tmp_path)
  with pytest.raises(FileNotFoundError, match='no packed model here'):
    packed.read_facts(tmp_path / 'missing')


@pytest.mark.parametrize(
  'content',
  [b'', b'x' * 99, gzip.compress(b'x' * 99)],
  ids=['empty', 'not gzip', 'no safetensors'],
)
def test_damage_is_named_without_checksums(
  params, tmp_path, monkeypatch, content
):
  parts = {'word': params['word']}
  packed.write(tmp_path, parts, {}, step=3, fingerprints={})
  (tmp_path / 'word.safetensors.gz').write_bytes(content)
  monkeypatch.setenv('RETRIEVAL_VERIFY', 'off')
  for read in (packed.load_params, packed.param_shapes):
    with pytest.raises(ValueError, match='word.safetensors.gz'):
      read(tmp_path)


def _table(seed):
  value = np.random.default_rng(seed).normal(size=(40, 90))
  return packed.dequantize(packed.quantize({'embedding': value}))


def _write_tables(folder, **seeds):
  parts = {
    name: {'word': _table(seed), 'own': {'b': seed}}
    for name, seed in seeds.items()
  }
  packed.write(folder, parts, {}, step=1, fingerprints={})


def _check_tables(folder, num_tables, **seeds):
  files = [*folder.glob('*.safetensors.gz')]
  assert {x.name for x in files} == {*packed.read_facts(folder).parts}
  assert sum(x.stat().st_size > 3000 for x in files) == num_tables
  for name, seed in seeds.items():
    found = packed.load_params(folder, [name])[name]
    assert found['own']['b'] == seed
    jax.tree.map(np.testing.assert_array_equal, found['word'], _table(seed))
  shapes = packed.param_shapes(folder)
  assert {shapes[x]['word']['embedding'].shape for x in seeds} == {(40, 90)}


def test_a_table_of_several_parts_is_stored_once(tmp_path):
  _write_tables(tmp_path, a=1, b=2)
  _check_tables(tmp_path, 2, a=1, b=2)
  _write_tables(tmp_path, c=1)
  _check_tables(tmp_path, 2, a=1, b=2, c=1)
  _write_tables(tmp_path, b=1)
  _check_tables(tmp_path, 1, a=1, b=1, c=1)
  _write_tables(tmp_path, c=2)
  _check_tables(tmp_path, 2, a=1, b=1, c=2)
