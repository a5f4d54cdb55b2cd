# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""TFRecord: others' files are read, ours are theirs, no damage passes."""

import gzip

import numpy as np
import pytest
from tensorboardX import record_writer

from retrieval.formats import tfrecord

RECORDS = [b'first', b'', bytes(range(256)) * 20, 'Ünder'.encode(), b'\0']


def _records(path):
  return list(tfrecord.read(path))


def _slow_crc32c(data):
  state = 0xFFFFFFFF
  for byte in data:
    state ^= byte
    for _ in range(8):
      state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
  return state ^ 0xFFFFFFFF


@pytest.mark.parametrize('length', [*range(9), 4095, 4096, 4097, 4099, 8195])
def test_checksum_is_that_of_a_bitwise_one(length):
  data = np.random.default_rng(length).bytes(length)
  assert tfrecord.crc32c(data) == _slow_crc32c(data)
  assert _slow_crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, appendix B.4


def test_same_bytes_as_another_writer(tmp_path):
  other = record_writer.RecordWriter(str(tmp_path / 'other'))
  for record in RECORDS:
    other.write(record)
  other.close()
  assert _records(tmp_path / 'other') == RECORDS
  tfrecord.write(tmp_path / 'ours', RECORDS)
  other_bytes = (tmp_path / 'other').read_bytes()
  assert (tmp_path / 'ours').read_bytes() == other_bytes


def test_gzip_by_suffix_or_by_first_bytes(tmp_path):
  tfrecord.write(tmp_path / 'plain', RECORDS)
  plain = (tmp_path / 'plain').read_bytes()
  tfrecord.write(tmp_path / 'a.gz', RECORDS)
  packed = (tmp_path / 'a.gz').read_bytes()
  assert gzip.decompress(packed) == plain
  for name, data in (('a.gz', packed), ('b', packed), ('unpacked.gz', plain)):
    (tmp_path / name).write_bytes(data)
    assert _records(tmp_path / name) == RECORDS
  (tmp_path / 'two').write_bytes(packed * 2)
  assert _records(tmp_path / 'two') == RECORDS * 2


def test_a_length_that_looks_like_gzip(tmp_path):
  record = bytes(0x8B1F)
  tfrecord.write(tmp_path / 'a', [record])
  assert (tmp_path / 'a').read_bytes()[:2] == b'\x1f\x8b'
  assert _records(tmp_path / 'a') == [record]


SMALL = [b'ab', b'', b'xyz']
STARTS = [0, 18, 34]  # 16 bytes of frame each


def _small(tmp_path):
  tfrecord.write(tmp_path / 'small', SMALL)
  return (tmp_path / 'small').read_bytes()


def test_every_damaged_byte_and_every_cut_is_found(tmp_path):
  data = _small(tmp_path)
  path = tmp_path / 'damaged'
  for i in range(len(data)):
    number = sum(i >= start for start in STARTS) - 1
    where = f'{path}: record {number} at byte {STARTS[number]}: '
    path.write_bytes(data[:i] + bytes([data[i] ^ 16]) + data[i + 1 :])
    with pytest.raises(ValueError) as error:
      _records(path)
    assert str(error.value).startswith(f'{where}checksum of ')
    path.write_bytes(data[:i])
    if i in STARTS:
      assert _records(path) == SMALL[:number]
      continue
    with pytest.raises(ValueError) as error:
      _records(path)
    assert str(error.value).startswith(f'{where}expected ')
    assert 'the file ends after' in str(error.value)


@pytest.mark.parametrize('damage', ['cut', 'flipped'])
def test_damaged_gzip(tmp_path, damage):
  path = tmp_path / 'damaged.gz'
  data = bytearray(gzip.compress(_small(tmp_path)))
  if damage == 'cut':
    del data[-9:]
  else:
    data[len(data) // 2] ^= 16
  path.write_bytes(data)
  with pytest.raises(ValueError, match=f'{path}: record '):
    _records(path)


def test_a_length_beyond_any_record_is_refused(tmp_path):
  head = (1 << 40).to_bytes(8, 'little')
  checksum = tfrecord.masked_crc32c(head).to_bytes(4, 'little')
  for name, pack in (('a', bytes), ('b', gzip.compress)):
    (tmp_path / name).write_bytes(pack(head + checksum + bytes(99)))
    with pytest.raises(ValueError, match=f'{name}: record 0 .* at most'):
      _records(tmp_path / name)
