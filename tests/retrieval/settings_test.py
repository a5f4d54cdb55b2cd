# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of retrieval/settings.py."""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Annotated, Literal

import pytest

from retrieval import settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
  """A section."""

  rate: settings.Rate = 0.0
  shares: tuple[settings.Share, ...] = (0.5,)

  __post_init__ = settings.check


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
  """A section with a section."""

  size: settings.Size
  seed: settings.Seed = 0
  scale: float = 1.0
  clip: Annotated[float, settings.Range(0, float('inf'))] = 1.0
  rule: Literal['a', 'b'] = 'a'
  name: str = ''
  on: bool = False
  limit: settings.Positive | None = None
  pair: tuple[int, str] = (1, 'x')
  ids: Sequence[settings.Count] = ()
  scales: Mapping[str, settings.NotNegative] = dataclasses.field(
    default_factory=dict
  )
  inner: Inner = Inner()

  def __post_init__(self):
    settings.check(self)
    if self.size == self.seed:
      raise ValueError('size and seed are equal.')


@pytest.mark.parametrize(
  'field',
  [
    {'size': 0},
    {'size': True},
    {'size': 2.0},
    {'seed': 10**30},
    {'scale': float('nan')},
    {'scale': float('inf')},
    {'clip': -1.0},
    {'rule': 'c'},
    {'name': 3},
    {'on': 1},
    {'limit': 0.0},
    {'pair': (1,)},
    {'ids': (1, -1)},
    {'ids': 'ab'},
    {'scales': {'part': -1.0}},
    {'scales': 3},
  ],
)
def test_refuses_a_value_by_name(field):
  (name,) = field
  with pytest.raises(ValueError, match=rf'^config\.x\.{name}[.=].*: expected '):
    settings.build(Outer, {'size': 2} | field, 'config.x')


def test_accepts_what_fits():
  made = settings.build(
    Outer,
    {
      'size': 2,
      'scale': 3,
      'clip': float('inf'),
      'limit': 0.5,
      'pair': [2, 'y'],
      'scales': {'part': 0.0},
      'inner': {'rate': 0.5},
    },
    'config.x',
  )
  assert made.inner.rate == 0.5 and made.limit == 0.5


def test_names_the_section_of_fields_that_are_missing_or_contradict():
  with pytest.raises(ValueError, match=r"^config\.x lacks \['size'\]"):
    settings.build(Outer, {'seed': 1}, 'config.x')
  with pytest.raises(ValueError, match=r'^config\.x: size and seed are equal'):
    settings.build(Outer, {'size': 2, 'seed': 2}, 'config.x')
