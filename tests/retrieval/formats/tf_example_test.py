# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""tf.train.Example as protobuf writes it."""

import numpy as np
import pytest

from retrieval.formats import tf_example
from tests.retrieval.formats import examples


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


@pytest.mark.parametrize('data', [b'\x0a\x05ab', b'The first block.'])
def test_bytes_that_are_no_example(data):
  with pytest.raises(ValueError, match='^not a tf.train.Example: ') as error:
    tf_example.decode(data)
  assert '\n' not in str(error.value)
