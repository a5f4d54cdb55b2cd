# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tensor bundles that TensorFlow wrote (tests/data/make_tf_bundles.py)."""

import pathlib
import shutil

import numpy as np
import pytest

from retrieval.formats import tensor_bundle, tfrecord

BUNDLES = pathlib.Path(__file__).parents[2] / 'data' / 'realm' / 'bundles'
NAMES = {
  'bert/variables/variables': 44,
  'embedder/variables/variables': 48,
  'embedder/encoded/encoded.ckpt': 1,
  'orqa/model.ckpt-20': 103,
}


@pytest.mark.parametrize('name', NAMES)
def test_values_are_those_that_tensorflow_wrote(name):
  bundle = tensor_bundle.Bundle(BUNDLES / name)
  assert len(bundle.entries) == NAMES[name]
  prefix, checked = name.replace('/', '.') + ':', 0
  with np.load(BUNDLES / 'values.npz') as values:
    for key in values:
      if key.startswith(prefix):
        variable = key.removeprefix(prefix).replace('|', '/')
        found = bundle.tensor(variable)
        assert found.dtype == values[key].dtype
        np.testing.assert_array_equal(found, values[key])
        assert isinstance(found, np.memmap) or isinstance(found.base, np.memmap)
        checked += 1
  assert checked


def test_the_index_may_be_named_with_its_suffix():
  prefix = BUNDLES / 'orqa/model.ckpt-20'
  assert tensor_bundle.exists(prefix)
  assert not tensor_bundle.exists(BUNDLES / 'orqa')
  bundle = tensor_bundle.Bundle(f'{prefix}.index')
  assert int(bundle.tensor('global_step')) == 20


def _copy(tmp_path, name='embedder/encoded/encoded.ckpt'):
  folder = (BUNDLES / name).parent
  shutil.copytree(folder, tmp_path / 'copy')
  return tmp_path / 'copy' / pathlib.Path(name).name


def _flip(file, at):
  data = bytearray(file.read_bytes())
  data[at] ^= 1
  file.write_bytes(bytes(data))


def test_damaged_values_are_named(tmp_path):
  prefix = _copy(tmp_path)
  _flip(prefix.with_name(f'{prefix.name}.data-00000-of-00001'), 9)
  bundle = tensor_bundle.Bundle(prefix)
  with pytest.raises(ValueError, match='variable block_emb: checksum'):
    bundle.tensor('block_emb')


def test_a_damaged_index_is_named(tmp_path):
  prefix = _copy(tmp_path)
  index = prefix.with_name(f'{prefix.name}.index')
  _flip(index, 3)
  with pytest.raises(
    ValueError, match=r'encoded.ckpt.index: checksum of the b'
  ):
    tensor_bundle.Bundle(prefix)
  index.write_bytes(b'x' * 60)
  with pytest.raises(ValueError, match='no table magic'):
    list(tensor_bundle.read_table(index))


def test_cut_and_missing_files_are_named(tmp_path):
  prefix = _copy(tmp_path)
  data = prefix.with_name(f'{prefix.name}.data-00000-of-00001')
  data.write_bytes(data.read_bytes()[:-1])
  bundle = tensor_bundle.Bundle(prefix)
  with pytest.raises(ValueError, match='which has 79'):
    bundle.tensor('block_emb')
  data.unlink()
  with pytest.raises(FileNotFoundError, match='data-00000-of-00001'):
    bundle.tensor('block_emb')
  with pytest.raises(FileNotFoundError, match='prefix of a TensorFlow'):
    tensor_bundle.Bundle(tmp_path / 'nothing')


def _varint(number):
  low, high = number & 127, number >> 7
  return bytes([low | 128]) + _varint(high) if high else bytes([low])


def _block(entries):
  """A block of entries (shared bytes, key, value), with its trailer."""
  data = b''.join(
    _varint(shared) + _varint(len(key)) + _varint(len(value)) + key + value
    for shared, key, value in entries
  )
  data += bytes(5)  # no restarts; no compression
  return data + tfrecord.masked_crc32c(data).to_bytes(4, 'little')


def _table(path, entries, place=None):
  """A table of one block, which its index names, by default where it is."""
  data = _block(entries)
  key, start, size = place or (b'z', 0, len(data) - 5)
  index = _block([(0, key, _varint(start) + _varint(size))])
  footer = _varint(0) * 2 + _varint(len(data)) + _varint(len(index) - 5)
  magic = tensor_bundle._MAGIC.to_bytes(8, 'little')
  path.write_bytes(data + index + footer.ljust(40, b'\0') + magic)


def _field(number, value):
  if isinstance(value, int):
    return _varint(number << 3) + _varint(value)
  return _varint(number << 3 | 2) + _varint(len(value)) + value


def test_a_small_table_is_read(tmp_path):
  entry = _field(1, 1) + _field(2, _field(2, _field(1, 3))) + _field(5, 12)
  _table(
    tmp_path / 'x.index', [(0, b'', b''), (0, b'ab', entry), (1, b'c', b'')]
  )
  bundle = tensor_bundle.Bundle(tmp_path / 'x')
  assert [*bundle.entries] == ['ab', 'ac'] and bundle.entries['ab'].shape == (
    3,
  )


@pytest.mark.parametrize(
  'entry',
  [
    pytest.param(_field(1, b'x'), id='type_of_bytes'),
    pytest.param(_field(2, 7), id='shape_of_a_number'),
    pytest.param(b'\x12\x7f', id='a_field_beyond_its_entry'),
  ],
)
def test_damaged_entries_are_refused(tmp_path, entry):
  _table(tmp_path / 'x.index', [(0, b'', b''), (0, b'a', entry)])
  with pytest.raises(ValueError, match=r'x\.index: ') as error:
    tensor_bundle.Bundle(tmp_path / 'x')
  assert len(str(error.value)) < 400


def test_a_block_beyond_the_file_is_refused(tmp_path):
  _table(tmp_path / 'x.index', [(0, b'a', b'')], (b'z', 2**62, 2**62))
  with pytest.raises(ValueError, match='exceed the file'):
    list(tensor_bundle.read_table(tmp_path / 'x.index'))


@pytest.mark.parametrize('shape', [(2**40, 2**40), (2**64 - 1,)])
def test_shapes_beyond_the_file_are_refused(tmp_path, shape):
  dims = b''.join(_field(2, _field(1, n)) for n in shape)
  entry = _field(1, 1) + _field(2, dims)
  _table(tmp_path / 'x.index', [(0, b'', b''), (0, b'a', entry)])
  (tmp_path / 'x.data-00000-of-00001').write_bytes(bytes(16))
  with pytest.raises(ValueError, match='variable a: '):
    tensor_bundle.Bundle(tmp_path / 'x').tensor('a')
