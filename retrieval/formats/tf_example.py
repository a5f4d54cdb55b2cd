# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Read tf.train.Example without TensorFlow: named lists of bytes or numbers."""

from collections.abc import Collection
from typing import Any

from google.protobuf import message
import numpy as np

Value = list[bytes] | np.ndarray

_DTYPES = {'float_list': np.float32, 'int64_list': np.int64}


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
  # Imported on first use: TFDS takes half a second.
  from tensorflow_datasets.proto import tf_example_pb2

  try:
    features = tf_example_pb2.Example.FromString(data).features.feature
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
