# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""GGUF files: what was written is read, as far as its bits go."""

import gguf
import numpy as np
import pytest

from retrieval.formats import gguf_files


@pytest.fixture(scope='module')
def arrays():
  rng = np.random.default_rng(0)
  return {
    'whole': rng.standard_normal((3, 5)).astype(np.float32),
    'half': rng.standard_normal((2, 8)).astype(np.float16),
    'eighth': rng.standard_normal((4, 64)).astype(np.float32),
    'quarter': rng.standard_normal((4, 64)).astype(np.float32),
  }


@pytest.fixture(scope='module')
def path(arrays, tmp_path_factory):
  path = tmp_path_factory.mktemp('gguf') / 'model.gguf'
  writer = gguf.GGUFWriter(path, 'llama')
  writer.add_block_count(2)
  writer.add_token_list(['a', 'ü'])
  kinds = gguf.GGMLQuantizationType
  for name, kind in (('eighth', kinds.Q8_0), ('quarter', kinds.Q4_1)):
    data = gguf.quants.quantize(arrays[name], kind)
    writer.add_tensor(name, data, raw_dtype=kind)
  for name in ('whole', 'half'):
    writer.add_tensor(name, arrays[name])
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return path


def test_reads_settings_and_tensors(path, arrays):
  file = gguf_files.GgufFile(path)
  assert file.settings['general.architecture'] == 'llama'
  assert file.settings['llama.block_count'] == 2
  assert file.settings['tokenizer.ggml.tokens'] == ['a', 'ü']
  assert {*file} == {*arrays} and len(file) == 4
  for name, bound in (('eighth', 0.02), ('quarter', 0.25)):
    assert file[name].shape == (4, 64) and file[name].dtype == np.float32
    off = np.abs(file[name] - arrays[name]).max()
    assert 0 < off < bound  # half of a step of the widest block, or so
  for name in ('whole', 'half'):
    np.testing.assert_array_equal(file[name], arrays[name])


def test_what_is_no_file_is_named(path, tmp_path):
  with pytest.raises(FileNotFoundError):
    gguf_files.GgufFile(tmp_path / 'none.gguf')
  other = tmp_path / 'other.gguf'
  other.write_bytes(b'PK34')
  with pytest.raises(ValueError, match=r"other.gguf: begins with b'PK34'"):
    gguf_files.GgufFile(other)
  for size in (20, 150, path.stat().st_size - 40):
    other.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match='other.gguf: damaged or cut'):
      gguf_files.GgufFile(other)


# Bytes to find, how far after them a number stands, its bytes and its new value.
HOSTILE = {
  'number_of_tensors': (b'GGUF', 4, 8, 1 << 60),
  'items_of_a_list': (b'tokenizer.ggml.tokens', 8, 8, 5000),
  'list_in_a_list': (b'tokenizer.ggml.tokens', 4, 4, 9),
  'kind_of_a_setting': (b'llama.block_count', 0, 4, 77),
  'dimensions': (b'whole', 0, 4, 1 << 20),
  'two_large_dimensions': (b'whole', 4, 16, (1 << 40 << 64) + (1 << 40)),
  'kind_of_a_tensor': (b'whole', 20, 4, 999),
  'beyond_the_file': (b'whole', 24, 8, 1 << 20),
}


@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_numbers_are_refused(path, tmp_path, name):
  place, after, size, value = HOSTILE[name]
  data = bytearray(path.read_bytes())
  at = data.find(place) + len(place) + after
  data[at : at + size] = value.to_bytes(size, 'little')
  (tmp_path / 'x.gguf').write_bytes(data)
  with pytest.raises(ValueError, match=r'x\.gguf: ') as error:
    gguf_files.GgufFile(tmp_path / 'x.gguf')
  assert '\n' not in str(error.value)
