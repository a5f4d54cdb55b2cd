# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The list of commands."""

import subprocess
import sys


def _run(*args):
  """Output of `python -S -m experiments`: no site-packages, so no library."""
  return subprocess.run(
    [sys.executable, '-S', '-m', 'experiments', *args],
    capture_output=True,
    text=True,
    timeout=60,
  )


def test_every_command_has_a_line():
  found = _run()
  assert found.returncode == 0, found.stderr
  listed = {
    line.split()[0]: line.split(maxsplit=1)[1]
    for line in found.stdout.splitlines()
    if line.startswith('  experiments.')
  }
  assert 'experiments.train' in listed
  for name, summary in listed.items():
    assert summary.endswith('.'), name
  assert _run('--markdown').stdout.startswith('# Commands')
