# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rounding to 8 bits, and codes without loss."""

import contextlib
import dataclasses
import os

import jax
import numpy as np
import pytest

from retrieval.store import packed, safetensors_files


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

  found = []
  for steps in range(8):
    folder = tmp_path / f'{steps}'
    write(folder, 1)
    with _dies_after(steps, monkeypatch):
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


def _table(seed):
  value = np.random.default_rng(seed).normal(size=(40, 90))
  return packed.dequantize(packed.quantize({'embedding': value}))


def _write_tables(folder, **seeds):
  parts = {
    f'{name}.safetensors': (name, {'word': _table(seed), 'own': {'b': seed}})
    for name, seed in seeds.items()
  }
  packed.write(folder, parts, {}, step=1, fingerprints={})


def _holders(folder):
  files = folder.glob('*.safetensors')
  return sum(file.stat().st_size > 3000 for file in files)


def _check_tables(folder, **seeds):
  for name, seed in seeds.items():
    found = packed.load_params(folder, [name])[name]
    assert found['own']['b'] == seed
    jax.tree.map(np.testing.assert_array_equal, found['word'], _table(seed))
  shapes = packed.param_shapes(folder)
  assert {shapes[x]['word']['embedding'].shape for x in seeds} == {(40, 90)}


def test_a_table_of_several_parts_is_stored_once(tmp_path):
  _write_tables(tmp_path, a=1, b=2)
  assert _holders(tmp_path) == 2
  _write_tables(tmp_path, c=1)
  assert _holders(tmp_path) == 2
  _check_tables(tmp_path, a=1, b=2, c=1)
  _write_tables(tmp_path, b=1)
  assert _holders(tmp_path) == 1
  _check_tables(tmp_path, a=1, b=1, c=1)
  _write_tables(tmp_path, c=2)
  assert _holders(tmp_path) == 2  # the base is one of the two that are equal
  _check_tables(tmp_path, a=1, b=1, c=2)


@pytest.mark.parametrize('bits', [8, 32])
def test_a_fine_tuned_part_takes_half_the_bytes(tmp_path, bits):
  rng = np.random.default_rng(0)
  start = rng.normal(size=(256, 256))
  trees = {
    name: {'layer': {'kernel': start + scale * rng.normal(size=start.shape)}}
    for name, scale in (('tuned', 1 / 64), ('whole', 0))
  }
  parts = {f'{k}.safetensors': (k, x) for k, x in trees.items()}
  packed.write(tmp_path, parts, {}, step=1, fingerprints={}, bits=bits)
  found = packed.load_params(tmp_path)
  for name, tree in trees.items():
    want = packed.dequantize(packed.quantize(tree, bits))
    jax.tree.map(np.testing.assert_array_equal, found[name], want)
  change, base = sorted((tmp_path / x).stat().st_size for x in parts)
  assert base < (0.97 if bits == 8 else 1) * bits * 2**13
  if bits == 8:
    assert change < bits * 2**12


def test_folders_of_earlier_writers_are_read(tmp_path):
  tables = {name: {'word': _table(1), 'own': {'b': 1}} for name in 'ab'}
  arrays = packed.quantize(tables)
  _write_tables(tmp_path, a=1, b=1)
  facts = packed.read_facts(tmp_path)
  table = 'word/embedding'
  for name in 'ab':
    own = {k[2:]: x for k, x in arrays.items() if k.startswith(name)}
    if name == 'b':
      del own[table]
    safetensors_files.write(tmp_path / f'{name}.safetensors', own)
  shared = {'b.safetensors': {f'b/{table}': ['a.safetensors', f'a/{table}']}}
  facts = dataclasses.replace(facts, shared=shared)
  packed.write_facts(tmp_path, facts, facts.weights)
  _check_tables(tmp_path, a=1, b=1)
  _write_tables(tmp_path, a=2)
  assert not packed.read_facts(tmp_path).shared
  _check_tables(tmp_path, a=2, b=1)


def test_a_part_keeps_a_table_whose_base_is_replaced_and_killed(
  tmp_path, monkeypatch
):
  owners = []
  for steps in range(9):
    folder = tmp_path / f'{steps}'
    _write_tables(folder, a=1, b=1)
    with _dies_after(steps, monkeypatch):
      _write_tables(folder, b=2)
    seed = int(packed.load_params(folder, ['b'])['b']['own']['b'])
    _check_tables(folder, a=1, b=seed)
    owners.append(seed)
  assert owners == [1, 1, 1, 1, 2, 2, 2, 2, 2]


@pytest.mark.parametrize('name', ['a.safetensors', 'b.safetensors'])
def test_damage_is_not_copied_with_a_shared_table(tmp_path, name):
  _write_tables(tmp_path, a=1, b=1)
  file = tmp_path / name
  data = bytearray(file.read_bytes())
  data[-5] ^= 1
  file.write_bytes(data)
  with pytest.raises(ValueError, match=name):
    packed.load_params(tmp_path, ['a'])
  with pytest.raises(ValueError, match=name):
    _write_tables(tmp_path, b=2)
  _write_tables(tmp_path, a=2, b=1)
  _check_tables(tmp_path, a=2, b=1)
