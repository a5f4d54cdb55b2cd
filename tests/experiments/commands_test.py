# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The list of commands and the page made of it."""

import pathlib
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def _run(*args):
  """Output of `python -S -m experiments`: no site-packages, so no library."""
  return subprocess.run(
    [sys.executable, '-S', '-m', 'experiments', *args],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    timeout=60,
  )


@pytest.fixture(scope='module')
def listed():
  """Lines of commands in the whole list: name -> summary."""
  found = _run()
  assert found.returncode == 0, found.stderr
  return dict(
    line.split(maxsplit=1)
    for line in found.stdout.splitlines()
    if line.startswith('  experiments.')
  )


def test_every_command_has_a_line(listed):
  programs = {
    path.relative_to(_ROOT).as_posix().removesuffix('.py').replace('/', '.')
    for path in (_ROOT / 'experiments').glob('*/*.py')
    if "\nif __name__ == '__main__'" in path.read_text(encoding='utf-8')
  }
  workers = programs - set(listed)
  assert all(
    name.startswith('experiments.benchmarks.') and name.endswith('_worker')
    for name in workers
  )
  assert set(listed) <= programs and len(listed) > 30
  assert 'experiments.retro.train' in listed


# They read, or write a single file at once, or leave all writing to others.
_READERS = {
  'experiments.open_qa.ask',
  'experiments.realm.explain',
  'experiments.realm.quickstart',
  'experiments.retro.examples',
  'experiments.retro.inspect',
  'experiments.retro.quickstart',
  'experiments.retro.sample',
}


def test_who_writes_a_folder_locks_it(listed):
  texts = {}
  for name in listed:
    file = _ROOT / f'{name.replace(".", "/")}.py'
    texts[name] = file.read_text(encoding='utf-8')
  assert _READERS == {
    name
    for name, text in texts.items()
    if 'command.main(' in text
    and not any(x in text for x in ('writes=', 'locks.writer(', 'stages.run('))
  }


def test_each_summary_is_a_sentence(listed):
  for name, summary in listed.items():
    assert summary[0].isupper() or summary.startswith('kNN'), name
    assert summary.endswith('.'), name


def test_a_word_selects_commands():
  found = _run('leakage').stdout
  assert 'retro:' in found and '  experiments.retro.leakage' in found
  assert 'experiments.realm.train' not in found
  nothing = _run('quantum', 'foam')
  assert nothing.returncode == 1 and nothing.stdout == ''
  assert nothing.stderr.startswith("error: no command matches 'quantum foam'")


def test_the_page_is_the_list():
  page = (_ROOT / 'docs/commands.md').read_text(encoding='utf-8')
  made = _run('--markdown').stdout
  assert page == made, (
    'docs/commands.md is out of date: '
    'python -m experiments --markdown > docs/commands.md'
  )
