# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""tf.train.Example without TensorFlow: named lists of bytes or numbers."""

from collections.abc import Collection, Mapping, Sequence
import functools
from typing import Any

from google.protobuf import message
import numpy as np

Value = list[bytes] | np.ndarray

_DTYPES = {'float_list': np.float32, 'int64_list': np.int64}


@functools.cache
def _example_class() -> type[Any]:
  # Imported on first use: TFDS takes half a second.
  from tensorflow_datasets.proto import tf_example_pb2

  return tf_example_pb2.Example


def encode(features: Mapping[str, Sequence[bytes] | np.ndarray]) -> bytes:
  """Serialize an example; equal features give equal bytes.

  Args:
    features: name -> a list of bytes, or a [n] array of integers or float32.

  Raises:
    ValueError: for a value that an example cannot hold.
  """
  example = _example_class()()
  example.features.SetInParent()
  for name, value in features.items():
    feature = example.features.feature[name]
    if not isinstance(value, np.ndarray):
      items = feature.bytes_list
    elif value.dtype.kind == 'f':
      items = feature.float_list
    else:
      items = feature.int64_list
    items.SetInParent()
    is_array = isinstance(value, np.ndarray)
    items.value.extend(value.tolist() if is_array else value)
  return example.SerializeToString(deterministic=True)


def decode(
  data: bytes, names: Collection[str] | None = None
) -> dict[str, Value]:
  """Parse an example.

  Args:
    names: features to return, where the example has them; None for all.

  Returns:
    Name -> list of bytes, [n] int64 or [n] float32, sorted by name; an empty
    list for a feature without a kind.

  Raises:
    ValueError: for bytes that are not an example.
  """
  try:
    features = _example_class().FromString(data).features.feature
  except message.DecodeError as e:
    raise ValueError(f'not a tf.train.Example: {e}') from None
  chosen = features if names is None else {*names} & {*features}
  return {name: _value(features[name]) for name in sorted(chosen)}


def _value(feature: Any) -> Value:
  kind = feature.WhichOneof('kind')
  values = getattr(feature, kind).value if kind else ()
  if kind in _DTYPES:
    return np.fromiter(values, _DTYPES[kind], len(values))
  return list(values)
