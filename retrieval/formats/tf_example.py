# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""tf.train.Example without TensorFlow: named lists of bytes or numbers.

The message is Example{Features features = 1}, Features{map<string, Feature>
feature = 1}, Feature{BytesList = 1 or FloatList = 2 or Int64List = 3}, and each
list is {repeated value = 1}, in the wire format of protocol buffers
(protobuf.dev/programming-guides/encoding).
"""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

Value = list[bytes] | np.ndarray

_BYTES, _FLOAT, _INT64 = 1, 2, 3  # fields of Feature
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5  # wire types
_MAX_VARINT_BYTES = 10
_SHIFTS = 7 * np.arange(_MAX_VARINT_BYTES, dtype=np.uint64)


def encode(features: Mapping[str, Sequence[bytes] | np.ndarray]) -> bytes:
  """Serializes an example; equal features give equal bytes.

  Args:
    features: name -> a list of bytes, or a [n] array of integers or float32.

  Returns:
    The message.

  Raises:
    ValueError: for a value that an example cannot hold.
  """
  entries = (
    _message(1, _message(1, name.encode()) + _message(2, _feature(name, value)))
    for name, value in sorted(features.items())
  )
  return _message(1, b''.join(entries))


def decode(
  data: bytes, names: Collection[str] | None = None
) -> dict[str, Value]:
  """Parses an example.

  Args:
    data: the message.
    names: features to return, if they are there; None for all.

  Returns:
    Name -> list of bytes, [n] int64 or [n] float32; a feature of no kind is [].

  Raises:
    ValueError: for bytes that are no example.
  """
  found: dict[str, Value] = {}
  try:
    for entry in _parts(memoryview(data), 1):
      for name, feature in _entries(entry):
        if names is None or name in names:
          found[name] = _value(feature)
  except ValueError as e:
    raise ValueError(f'not a tf.train.Example: {e}') from None
  return found


def _entries(features: memoryview) -> Iterator[tuple[str, bytes]]:
  for entry in _parts(features, 1):
    name, feature, is_known = '', b'', True
    for number, wire_type, value in fields(entry):
      if (number, wire_type) == (1, _LENGTH):
        name = str(value, 'utf-8')
      elif (number, wire_type) == (2, _LENGTH):
        feature += value  # repeated messages merge
      else:
        is_known = False
    if is_known:  # else none to protocol buffers' Python runtime either
      yield name, feature


def _value(feature: bytes) -> Value:
  kind, lists = 0, b''
  for number, wire_type, value in fields(memoryview(feature)):
    if wire_type == _LENGTH and number in (_BYTES, _FLOAT, _INT64):
      # The last kind counts; lists of one kind merge.
      lists = lists + value if number == kind else bytes(value)
      kind = number
  if kind == _FLOAT:
    return _floats(memoryview(lists))
  if kind == _INT64:
    return _integers(memoryview(lists))
  return [bytes(value) for value in _parts(memoryview(lists), 1)]


def _floats(data: memoryview) -> np.ndarray:
  parts = [b'']
  for number, wire_type, value in fields(data):
    if number == 1 and wire_type in (_LENGTH, _FIXED32):
      parts.append(value)
  joined = b''.join(parts)
  if len(joined) % 4:
    raise ValueError(f'{len(joined)} bytes of floats are no multiple of 4.')
  return np.frombuffer(joined, '<f4').astype(np.float32)


def _integers(data: memoryview) -> np.ndarray:
  parts = [np.zeros(0, np.uint64)]
  for number, wire_type, value in fields(data):
    if (number, wire_type) == (1, _LENGTH):
      parts.append(_unpack_varints(value))
    elif (number, wire_type) == (1, _VARINT):
      parts.append(np.asarray([value], np.uint64))
  return np.concatenate(parts).view(np.int64)


def _parts(data: memoryview, number: int) -> Iterator[memoryview]:
  """The strings or messages of one field."""
  for found, wire_type, value in fields(data):
    if (found, wire_type) == (number, _LENGTH):
      yield value


def fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
  """Yields (field number, wire type, value) of a message.

  Raises:
    ValueError: for bytes that are no message.
  """
  at = 0
  while at < len(data):
    tag, at = varint(data, at)
    number, wire_type = tag >> 3, tag & 7
    if not number:
      raise ValueError('a field has number 0.')
    if wire_type == _VARINT:
      value, at = varint(data, at)
    elif wire_type in (_FIXED64, _LENGTH, _FIXED32):
      size = 8 if wire_type == _FIXED64 else 4
      if wire_type == _LENGTH:
        size, at = varint(data, at)
      value = data[at : at + size]
      at += size
      if at > len(data):
        raise ValueError(
          f'field {number} has {size} bytes, but only {len(value)} follow.'
        )
    else:
      raise ValueError(f'field {number} is of wire type {wire_type}.')
    yield number, wire_type, value


def varint(data: memoryview, at: int) -> tuple[int, int]:
  """Returns the number at a byte and where the next byte is.

  Raises:
    ValueError: when it has no end.
  """
  value = 0
  for i, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
    value |= (byte & 127) << 7 * i
    if byte < 128:
      return value & 0xFFFFFFFFFFFFFFFF, at + i + 1
  raise ValueError(f'the number at byte {at} has no end.')


def _unpack_varints(data: memoryview) -> np.ndarray:
  """Parses numbers that stand side by side: [n] uint64."""
  raw = np.frombuffer(data, np.uint8)
  last = np.flatnonzero(raw < 128)
  if not len(raw):
    return np.zeros(0, np.uint64)
  if not len(last) or last[-1] != len(raw) - 1:
    raise ValueError('the last number of a list has no end.')
  first = np.concatenate([[0], last[:-1] + 1])
  sizes = last - first + 1
  if sizes.max() > _MAX_VARINT_BYTES:
    raise ValueError(f'a number has {sizes.max()} bytes, expected at most 10.')
  places = np.arange(len(raw)) - np.repeat(first, sizes)
  parts = (raw & 127).astype(np.uint64) << _SHIFTS[places]
  return np.bitwise_or.reduceat(parts, first)


def _pack_varints(values: np.ndarray) -> bytes:
  """Writes [n] int64 numbers side by side; negative ones take 10 bytes."""
  parts = values.view(np.uint64)[:, None] >> _SHIFTS
  used = parts != 0
  used[:, 0] = True
  low = (parts & 127).astype(np.uint8)
  low[:, :-1] |= used[:, 1:].astype(np.uint8) << 7
  return low[used].tobytes()


def _message(number: int, data: bytes) -> bytes:
  """One field that holds bytes, a string or a message."""
  return b''.join((_TAGS[number], _size(len(data)), data))


def _size(value: int) -> bytes:
  if value < 128:
    return _ONE_BYTE[value]
  out = bytearray()
  while value > 127:
    out.append(value & 127 | 128)
    value >>= 7
  out.append(value)
  return bytes(out)


_ONE_BYTE = [bytes([i]) for i in range(128)]
_TAGS = [bytes([number << 3 | _LENGTH]) for number in range(4)]


def _feature(name: str, value: Sequence[bytes] | np.ndarray) -> bytes:
  if not isinstance(value, np.ndarray):
    if isinstance(value, (bytes, str)) or not all(
      isinstance(v, bytes) for v in value
    ):
      raise ValueError(
        f'feature {name!r}: expected an array or a list of bytes, found '
        f'{value!r:.80}.'
      )
    return _message(_BYTES, b''.join(_message(1, v) for v in value))
  if value.ndim == 1 and value.dtype.kind in 'iu':
    if np.can_cast(value.dtype, np.int64):
      numbers = np.ascontiguousarray(value, np.int64)
      return _message(_INT64, _packed(_pack_varints(numbers)))
  if value.ndim == 1 and value.dtype.kind == 'f':
    if np.can_cast(value.dtype, np.float32):
      return _message(_FLOAT, _packed(value.astype('<f4').tobytes()))
  raise ValueError(
    f'feature {name!r}: expected [n] int64 or float32, found '
    f'{list(value.shape)} {value.dtype}.'
  )


def _packed(data: bytes) -> bytes:
  """A list of numbers; an empty one has no field."""
  return _message(1, data) if data else b''
