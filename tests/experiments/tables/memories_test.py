# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The pages of memories: totals, thirds, verdicts and what is not finished."""

import json
import pathlib
import shutil

import numpy as np
import pytest

from experiments.tables import memories

SPLITS = ('test', 'fresh')


def _values(**shifts):
  """Nats of 40 documents, five seeds; an arm differs by bits a byte on each split."""
  rng, arrays = np.random.default_rng(0), {}
  for i, split in enumerate(SPLITS):
    size = rng.integers(500, 900, 40)
    plain = 2 * np.log(2) * size + rng.normal(0, 40, (5, 40))
    arrays |= {f'{split}/bytes': size, f'{split}/baseline': plain}
    arrays[f'{split}/overlap'] = np.arange(40)[::-1] / 40
    for arm, shift in shifts.items():
      noise = rng.normal(0, 3, (5, 40))
      arrays[f'{split}/{arm}'] = plain + shift[i] * np.log(2) * size + noise
  return arrays


def _content(arrays, seeds=5, **costs):
  cost = {'bytes': 1e6, 'flops': 2e12, 'seconds': 30}
  names = [x.removeprefix('test/') for x in arrays if x.startswith('test/')]
  arms = [x for x in names if x not in ('bytes', 'overlap')]
  return {
    'corpus': 'tiny',
    'equal': 'bytes',
    'budget': 1e6,
    'against': 'baseline',
    'seeds': [*range(seeds)],
    'arms': {
      x: {'costs': [cost | costs.get(x, {})], 'failed': []} for x in arms
    },
  }


def _write(docs: pathlib.Path, arrays, *contents):
  """The page and its notes."""
  folder = docs / memories.EVIDENCE
  folder.mkdir(parents=True)
  rows = [{'mode': 'real', 'right': x} for x in (True, False, True)]
  (folder.parent / 'reading').mkdir()
  cost = {'seconds': 1.25, 'bytes': 3e4}
  costs = dict.fromkeys(('nothing', 'knn', 'prompt', 'neighbors'), cost)
  files = {'facts_costs': costs, 'facts_rows': rows, 'facts_control': rows}
  for name, content_of in (files | {'facts_knn': rows}).items():
    path = folder.parent / 'reading' / f'{name}.json'
    path.write_text(json.dumps(content_of))
  for content in contents:
    path = folder / f'tiny_{content["equal"]}.json'
    path.write_text(json.dumps(content))
    np.savez(path.with_suffix('.npz'), **arrays)
  return memories.pages(folder).values()


def _rows(page):
  lines = [x.strip('|').split('|') for x in page.splitlines() if x[:1] == '|']
  return {x[0].strip(): [y.strip() for y in x[1:]] for x in lines[2:]}


def test_an_arm_pays_if_it_is_below_on_every_split(tmp_path):
  arrays = _values(
    both=(-0.05, -0.05), one=(-0.05, 0.04), worse=(0.03, 0.05), same=(0, 0)
  )
  content = _content(arrays, both={'bytes': 2e6})
  page, notes = _write(tmp_path, arrays, content)
  rows = _rows(notes)
  verdicts = {x: row[-1] for x, row in rows.items()}
  assert verdicts == {
    'baseline': '',
    'both^': 'pays',
    'one': 'does not pay',
    'worse': 'does not pay',
    'same': 'undecided',
  }
  assert [*rows][:2] == ['baseline', 'both^']
  marks = {x: row[0] for x, row in _rows(page).items() if len(row) == 1}
  assert [*marks][0] == 'both' and [*marks][-1] == 'worse'
  assert marks['both'][:2] == '**' and marks['one'][0] == '('
  assert marks['worse'][0] == '(' and marks['same'][0] in '+-'
  total = arrays['test/baseline'].mean(0).sum()
  total /= np.log(2) * arrays['test/bytes'].sum()
  assert rows['baseline'][3] == f'{total:.4f}'
  mean, half = rows['both^'][3].split()
  assert float(mean) == pytest.approx(-0.05, abs=2e-3) and half[0] == '±'
  assert rows['both^'][:3] == ['2.0', '2', '30']


def test_thirds_go_from_the_least_shared_to_the_most():
  parts = memories.thirds(np.array([0.5, 0.1, 0.9, 0.2, 0.3, 0.8]))
  assert [sorted(x.tolist()) for x in parts] == [[1, 3], [0, 4], [2, 5]]
  arrays = _values(arm=(0, 0))
  size = np.log(2) * arrays['test/bytes']
  arrays['test/arm'] = arrays['test/baseline'] - np.where(
    np.arange(40) >= 26, 0.3 * size, 0
  )
  low, *_, high = (
    memories.estimate(arrays, 'test', 'arm', 'baseline', x).mean
    for x in memories.thirds(arrays['test/overlap'])
  )
  assert low == pytest.approx(-0.3) and high == 0  # overlap falls


def test_unfinished_tables_have_no_verdicts(tmp_path):
  arrays = _values(arm=(-0.1, -0.1))
  page, notes = _write(tmp_path, arrays, _content(arrays, seeds=4))
  assert _rows(notes)['arm'][-1] == '4 of 5 seeds'
  assert _rows(page)['arm'][0].endswith('4 of 5 seeds')
  for name in ('arm', 'baseline'):
    shutil.rmtree(tmp_path / 'results')
    content = _content(arrays)
    content['arms'][name]['failed'] = ['later tokens']
    refused, notes = _write(tmp_path, arrays, content)
    assert 'referee' in _rows(notes)['arm'][-1]
    assert _rows(refused)['arm'] == ['refused']
  assert _rows(page)['two neighbors (RETROfit)'] == [
    *('2 of 3', '', '1.2', '0.03')
  ]


def test_tables_stand_side_by_side(tmp_path):
  arrays = _values(arm=(-0.1, -0.1), more=(-0.2, 0))
  of_bytes = _content(arrays)
  seconds = _content(arrays) | {'equal': 'seconds'}
  del seconds['arms']['more']
  page, _ = _write(tmp_path, arrays, seconds, of_bytes)
  rows = _rows(page)
  assert [*rows][:2] == ['more', 'arm']
  assert rows['arm'][0] == rows['arm'][1] and rows['more'][1] == ''
  head = next(x for x in page.splitlines() if x.startswith('| arm'))
  assert head.index('bytes') < head.index('seconds')


def test_the_pages_are_those_of_the_evidence():
  docs = pathlib.Path(memories.__file__).parents[2] / 'docs'
  pages = memories.pages(docs / memories.EVIDENCE)
  for name, page in pages.items():
    assert page == (docs / name).read_text(encoding='utf-8')
  page = pages[memories.FILE]
  assert len(page.split()) <= 600 + page.count('|')
