# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""FarmHash's Fingerprint64, by which ORQA splits training questions (Lee et al. 2019).

TensorFlow's to_hash_bucket_fast is this hash modulo the number of buckets. The same
for ever and on every machine; no cryptographic hash.
"""

from collections.abc import Callable

_MASK = (1 << 64) - 1
_K0 = 0xC3A5C85C97CB3127
_K1 = 0xB492B66FBE98F273
_K2 = 0x9AE16A3B2F90404F
_SEED = 81

_Fetch = Callable[[int], int]


def fingerprint64(data: bytes | str) -> int:
  """Hashes bytes, or the UTF-8 of a string.

  Args:
    data: of any length.

  Returns:
    An unsigned integer of 64 bits.
  """
  if isinstance(data, str):
    data = data.encode()
  if len(data) <= 16:
    return _hash_0_to_16(data)

  def fetch(start: int) -> int:
    return int.from_bytes(data[start : start + 8], 'little')

  if len(data) <= 32:
    return _hash_17_to_32(fetch, len(data))
  if len(data) <= 64:
    return _hash_33_to_64(fetch, len(data))
  return _hash_long(fetch, len(data))


def bucket(text: str, num_buckets: int) -> int:
  """TensorFlow's to_hash_bucket_fast of a string, below `num_buckets`."""
  return fingerprint64(text) % num_buckets


def _rotate(value: int, by: int) -> int:
  """Rotates to the right; `value` may be longer than 64 bits."""
  value &= _MASK
  return ((value >> by) | (value << (64 - by))) & _MASK


def _shift_mix(value: int) -> int:
  value &= _MASK
  return value ^ (value >> 47)


def _mix(u: int, v: int, mul: int) -> int:
  """Hashes 16 bytes, two integers."""
  a = _shift_mix((u ^ v) * mul)
  return _shift_mix((v ^ a) * mul) * mul & _MASK


def _hash_0_to_16(data: bytes) -> int:
  length = len(data)
  mul = _K2 + length * 2
  if length >= 8:
    a = int.from_bytes(data[:8], 'little') + _K2
    b = int.from_bytes(data[-8:], 'little')
    c = _rotate(b, 37) * mul + a
    d = (_rotate(a, 25) + b) * mul
    return _mix(c & _MASK, d & _MASK, mul)
  if length >= 4:
    a = int.from_bytes(data[:4], 'little')
    return _mix(length + (a << 3), int.from_bytes(data[-4:], 'little'), mul)
  if length:
    y = data[0] + (data[length >> 1] << 8)
    z = length + (data[-1] << 2)
    return _shift_mix(y * _K2 ^ z * _K0) * _K2 & _MASK
  return _K2


def _hash_17_to_32(fetch: _Fetch, length: int) -> int:
  mul = _K2 + length * 2
  a, b = fetch(0) * _K1, fetch(8)
  c, d = fetch(length - 8) * mul, fetch(length - 16) * _K2
  y = _rotate(a + b, 43) + _rotate(c, 30) + d
  z = a + _rotate(b + _K2, 18) + c
  return _mix(y & _MASK, z & _MASK, mul)


def _hash_33_to_64(fetch: _Fetch, length: int) -> int:
  mul = _K2 + length * 2
  a, b = fetch(0) * _K2, fetch(8)
  c, d = fetch(length - 8) * mul, fetch(length - 16) * _K2
  y = (_rotate(a + b, 43) + _rotate(c, 30) + d) & _MASK
  z = _mix(y, (a + _rotate(b + _K2, 18) + c) & _MASK, mul)
  e, f = fetch(16) * mul, fetch(24)
  g = (y + fetch(length - 32)) * mul
  h = (z + fetch(length - 24)) * mul
  u = _rotate(e + f, 43) + _rotate(g, 30) + h
  v = e + _rotate(f + a, 18) + g
  return _mix(u & _MASK, v & _MASK, mul)


def _weak(fetch: _Fetch, at: int, a: int, b: int) -> tuple[int, int]:
  """Hashes the 32 bytes from `at` with two seeds."""
  w, x, y, z = (fetch(at + i) for i in (0, 8, 16, 24))
  a += w
  b = _rotate(b + a + z, 21)
  c = a
  a += x + y
  return (a + z) & _MASK, (b + _rotate(a, 44) + c) & _MASK


def _hash_long(fetch: _Fetch, length: int) -> int:
  """Hashes more than 64 bytes, 64 at a time; the last 64 close it."""
  y = (_SEED * _K1 + 113) & _MASK
  z = _shift_mix(y * _K2 + 113) * _K2 & _MASK
  x = (_SEED * _K2 + fetch(0)) & _MASK
  v, w = (0, 0), (0, 0)

  def fold(at, x, y, z, v, w, mul, factor):
    x = _rotate(x + y + v[0] + fetch(at + 8), 37) * mul & _MASK
    y = _rotate(y + v[1] + fetch(at + 48), 42) * mul
    x ^= w[1] * factor & _MASK
    y = (y + v[0] * factor + fetch(at + 40)) & _MASK
    z = _rotate(z + w[0], 33) * mul & _MASK
    v = _weak(fetch, at, v[1] * mul, x + w[0])
    w = _weak(fetch, at + 32, z + w[1], y + fetch(at + 16))
    return z, y, x, v, w  # x and z change places

  for at in range(0, (length - 1) // 64 * 64, 64):
    x, y, z, v, w = fold(at, x, y, z, v, w, _K1, 1)
  mul = _K1 + ((z & 0xFF) << 1)
  w_0 = w[0] + ((length - 1) & 63)
  v_0 = v[0] + w_0
  w = ((w_0 + v_0) & _MASK, w[1])
  v = (v_0 & _MASK, v[1])
  x, y, z, v, w = fold(length - 64, x, y, z, v, w, mul, 9)
  return _mix(
    (_mix(v[0], w[0], mul) + _shift_mix(y) * _K0 + z) & _MASK,
    (_mix(v[1], w[1], mul) + x) & _MASK,
    mul,
  )
