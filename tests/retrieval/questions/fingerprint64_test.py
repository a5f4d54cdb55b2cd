# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Fingerprint64 is FarmHash's, whose own values stand here."""

import pytest

from retrieval.questions import fingerprint64

_TEXT = (
  'who wrote the origin of species, and when was it first published in london? '
) * 3

# Of the first so many characters, by FarmHash 1.1: each class of lengths and its
# borders.
_VALUES = {
  0: 11160318154034397263,
  1: 12348292010337643139,
  3: 18111496945197663903,
  4: 4609275139362835745,
  7: 1530059786239992167,
  8: 17754293722772710698,
  16: 16949404967517093385,
  17: 4914170741705078579,
  32: 13780775025484080744,
  33: 9876829990215336781,
  64: 9302127037086416800,
  65: 3920334672882729014,
  128: 5119647051415699979,
  129: 18339706244873420731,
  200: 13940757683365748614,
}


@pytest.mark.parametrize('length', _VALUES)
def test_is_farmhash(length):
  assert fingerprint64.fingerprint64(_TEXT[:length]) == _VALUES[length]


def test_strings_are_hashed_as_utf8():
  text = 'o\u00f9 est n\u00e9 moli\u00e8re ?'
  assert fingerprint64.fingerprint64(text) == 13809448554737646695
  assert fingerprint64.fingerprint64(text.encode()) == 13809448554737646695


def test_bucket():
  assert fingerprint64.bucket(_TEXT[:64], 100_000) == 16800
