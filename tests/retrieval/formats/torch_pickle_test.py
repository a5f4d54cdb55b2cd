# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Weights that PyTorch wrote, and pickles that want something executed."""

import os
import pathlib
import pickle
import zipfile

import numpy as np
import pytest

from retrieval.formats import block_records, torch_pickle

DATA = pathlib.Path(__file__).parents[2] / 'data' / 'realm'
WEIGHTS = DATA / 'hf_openqa' / 'pytorch_model.bin'
RECORDS = DATA / 'hf_openqa' / 'block_records.npy'


class Bomb:
  """Its unpickling runs a command."""

  def __init__(self, file):
    self.file = file

  def __reduce__(self):
    return os.system, (f'touch {self.file}',)


def test_tensors_are_those_of_the_oracle():
  found = torch_pickle.read(WEIGHTS)
  with np.load(DATA / 'openqa.npz') as values:
    names = [n for n in values if n.startswith('w/')]
    assert sorted(found) == sorted(n.removeprefix('w/') for n in names)
    for name in names:
      np.testing.assert_array_equal(
        found[name.removeprefix('w/')], values[name]
      )
  assert not found['block_emb'].flags.writeable


def _archive(path, data, **members):
  with zipfile.ZipFile(path, 'w') as archive:
    archive.writestr('a/data.pkl', data)
    for name, member in members.items():
      archive.writestr(f'a/data/{name}', member)
  return path


def test_nothing_is_executed(tmp_path):
  target = tmp_path / 'executed'
  named = r"'(posix|nt)\.system'"
  for protocol in (0, 2, 4):
    data = pickle.dumps({'w': Bomb(target)}, protocol)
    path = _archive(tmp_path / f'{protocol}.bin', data)
    with pytest.raises(ValueError, match=f'{named}.*nothing of it was exec'):
      torch_pickle.read(path)
    assert not target.exists()
    pickle.loads(data)  # it would have been
    assert target.exists()
    target.unlink()


_STORED = b'(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0' + b'0'
_TENSOR = b'ctorch._utils\n_rebuild_tensor_v2\n('
HOSTILE = {
  'no_key': b'\x80\x02}X\1\0\0\0w' + _TENSOR + b'K\1QtRs.',
  'endless_view': b'\x80\x02}X\1\0\0\0w'
  + _TENSOR
  + _STORED
  + b'X\3\0\0\0cpuK\4tQK\0J\xff\xff\xff\x7f\x85K\0\x85\x89NtRs.',
  'number_as_name': b'\x80\x02}K\x01'
  + _TENSOR
  + _STORED
  + b'X\3\0\0\0cpuK\4tQK\0K\4\x85K\1\x85\x89NtRs.',
}


@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_pickles_end_at_once(tmp_path, name):
  values = np.ones(4, np.float32).tobytes()
  path = _archive(tmp_path / 'x.bin', HOSTILE[name], **{'0': values})
  with pytest.raises(ValueError, match=r'x\.bin: ') as error:
    torch_pickle.read(path)
  assert '\n' not in str(error.value) and len(str(error.value)) < 500


def test_what_is_compressed_is_refused(tmp_path):
  with zipfile.ZipFile(WEIGHTS) as old:
    with zipfile.ZipFile(tmp_path / 'x.bin', 'w', zipfile.ZIP_DEFLATED) as new:
      for name in old.namelist():
        new.writestr(name, old.read(name))
  with pytest.raises(ValueError, match='x.bin: .* is compressed'):
    torch_pickle.read(tmp_path / 'x.bin')


def test_damaged_values_are_named(tmp_path):
  path = tmp_path / 'damaged.bin'
  with zipfile.ZipFile(WEIGHTS) as archive:
    [name] = [x for x in archive.namelist() if x.endswith('/data/7')]
    data = archive.read(name)
  whole = WEIGHTS.read_bytes()
  at = whole.index(data) + len(data) // 2
  path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
  with pytest.raises(ValueError, match=f'damaged.bin: damaged .*{name}'):
    torch_pickle.read(path)


# Of an entry in the archive's list: where the field lies, and its new value.
@pytest.mark.parametrize(
  ('member', 'field', 'value'),
  [
    pytest.param('data.pkl', 0, b'XXXX', id='signature'),
    pytest.param('data.pkl', 16, b'\0\0\0\0', id='checksum'),
    pytest.param('data/0', 24, b'\xff\xff\xff', id='size'),
  ],
)
def test_a_damaged_archive_is_named(tmp_path, member, field, value):
  path = tmp_path / 'damaged.bin'
  data = bytearray(WEIGHTS.read_bytes())
  name = f'pytorch_model/{member}'.encode()
  at = data.rindex(name) - 46 + field
  data[at : at + len(value)] = value
  path.write_bytes(bytes(data))
  with pytest.raises(ValueError, match='damaged.bin: ') as error:
    torch_pickle.read(path)
  assert '\n' not in str(error.value)


def test_block_records_are_read():
  expected = np.load(RECORDS, allow_pickle=True)
  assert list(block_records.read(RECORDS)) == list(expected)
  assert block_records.count(RECORDS) == len(expected) == 8


def test_long_and_repeated_records(tmp_path):
  rng = np.random.default_rng(0)
  texts = [rng.bytes(n) for n in (0, 1, 255, 256, 70_000, *range(2000))]
  texts[1700] = texts[900]  # one object twice
  file = tmp_path / 'records.npy'
  np.save(file, np.array(texts, object), allow_pickle=True)
  assert list(block_records.read(file)) == texts


@pytest.mark.parametrize('place', [0, 1])
def test_nothing_in_records_is_executed(tmp_path, place):
  target, file = tmp_path / 'executed', tmp_path / 'records.npy'
  texts = [b'one', b'two']
  texts[place] = Bomb(target)
  np.save(file, np.array(texts, object), allow_pickle=True)
  with pytest.raises(ValueError, match='nothing of it was executed'):
    list(block_records.read(file))
  assert not target.exists()


@pytest.mark.parametrize(
  'header',
  [
    "{'descr': '|O', 'fortran_order': False, 'shape': (2,",
    "{'descr': '|O', 'fortran_order': False, 'shape': (-2,)}",
    "__import__('os').getcwd()",
  ],
)
def test_a_header_of_another_form_is_refused(tmp_path, header):
  file = tmp_path / 'x.npy'
  text = header.encode() + b'\n'
  length = len(text).to_bytes(2, 'little')
  file.write_bytes(b'\x93NUMPY\x01\x00' + length + text)
  with pytest.raises(ValueError, match=r'x\.npy: ') as error:
    block_records.count(file)
  assert '\n' not in str(error.value)


def test_the_count_of_records_is_that_of_the_header(tmp_path):
  file = tmp_path / 'x.npy'
  texts = np.array([b'one', b'two', b'three'], object)
  np.save(file, texts, allow_pickle=True)
  whole = file.read_bytes()
  file.write_bytes(whole.replace(b'C\3two', b'\x8e' + b'\xff' * 4))
  with pytest.raises(ValueError, match=r'x\.npy: '):
    list(block_records.read(file))
  file.write_bytes(whole.replace(b'(3,)', b'(2,)'))
  with pytest.raises(ValueError, match=r'x\.npy: more than the 2 texts'):
    list(block_records.read(file))
