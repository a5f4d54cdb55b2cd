# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Pictures are saved, and equal things in them have equal colors."""

import pytest

from experiments.engine import pictures


def test_a_picture_is_saved(tmp_path):
  with pictures.picture(tmp_path / 'a.png', figsize=(2, 1)) as (_, axes):
    axes.plot([0, 1], [1, 0])
  assert (tmp_path / 'a.png').read_bytes().startswith(b'\x89PNG')
  for name, line in (
    ('a.png/b.png', 'not a folder'),
    ('a.x', 'ends in one of'),
  ):
    with pytest.raises(ValueError, match=f'^{tmp_path}/{name}: .*{line}'):
      with pictures.picture(tmp_path / name):
        raise AssertionError('drawn')


def test_colors_and_intervals_are_those_of_the_series(tmp_path):
  first, second = '#1f77b4', '#ff7f0e'
  point = {'x': 1, 'y': 2.0, 'low': 1.0, 'high': 4.0}
  series = [
    {'name': 'of a', 'color': 1, 'points': [point, {'x': 2, 'y': 3.0}]},
    {'name': 'again', 'color': 1, 'dashed': True, 'points': [point]},
  ]
  panel = {'x': 'k', 'y': 'bits', 'series': series}
  pictures.draw([panel], tmp_path / 'a.svg')
  drawn = (tmp_path / 'a.svg').read_text()
  assert second in drawn and first not in drawn
  assert drawn.count('LineCollection') == 4  # two intervals, and in the legend
  series[1].pop('color')
  series[0] |= {'color': 0, 'points': [{'x': 1, 'y': 2.0}]}
  pictures.draw([panel], tmp_path / 'b.svg')
  drawn = (tmp_path / 'b.svg').read_text()
  assert second in drawn and first in drawn
  assert drawn.count('LineCollection') == 2
