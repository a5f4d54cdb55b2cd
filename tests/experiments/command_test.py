# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The frame of commands, run as its users do, in processes of its own."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_COMMAND = """
from absl import flags
from experiments import command

def define():
  flags.DEFINE_string('prompt', '', 'Where to start.')

def run(config, workdir):
  if config.fail == 'value':
    raise ValueError('corpus.jsonl, line 3:\\n  expected a title')
  if config.fail == 'file':
    open('/nonexistent/corpus')
  if config.fail == 'field':
    config.no_such_field
  if config.fail == 'interrupt':
    raise KeyboardInterrupt
  if config.fail == 'bug':
    None.no_such_method()
  print(workdir, config.size, flags.FLAGS.prompt)

if __name__ == '__main__':
  command.main(run, define_flags=define)
"""
_CONFIG = """
import ml_collections

def get_config(arg='base'):
  if arg != 'base':
    raise ValueError(f'Config argument {arg!r}: expected base.')
  return ml_collections.ConfigDict({'fail': '', 'size': 1})
"""
_CASES = {
  'good': ['--config.size=3', '--prompt=hello'],
  'value': ['--config.fail=value'],
  'debug': ['--config.fail=value', '--debug'],
  'file': ['--config.fail=file'],
  'field': ['--config.fail=field'],
  'typo': ['--config.sise=3'],
  'type': ['--config.size=a'],
  'interrupt': ['--config.fail=interrupt'],
  'bug': ['--config.fail=bug'],
  'stray': ['size=3'],
  'arg': [],
  'absent': [],
}


@pytest.fixture(scope='module')
def results(tmp_path_factory):
  folder = tmp_path_factory.mktemp('command')
  (folder / 'command_x.py').write_text(_COMMAND)
  (folder / 'config_x.py').write_text(_CONFIG)

  def run(name):
    config = {'arg': 'config_x.py:large', 'absent': 'no_such_file.py'}
    return subprocess.run(
      [
        sys.executable,
        'command_x.py',
        f'--config={config.get(name, "config_x.py")}',
        '--workdir=W',
        *_CASES[name],
      ],
      cwd=folder,
      env=os.environ | {'PYTHONPATH': str(_ROOT)},
      capture_output=True,
      text=True,
      timeout=60,
    )

  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    return dict(zip(_CASES, pool.map(run, _CASES), strict=True))


def test_runs(results):
  assert results['good'].returncode == 0, results['good'].stderr
  assert results['good'].stdout.split() == ['W', '3', 'hello']


@pytest.mark.parametrize(
  'case, line',
  [
    ('value', 'error: corpus.jsonl, line 3: expected a title'),
    ('file', 'error: /nonexistent/corpus: No such file or directory'),
    ('stray', "error: Unexpected arguments ['size=3']; flags start with --."),
  ],
)
def test_bad_input_is_one_line(results, case, line):
  assert results[case].returncode == 1
  assert results[case].stderr.splitlines() == [line]


@pytest.mark.parametrize(
  'case, part',
  [
    ('field', 'no_such_field'),
    ('typo', 'Did you mean "size"'),
    ('absent', 'no_such_file.py'),
    ('arg', "Config argument 'large': expected base."),
    ('type', '--config.size=a'),
  ],
)
def test_bad_flag_or_field_is_one_line(results, case, part):
  assert results[case].returncode == 1
  (line,) = results[case].stderr.splitlines()
  assert line.startswith('error: ') and part in line


def test_debug_shows_the_traceback(results):
  assert results['debug'].returncode == 1
  assert 'Traceback' in results['debug'].stderr


def test_bug_shows_the_traceback(results):
  assert results['bug'].returncode == 1
  assert 'Traceback' in results['bug'].stderr


def test_interrupt(results):
  assert results['interrupt'].returncode == 130
  assert 'Traceback' not in results['interrupt'].stderr
