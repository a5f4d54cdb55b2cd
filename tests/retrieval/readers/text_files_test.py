# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Text files are opened in one way; what is read at once is bounded."""

import bz2
import gzip
import lzma
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from retrieval.readers import base, text_files

TEXT = b'\xef\xbb\xbfa\xc3\xa9 \r\n\r\nb\xe2\x80\xa8\r c\n d'
_SKIPPED = b'\x5e\x2a\x4d\x18\x04\0\0\0none'  # a frame, as of pzstd
LINES = ['a\u00e9 ', '', 'b\u2028\r c', ' d']


def _zst(data):
  return pa.compress(data, codec='zstd', asbytes=True)


def _write(path, data):
  path.write_bytes(data)
  return path


@pytest.mark.parametrize(
  ('name', 'pack'),
  [
    ('a.txt', bytes),
    ('a.TXT.GZ', gzip.compress),
    ('a.txt.bz2', bz2.compress),
    ('a.txt.xz', lzma.compress),
    ('a.txt', gzip.compress),  # the bytes tell
    # frames, as of zstd with many threads
    ('a.txt.zst', lambda x: _zst(x[:9]) + _zst(x[9:])),
    ('a.gz', lambda x: gzip.compress(x[:9]) + gzip.compress(x[9:])),
    ('a.bz2', lambda x: bz2.compress(x[:9]) + bz2.compress(x[9:])),
    ('a.xz', lambda x: lzma.compress(x[:9]) + bytes(8) + lzma.compress(x[9:])),
    ('a.zst', lambda x: _SKIPPED + _zst(x[:9]) + _SKIPPED + _zst(x[9:])),
  ],
)
def test_marks_line_ends_and_packing(tmp_path, name, pack, monkeypatch):
  path = _write(tmp_path / name, pack(TEXT))
  assert [line for _, line in text_files.lines(path)] == LINES
  kept = [(f'{path}:{i + 1}', LINES[i]) for i in (0, 2, 3)]
  assert [*text_files.text_lines(path)] == kept
  assert text_files.read(path) == '\n'.join(LINES)
  for size in (1, 2, 5, 99):
    monkeypatch.setattr(text_files, '_STEP', size)
    found = ''.join(text_files.pieces(path))
    assert found.replace('\r\n', '\n') == '\n'.join(LINES)


def test_a_long_line_is_a_fault_and_the_next_one_is_read(tmp_path):
  path = _write(tmp_path / 'a', b'12345\r\n123456\n\n1\n1234567890')
  found = [*text_files.lines(path, limit=5)]
  assert [x for _, x in found if isinstance(x, str)] == ['12345', '', '1']
  assert [where for where, x in found if isinstance(x, base.BadRecord)] == [
    f'{path}:2',
    f'{path}:5',
  ]
  with pytest.raises(ValueError, match='a:2: .* 5 bytes'):
    [*text_files.text_lines(path, limit=5)]
  with pytest.raises(ValueError, match='a: .* 20 bytes'):
    text_files.read(path, limit=20)
  for line in (b'\xef\xbb\xbf1234567', b'12345\r\r789', b'\xef\xbb\xbf12345\n'):
    _write(path, line)
    bad = [isinstance(x, base.BadRecord) for _, x in text_files.lines(path, 5)]
    assert bad == [not line.endswith(b'\n')]


@pytest.mark.parametrize('read', [text_files.read, text_files.text_lines])
def test_memory_is_bounded_whatever_a_small_file_unpacks_to(tmp_path, read):
  path = _write(tmp_path / 'a.gz', gzip.compress(b' ' * (1 << 26)))
  tracemalloc.start()
  with pytest.raises(ValueError, match='bytes'):
    [*read(path, 1 << 20)]
  _, high = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert high < 1 << 23


@pytest.mark.parametrize(
  ('data', 'message'),
  [
    (b'a\nb\xff', r'a:2: byte( 1)? \(0xff\)'),
    ('\ufeffaa'.encode('utf-16-le'), 'a:1: .*UTF-16'),
    ('a\nb'.encode('utf-16-le'), r'a(:1)?: .*NUL'),
    (b'a\nb\0', r'a(:2)?: .*NUL'),
    (gzip.compress(b'a', mtime=0)[:-1], 'a: .*to its end'),
    (gzip.compress(b'a', mtime=0) + b'b', 'a: .*to its end'),
    (_zst(b'a' * 99)[:-3], 'a: .*to its end'),
  ],
)
def test_what_is_no_text_is_named(tmp_path, data, message):
  path = _write(tmp_path / 'a', data)
  with pytest.raises(ValueError, match=message) as error:
    [*text_files.text_lines(path)]
  assert '\n' not in str(error.value)
  with pytest.raises(ValueError, match=message):
    text_files.read(path)


@pytest.mark.parametrize('pack', [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize(
  'damage', ['cut', 'flipped', 'start', 'second stream', 'cut second']
)
def test_damaged_archive(tmp_path, pack, damage):
  text = np.random.default_rng(0).bytes(9999).hex()
  data = bytearray(pack(text.encode()))
  if damage == 'cut':
    del data[len(data) // 2 :]
  elif damage == 'start':
    data[10] = 255  # gzip: a block of no type
  elif damage == 'second stream':
    data += bytes([data[0] ^ 1]) + data[1:]
  elif damage == 'cut second':
    data += data[: len(data) // 2]
  else:
    data[len(data) // 2] ^= 255
  with pytest.raises(ValueError, match='aa: .*to its end'):
    text_files.read(_write(tmp_path / 'aa', data))


def test_names_of_other_archives(tmp_path):
  for name in ('a.zst', 'a.gz', 'a.XZ'):
    path = _write(tmp_path / name, b'plain')
    with pytest.raises(ValueError, match=name):
      text_files.read(path)
  assert text_files.read(_write(tmp_path / 'b.gz', b'')) == ''
  assert str(text_files.unpacked('a/B.v2.JSONL.gz')) == 'b.v2.jsonl'
