# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Learning curves are read from metrics.jsonl, printed and drawn."""

import json

import pytest

from experiments.engine import metric_writer
from experiments.tables import plot_curves


def _run(folder, values):
  with metric_writer.MetricWriter(str(folder)) as writer:
    for step, loss in values:
      writer.write(step, {'loss': loss, 'age': step + 1})
      writer.write(step, {'valid/loss': loss + 0.5})
  return plot_curves.read(folder.name, folder)


def test_curves(tmp_path, capsys):
  long = _run(tmp_path / 'long', [(10, 5.0), (20, 4.0), (30, 3.0)])
  short = _run(tmp_path / 'short', [(10, 6.0)])
  assert long.train == [(10, 5.0), (20, 4.0), (30, 3.0)]
  assert long.valid == [(10, 5.5), (20, 4.5), (30, 3.5)]

  plot_curves.print_table([long, short])
  rows = [line.split() for line in capsys.readouterr().out.splitlines()]
  assert ['10', '5.5000', '6.5000'] in rows
  assert ['30', '3.5000'] in rows

  ages = [plot_curves.read('long', tmp_path / 'long', 'age')]
  assert ages[0].train == [(10, 11), (20, 21), (30, 31)]
  plot_curves.print_table(ages)
  shown = capsys.readouterr().out
  assert 'long (training)' in shown and '31.0000' in shown
  plot_curves.plot([[long, short], ages], tmp_path / 'made' / 'curves.png')
  assert (tmp_path / 'made' / 'curves.png').read_bytes()[1:4] == b'PNG'
  found = json.loads((tmp_path / 'made' / 'curves.json').read_text())
  losses, others = found['panels']
  assert (losses['y'], others['y']) == ('loss', 'age')
  names = [
    f'{run} {x}' for run in ('long', 'short') for x in ('training', 'valid')
  ]
  assert [x['name'] for x in losses['series']] == names
  assert losses['series'][3]['points'] == [{'x': 10, 'y': 6.5}]
  assert [x['name'] for x in others['series']] == ['long training']


def test_no_run(tmp_path):
  with pytest.raises(ValueError, match='metrics.jsonl: not found'):
    plot_curves.read('x', tmp_path)


def test_no_such_metric(tmp_path):
  _run(tmp_path / 'a', [(10, 5.0)])
  with pytest.raises(ValueError, match="no metric 'b'; .*'age', 'loss'"):
    plot_curves.read('a', tmp_path / 'a', 'b')
