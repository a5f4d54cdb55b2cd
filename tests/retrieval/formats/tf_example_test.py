# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""tf.train.Example against the protobuf runtime and TensorFlow's own message."""

from google.protobuf import message
import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
from tensorflow_datasets.proto import tf_example_pb2

from retrieval.formats import tf_example

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


def _oracle(features):
  example = tf_example_pb2.Example()
  example.features.SetInParent()
  for name, value in features.items():
    feature = example.features.feature[name]
    if isinstance(value, list):
      feature.bytes_list.SetInParent()
      feature.bytes_list.value.extend(value)
    elif value.dtype == np.int64:
      feature.int64_list.SetInParent()
      feature.int64_list.value.extend(value.tolist())
    else:
      feature.float_list.SetInParent()
      feature.float_list.value.extend(value.tolist())
  return example


def _plain(features):
  """Comparable values: NaN equals NaN, whatever its bits."""

  def plain(value):
    if isinstance(value, list):
      return value
    if value.dtype.kind == 'f':
      value = np.where(np.isnan(value), np.float32(np.nan), value)
    return value.dtype, value.tobytes()

  return {name: plain(value) for name, value in features.items()}


def _plain_oracle(example):
  lists = {
    'bytes_list': list,
    'int64_list': lambda x: np.asarray(x, np.int64),
    'float_list': lambda x: np.asarray(x, np.float32),
    None: lambda x: [],
  }
  values = {}
  for name, feature in example.features.feature.items():
    kind = feature.WhichOneof('kind')
    found = getattr(feature, kind).value if kind else ()
    values[name] = lists[kind](found)
  return _plain(values)


@_SETTINGS
@hypothesis.given(_FEATURES)
def test_same_bytes_as_protobuf_and_back(features):
  data = tf_example.encode(features)
  assert _plain(tf_example.decode(data)) == _plain(features)
  parsed = tf_example_pb2.Example.FromString(data)
  assert _plain_oracle(parsed) == _plain(features)
  for name, value in features.items():  # The runtime has its own order.
    expected = _oracle({name: value}).SerializeToString()
    assert tf_example.encode({name: value}) == expected


def test_kinds_and_order():
  features = {
    'b': [b'\xff', b'x' * 300],
    'a': np.asarray([-1, 0, 127, 128, 1 << 62], np.int64),
    'ü': np.asarray([0.5], np.float32),
  }
  data = tf_example.encode(features)
  assert data == tf_example.encode(dict(reversed(features.items())))
  found = tf_example.decode(data)
  assert found['a'].tolist() == features['a'].tolist()
  assert list(found) == ['a', 'b', 'ü']
  assert found['a'].dtype == np.int64 and found['ü'].dtype == np.float32
  small = tf_example.encode({'a': np.asarray([3, 2], np.uint16)})
  assert tf_example.decode(small)['a'].tolist() == [3, 2]


def test_only_named_features():
  data = tf_example.encode({'a': [b'1'], 'b': [b'2']})
  assert tf_example.decode(data, ('b', 'c')) == {'b': [b'2']}
  damaged = data.replace(b'\n\x011', b'\n\x091')  # a length inside a
  for names in (None, ('a',), ('b',)):
    with pytest.raises(ValueError, match='^not a tf.train.Example: .*pars'):
      tf_example.decode(damaged, names)


def _length(number, data):
  return bytes([number << 3 | 2, len(data)]) + data


def _example(*features):
  entries = (
    _length(1, _length(1, name) + _length(2, data)) for name, data in features
  )
  return _length(1, b''.join(entries))


MINUS_TWO = b'\xfe' + b'\xff' * 8 + b'\x01'
LONG = b'\xfe' + b'\xff' * 8 + b'\x7f'
FORMS = {
  'integers one by one': _example(
    (b'a', _length(3, b'\x08\x05\x08' + MINUS_TWO))
  ),
  'integers both ways': _example(
    (
      b'a',
      _length(3, b'\x08\x05' + _length(1, b'\x07' + MINUS_TWO) + b'\x08\x09'),
    )
  ),
  'floats one by one': _example(
    (b'a', _length(2, b'\x0d\0\0\x80\x3f\x0d\0\0\0\x40'))
  ),
  'long form of a number': _example((b'a', _length(3, b'\x08\x85\x80\x00'))),
  'more than 64 bits': _example(
    (b'a', _length(3, b'\x08' + LONG + _length(1, LONG + LONG)))
  ),
  'no kind': _example((b'a', b'')),
  'no name': _length(1, _length(1, _length(2, _length(1, _length(1, b'x'))))),
  'no feature': _length(1, _length(1, _length(1, b'a'))),
  'an unknown field in an entry': _length(
    1, _length(1, b'\x08\x01' + _length(2, _length(1, _length(1, b'x'))))
  ),
  'nothing': b'',
  'features twice': _example((b'a', _length(1, _length(1, b'x'))))
  + _example((b'b', _length(1, _length(1, b'y')))),
  'a name twice': _example(
    (b'a', _length(1, _length(1, b'x'))), (b'a', _length(1, _length(1, b'y')))
  ),
  'a list in two parts': _example(
    (b'a', _length(1, _length(1, b'x')) + _length(1, _length(1, b'y')))
  ),
  'a feature in two parts': _length(
    1,
    _length(1, _length(1, b'a') + 2 * _length(2, _length(1, _length(1, b'x')))),
  ),
  'the last kind counts': _example(
    (b'a', _length(1, _length(1, b'x')) + _length(3, b'\x08\x05'))
  ),
  'unknown fields': _length(1, b'\x10\x01' + _length(9, b'??'))
  + b'\x49'
  + bytes(8)
  + b'\x55'
  + bytes(4)
  + b'\x08\x01',
}


@pytest.mark.parametrize('form', FORMS)
def test_every_form_of_the_wire(form):
  data = FORMS[form]
  oracle = tf_example_pb2.Example.FromString(data)
  assert _plain(tf_example.decode(data)) == _plain_oracle(oracle)


@_SETTINGS
@hypothesis.given(
  features=_FEATURES,
  at=st.floats(0, 1),
  change=st.sampled_from(['cut', 'byte', 'insert', 'join']),
  byte=st.integers(0, 255),
)
def test_damaged_bytes_read_as_protobuf_does(features, at, change, byte):
  data = tf_example.encode(features)
  i = int(at * len(data))
  data = {
    'cut': data[:i],
    'byte': data[:i] + bytes([byte]) + data[i + 1 :],
    'insert': data[:i] + bytes([byte]) + data[i:],
    'join': data + data,
  }[change]
  try:
    expected = _plain_oracle(tf_example_pb2.Example.FromString(data))
  except message.DecodeError:
    expected = None
  try:
    found = _plain(tf_example.decode(data))
  except ValueError as error:
    assert str(error).startswith('not a tf.train.Example: ')
    assert '\n' not in str(error)
    assert expected is None
  else:
    assert expected is None or found == expected


@pytest.mark.parametrize(
  'data',
  [
    b'\x0a\x05ab',
    b'\xff' * 12,
    b'\x00\x00',
    b'The first block.',
    _example((b'a', _length(3, _length(1, b'\xff')))),
    _example((b'a', _length(3, _length(1, b'\xff' * 10 + b'\1')))),
    _example((b'a', _length(2, _length(1, b'abc')))),
    _example((b'\xff', b'')),
  ],
)
def test_bytes_that_are_no_example(data):
  with pytest.raises(ValueError, match='^not a tf.train.Example: ') as error:
    tf_example.decode(data)
  assert '\n' not in str(error.value)
