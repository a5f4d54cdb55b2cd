# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The command, and the page that it fills."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from experiments.scale import job as job_lib, plan, rates as rates_lib

_ROOT = pathlib.Path(__file__).resolve().parents[3]


def _run(*arguments):
  return subprocess.run(
    [sys.executable, '-m', 'experiments.scale.plan', *arguments],
    cwd=_ROOT,
    env=os.environ | {'COLUMNS': '200'},
    capture_output=True,
    text=True,
    check=False,
  )


def test_the_page_is_what_the_command_prints():
  page = (_ROOT / 'docs/scale.md').read_text(encoding='utf-8')
  assert page == plan.filled(page, rates_lib.load()), (
    'docs/scale.md is out of date: '
    'python -m experiments.scale.plan --page=docs/scale.md'
  )
  for words in ('<!-- plan --chunks=1e7', '<!-- rates', '<!-- validation'):
    assert words in page
  assert '## Running on a cluster' in page


def test_prints_the_plan_of_the_flags():
  arguments = ('--chunks=1e9', '--hosts=64', '--refresh_every=500')
  done = _run(*arguments, '--markdown')
  assert done.returncode == 0, done.stderr
  job = job_lib.of_text(' '.join(arguments))
  assert (job.chunks, job.hosts, job.refresh_every) == (1e9, 64, 500)
  assert done.stdout == plan.markdown(job, rates_lib.load())
  assert done.stdout.startswith('Predicted, not measured: 1,000,000,000 chunks')
  table = _run(*arguments).stdout
  for words in ('neighbors', 'REALM', 'What breaks first'):
    assert words in table


def test_a_bad_value_ends_in_one_line(tmp_path):
  for argument, said in (
    ('--chunks=-1', 'error: --chunks=-1.0: expected more than 0.'),
    ('--hosts=0', 'error: --hosts=0: expected more than 0.'),
    ('--shards=-2', 'error: --shards=-2: expected 0 or more.'),
  ):
    done = _run(argument)
    assert done.returncode == 1 and done.stderr.splitlines() == [said]
  file = tmp_path / 'rates.json'
  file.write_text('{"read": {"value": 3}}')
  done = _run(f'--rates={file}')
  assert done.returncode == 1 and f'error: {file}: ' in done.stderr


def test_every_rate_says_where_it_is_from():
  rates = rates_lib.load()
  for name, rate in rates.items():
    assert rate.value >= 0 and rate.unit and rate.machine, name
    assert rate.command.startswith('python -m experiments.'), name
  assert {x.source for x in rates.values()} == {'measured', 'compiled'}
  for embedder in job_lib.EMBEDDERS:
    for chip in job_lib.chips.CHIPS:
      assert rates[f'wordpieces_{embedder}_{chip}'].source == 'compiled'


def test_rates_of_a_user_change_the_plan(tmp_path):
  content = json.loads(rates_lib.FILE.read_text())
  content['embed']['value'] *= 2
  (tmp_path / 'mine.json').write_text(json.dumps(content))
  job = job_lib.of_text('--chunks=1e8')
  rows = [
    plan.predict(job, rates_lib.load(x))[0]
    for x in (rates_lib.FILE, tmp_path / 'mine.json')
  ]
  core_hours = [float(x[2][2].split()[0].replace(',', '')) for x in rows]
  assert core_hours[0] == pytest.approx(2 * core_hours[1], rel=0.02)
  assert rows[0][0] == rows[1][0]


@pytest.mark.parametrize(
  ('value', 'said'),
  [(0, '0'), (0.00567, '0.00567'), (5.678, '5.68'), (12345.6, '12,346')],
)
def test_numbers_have_three_digits(value, said):
  assert plan._number(value) == said


@pytest.mark.parametrize(
  ('value', 'said'),
  [(12, '12 B'), (999.7, '1 kB'), (43e12, '43 TB'), (2.5e18, '2,500 PB')],
)
def test_sizes_have_their_unit(value, said):
  assert plan._size(value) == said
