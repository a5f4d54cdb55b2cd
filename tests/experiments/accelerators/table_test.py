# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of compiled programs."""

import json
import re
import sys

from absl import flags
import pytest

from experiments.accelerators import chips, programs, table


def test_every_row_names_a_config_its_fields_and_a_program():
  names = [row.name for row in table.ROWS]
  assert len({*names}) == len(names)
  for row in table.ROWS:
    path, _, arg = row.config.partition(':')
    module = __import__(f'configs.{path[:-3]}', fromlist=['get_config'])
    config = module.get_config(arg) if arg else module.get_config()
    config.update_from_flattened_dict(row.fields)
    assert row.program in programs.TASKS[config.task]
    assert chips.of(row.topology)


@pytest.fixture
def options(tmp_path, monkeypatch):
  """Two rows, and a stand-in of the command that compiles them."""
  rows = [
    table.Row('small', 'a.py', 'v5e:2x2'),
    table.Row('wide', 'a.py:b', 'v5e:2x2', 'train', {'batch_size': 3}),
    table.Row('large', 'a.py', 'v5e:2x2', 'decode'),
    table.Row('other', 'a.py', 'h100:1'),
  ]
  monkeypatch.setattr(table, 'ROWS', rows)
  monkeypatch.setattr(chips, 'is_installed', lambda x: x.startswith('v5e'))
  values = flags.FlagValues()
  flags.DEFINE_string('workdir', str(tmp_path / 'w'), '', values)
  flags.DEFINE_string('only', '', '', values)
  values(['table'])
  monkeypatch.setattr(table.flags, 'FLAGS', values)
  script = tmp_path / 'compiler.py'
  monkeypatch.setattr(sys, 'executable', str(script))
  return values, script


_SCRIPT = """#!{python}
import json, pathlib, sys
given = dict(x.split('=', 1) for x in sys.argv if x.startswith('--'))
if '--config.batch_size' in given:
  sys.exit({last!r})
names = 'arguments_bytes temporary_bytes output_bytes'.split()
names += ['model_flops', 'executed_flops', 'mfu_bound']
names += [x + '_sec' for x in 'flops traffic network trace compile'.split()]
found = {{name: 2.0 ** 30 for name in names}} | {{'lines': 1234}}
# The first row has room for them, the next has not.
found['memory_bytes'] = (2 if given['--program'] == 'decode' else 3) * 2.0 ** 30
pathlib.Path(given['--workdir'], 'compile.json').write_text(json.dumps(found))
"""


def _install(script, last):
  python = sys._base_executable  # pylint: disable=protected-access
  script.write_text(_SCRIPT.format(python=python, last=last))
  script.chmod(0o755)


def test_rows_are_kept_and_refusals_told(options, tmp_path):
  _, script = options
  _install(script, 'error: 35 G exceed 15 G')
  table.main([])
  lines = (tmp_path / 'w' / 'table.md').read_text().splitlines()
  assert lines[2].startswith('| small | v5e:2x2 | 1.00 + 1.00 | 3.00 |')
  assert re.search('wide .* refused', lines[3])
  assert '| large | v5e, one chip | 1.00 + 1.00: does not fit |' in lines[4]
  assert not any('other' in line for line in lines)
  kept = json.loads((tmp_path / 'w' / 'wide_v5e_2x2.json').read_text())
  assert '--config.batch_size=3' in kept['flags']
  script.unlink()  # nothing is compiled again
  table.main([])


def test_another_failure_ends_in_its_line(options, tmp_path):
  values, script = options
  _install(script, 'error: no such field')
  with pytest.raises(ValueError, match='wide_v5e_2x2: error: no such field'):
    table.main([])
  assert (tmp_path / 'w' / 'small_v5e_2x2.json').exists()
  values.only = 'nothing'
  values.workdir = str(tmp_path / 'empty')
  with pytest.raises(ValueError, match="no row is named 'nothing'"):
    table.main([])
