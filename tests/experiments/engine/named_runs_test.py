# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows as flags, and the pairs of their seeds."""

from typing import Literal

import pytest

from experiments.engine import named_runs
from retrieval import settings

OPTIONS = {'k': settings.Size, 'mode': Literal['on', 'off'], 'data': str}


def test_runs_of_one_name_are_seeds(tmp_path):
  values = [f'a={tmp_path},k=2', f'b={tmp_path}', f'a={tmp_path},mode=off']
  assert named_runs.parse(values, OPTIONS) == {
    'a': [
      {'k': 2, 'workdir': str(tmp_path)},
      {'mode': 'off', 'workdir': str(tmp_path)},
    ],
    'b': [{'workdir': str(tmp_path)}],
  }
  assert named_runs.parse(['a=words'], OPTIONS, ('words',)) == {
    'a': [{'workdir': 'words'}]
  }


@pytest.mark.parametrize(
  'value, said',
  [
    ('={0}', 'expected NAME=RUN'),
    ('a={0},k=0', 'k=0: expected'),
    ('a={0},k=x', "k='x': expected"),
    ('a={0},mode=x', "mode='x': expected"),
    ('a={0},other=1', 'OPTION=VALUE'),
    ('a={0},workdir={0}', 'OPTION=VALUE'),
    ('a={0},k=1,k=2', 'OPTION=VALUE'),
    ('a={0}/no', 'expected a folder'),
    ('a={0},data={0}/no', 'expected a folder'),
  ],
)
def test_other_texts_are_refused(tmp_path, value, said):
  with pytest.raises(ValueError, match=said) as error:
    named_runs.parse([value.format(tmp_path)], OPTIONS)
  assert '\n' not in str(error.value)


def test_seeds_are_paired_by_number_or_with_one():
  pairs = [(1, 3), (2, 4)]
  assert named_runs.pairs('a', [1, 2], 'b', [3, 4]) == pairs
  assert named_runs.pairs('a', [1, 2], 'b', [3]) == [(1, 3), (2, 3)]
  assert named_runs.pairs('a', [1], 'b', [3, 4]) == [(1, 3), (1, 4)]
  with pytest.raises(ValueError, match='Row a has 3 runs and b 2'):
    named_runs.pairs('a', [1, 2, 3], 'b', [4, 5])


def test_mirrored_is_the_other_row_less_this_one():
  found = {'mean': 1.0, 'low': -2.0, 'high': 3.0, 'of_seeds': [0.5, 1.5]}
  turned = named_runs.mirrored(found)
  assert turned['mean'] == -1 and turned['of_seeds'] == [-0.5, -1.5]
  assert (turned['low'], turned['high']) == (-3.0, 2.0)
