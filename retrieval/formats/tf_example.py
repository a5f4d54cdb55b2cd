# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""tf.train.Example without TensorFlow: named lists of bytes or numbers."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from google.protobuf import message
import numpy as np

from retrieval.formats import protos

Value = list[bytes] | np.ndarray

_DTYPES = {'float_list': np.float32, 'int64_list': np.int64}


def _example_class() -> type[Any]:
  """The messages of tensorflow/core/example/{example,feature}.proto."""
  lists = {
    'bytes_list': protos.describe('BytesList', {'value': 'repeated bytes 1'}),
    'float_list': protos.describe('FloatList', {'value': 'repeated float 1'}),
    'int64_list': protos.describe('Int64List', {'value': 'repeated int64 1'}),
  }
  kinds = enumerate(lists.items(), start=1)
  feature = protos.describe(
    'Feature', {kind: f'.tf.{x.name} {number}' for number, (kind, x) in kinds}
  )
  feature.oneof_decl.add(name='kind')
  for field in feature.field:
    field.oneof_index = 0
  features = protos.describe(
    'Features', {'feature': 'repeated .tf.Features.FeatureEntry 1'}
  )
  entry = protos.describe(
    'FeatureEntry', {'key': 'string 1', 'value': '.tf.Feature 2'}
  )
  entry.options.map_entry = True
  features.nested_type.append(entry)
  example = protos.describe('Example', {'features': '.tf.Features 1'})
  messages = (*lists.values(), feature, features, example)
  return protos.make_classes('tf', *messages)['tf.Example']


_Example = _example_class()


def encode(features: Mapping[str, Sequence[bytes] | np.ndarray]) -> bytes:
  """Serialize an example; equal features give equal bytes.

  Args:
    features: name -> a list of bytes, or a [n] array of integers or float32.

  Raises:
    ValueError: for a value that an example cannot hold.
  """
  example = _Example()
  example.features.SetInParent()
  for name, value in features.items():
    kind = _kind(name, value)
    found = getattr(example.features.feature[name], kind)
    found.SetInParent()
    found.value.extend(value.tolist() if kind in _DTYPES else value)
  return example.SerializeToString(deterministic=True)


def _kind(name: str, value: Sequence[bytes] | np.ndarray) -> str:
  """Name of the list that holds a value."""
  if isinstance(value, np.ndarray):
    if value.ndim == 1 and value.dtype.kind in 'iuf':
      kind = 'float_list' if value.dtype.kind == 'f' else 'int64_list'
      if np.can_cast(value.dtype, _DTYPES[kind]):
        return kind
    raise ValueError(
      f'feature {name!r}: expected [n] int64 or float32, found '
      f'{list(value.shape)} {value.dtype}.'
    )
  if isinstance(value, (bytes, str)) or not all(
    isinstance(v, bytes) for v in value
  ):
    raise ValueError(
      f'feature {name!r}: expected an array or a list of bytes, found '
      f'{value!r:.80}.'
    )
  return 'bytes_list'


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
    features = _Example.FromString(data).features.feature
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
