# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Serialized tf.train.Example."""

import numpy as np
from tensorflow_datasets.proto import tf_example_pb2


def encode(features):
  """Serialize lists of bytes and arrays of numbers, by name."""
  example = tf_example_pb2.Example()
  example.features.SetInParent()
  kinds = {'f': 'float_list', 'i': 'int64_list', 'u': 'int64_list'}
  for name, value in features.items():
    is_array = isinstance(value, np.ndarray)
    kind = kinds[value.dtype.kind] if is_array else 'bytes_list'
    items = getattr(example.features.feature[name], kind)
    items.SetInParent()
    items.value.extend(value.tolist() if is_array else value)
  return example.SerializeToString()
