# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Each command refuses at its start what it could not write when it ends."""

import json
import pathlib
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_FORK = """
import json, os, runpy, sys

import jax

for number, args in enumerate(json.loads(sys.argv[1])):
  if not os.fork():
    for stream in (1, 2):
      os.dup2(os.open(f'{number}.{stream}', os.O_CREAT | os.O_WRONLY), stream)
    sys.argv[:] = args
    runpy.run_module(args[0], run_name='__main__', alter_sys=True)
    os._exit(0)
  print(number, os.waitstatus_to_exitcode(os.wait()[1]))
"""
_CONFIG = f'--config={_ROOT}/configs/retro_pretrain_quickstart.py'
_WRITES = '--workdir=/proc/x'
_CASES = [
  *(
    [name, _CONFIG, _WRITES]
    for name in 'prepare train evaluate quickstart'.split()
  ),
  ['compare', '--row=a=a.json', _WRITES],
  ['import_decoder', '--source=.', _WRITES],
  ['convert', '--from=.', _WRITES],
  ['update', _CONFIG, '--workdir=.', '--output=/proc/x'],
  ['pack', '--workdir=.', '--output=/proc/x'],
  ['sample', '--json=/proc/x.json'],
  ['ask', '--question=Who?', '--output=/proc/x.jsonl'],
  ['inspect', _CONFIG, '--workdir=.', '--output=/proc/x.html'],
  ['inspect', _CONFIG, '--workdir=/proc'],
  ['retrieve', '--output=/proc/x'],
  ['score', '/proc/x', '--output', '--dataset=webquestions:test=x'],
  ['tables.show', '--table=retro_13', '--output=/proc/x'],
  ['tables.claims', '--output=/proc/x'],
  ['accelerators.compile', _CONFIG, '--topology=v5e:2x2', _WRITES],
  ['accelerators.sheet', _WRITES],
]


@pytest.mark.slow
def test_outputs_are_checked_before_any_work(tmp_path):
  cases = [
    [f'experiments.{case[0]}', *case[1:]]
    for case in [*_CASES, ['compare', '--help']]
  ]
  found = subprocess.run(
    [sys.executable, '-c', _FORK, json.dumps(cases)],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert found.stdout.split()[1::2] == ['1'] * len(cases), found
  for number, case in enumerate(_CASES):
    (line,) = (tmp_path / f'{number}.2').read_text().splitlines()
    assert line.startswith('error: ') and '/proc' in line, (case, line)
    assert not (tmp_path / f'{number}.1').read_text()
  shown = (tmp_path / f'{len(_CASES)}.1').read_text()
  assert '  --workdir: ' in shown and '  --row: ' in shown
