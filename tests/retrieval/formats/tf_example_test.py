# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""tf.train.Example as protobuf writes it."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from retrieval.formats import tf_example
from tests.retrieval.formats import examples

_INT64 = st.one_of(st.integers(-2, 300), st.integers(-(1 << 63), (1 << 63) - 1))
_NAMES = st.text(st.characters(exclude_categories=['Cs']), max_size=3)
_VALUES = st.one_of(
  st.lists(st.binary(max_size=200), max_size=4),
  st.lists(_INT64, max_size=20).map(lambda x: np.asarray(x, np.int64)),
  st.lists(st.floats(width=32), max_size=5).map(
    lambda x: np.asarray(x, np.float32)
  ),
)
_FEATURES = st.dictionaries(_NAMES, _VALUES, max_size=4)
_SETTINGS = hypothesis.settings(max_examples=100, deadline=None)


def _plain(features):
  """Comparable values: NaN equals NaN, whatever its bits."""

  def plain(value):
    if isinstance(value, list):
      return value
    if value.dtype.kind == 'f':
      value = np.where(np.isnan(value), np.float32(np.nan), value)
    return value.dtype, value.tobytes()

  return {name: plain(value) for name, value in features.items()}


@_SETTINGS
@hypothesis.given(_FEATURES)
def test_what_was_written_is_read(features):
  data = examples.encode(features)
  assert _plain(tf_example.decode(data)) == _plain(features)


def test_kinds_and_order():
  features = {
    'b': [b'\xff', b'x' * 300],
    'a': np.asarray([-1, 0, 127, 128, 1 << 62], np.int64),
    'ü': np.asarray([0.5], np.float32),
  }
  data = examples.encode(features)
  found = tf_example.decode(data)
  assert found['a'].tolist() == features['a'].tolist()
  assert list(found) == ['a', 'b', 'ü']
  assert found['a'].dtype == np.int64 and found['ü'].dtype == np.float32


def test_only_named_features():
  data = examples.encode({'a': [b'1'], 'b': [b'2']})
  assert tf_example.decode(data, ('b', 'c')) == {'b': [b'2']}
  damaged = data.replace(b'\n\x011', b'\n\x091')  # a length inside a
  for names in (None, ('a',), ('b',)):
    with pytest.raises(ValueError, match='^not a tf.train.Example: .*pars'):
      tf_example.decode(damaged, names)


def _length(number, data):
  return bytes([number << 3 | 2, len(data)]) + data


def test_a_feature_without_a_kind_and_numbers_one_by_one():
  for name, feature, expected in (
    (b'a', b'', []),
    (b'b', _length(3, b'\x08\x05\x08\x06'), [5, 6]),
  ):
    entry = _length(1, name) + _length(2, feature)
    data = _length(1, _length(1, entry))
    assert [*tf_example.decode(data)[name.decode()]] == expected


@pytest.mark.parametrize('data', [b'\x0a\x05ab', b'The first block.'])
def test_bytes_that_are_no_example(data):
  with pytest.raises(ValueError, match='^not a tf.train.Example: ') as error:
    tf_example.decode(data)
  assert '\n' not in str(error.value)
