# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The wheel: three libraries and a script that answer from an empty folder."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest

from experiments.engine import checkpoint_writer
from tests.experiments.retro import tiny_retro
from tests.retro_jax.data import tiny_data

pytestmark = pytest.mark.slow
_ROOT = pathlib.Path(__file__).resolve().parents[1]
_LIBRARIES = ('realm_jax', 'retrieval', 'retro_jax')
_COMMANDS = ('configs', 'experiments')
_FILES = ('setup.cfg', 'setup.py', 'pyproject.toml', 'README.md', 'LICENSE')
_BUILD = """
import sys
from setuptools import build_meta
print('wheel', build_meta.build_wheel(sys.argv[1]))
"""
_USE = """
import importlib.util, json, pathlib, sys

import realm_jax, retrieval, retro_jax

retro_workdir, site = sys.argv[1:]
for library in (realm_jax, retrieval, retro_jax):
  assert pathlib.Path(library.__file__).is_relative_to(site), library
reader = realm_jax.packaged(
  'reader',
  documents=[
    {'title': 'Mongolia', 'text': 'The capital of Mongolia is Ulaanbaatar.'},
    {'title': 'Peru', 'text': 'Llamas live in the mountains of Peru.'},
  ],
)
[answered] = reader.answer('What is the capital of Mongolia?')
scores = retro_jax.load(retro_workdir).score('river queen moon ' * 8)
print(json.dumps({
  'answer': answered.answers[0].text,
  'bits_per_byte': scores.bits_per_byte,
  'found': [
    name for name in ('configs', 'experiments', 'tests')
    if importlib.util.find_spec(name)
  ],
}))
"""


def _python(interpreter, cwd, *args):
  found = subprocess.run(
    [interpreter, *args],
    cwd=cwd,
    env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': ''},
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert found.returncode == 0, found.stderr
  return found.stdout


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
  """Built from a copy, so that the checkout stays as it is."""
  source = tmp_path_factory.mktemp('source')
  for name in (*_LIBRARIES, *_COMMANDS):
    ignored = shutil.ignore_patterns('__pycache__')
    shutil.copytree(_ROOT / name, source / name, ignore=ignored)
  for name in _FILES:
    shutil.copy(_ROOT / name, source)
  target = tmp_path_factory.mktemp('wheel')
  out = _python(sys.executable, source, '-c', _BUILD, str(target))
  return target / out.split()[-1]


@pytest.fixture(scope='module')
def environment(wheel, tmp_path_factory):
  """Folder of an environment with the wheel and the dependencies alone."""
  path = tmp_path_factory.mktemp('environment')
  venv.create(path, with_pip=False, symlinks=True)
  pip = ('-m', 'pip', '--python', str(path), 'install', '--no-index')
  _python(sys.executable, path, *pip, '--no-deps', '--quiet', str(wheel))
  # The folder of the dependencies, without its own .pth files: an editable install
  # of the checkout is not seen.
  parent = sysconfig.get_path('purelib')
  site = path / pathlib.Path(parent).relative_to(sys.prefix)
  (site / 'dependencies.pth').write_text(parent + '\n')
  return path


@pytest.fixture(scope='module')
def retro_workdir(tmp_path_factory):
  """A tiny baseline of RETRO with random parameters."""
  root = tiny_data.make(tmp_path_factory.mktemp('data'))
  made = tiny_retro.trained(root, baseline=True)
  config = dataclasses.replace(
    made.config, model=made.model.config, data_dir=str(root)
  )
  workdir = str(tmp_path_factory.mktemp('retro'))
  checkpoint_writer.save_params(
    workdir, made.params, config=dataclasses.asdict(config)
  )
  return workdir


def test_the_wheel_holds_the_libraries_and_their_models(wheel):
  with zipfile.ZipFile(wheel) as archive:
    names = archive.namelist()
  tops = {name.split('/')[0] for name in names}
  tops = {x for x in tops if not x.endswith('.dist-info')}
  assert tops == {*_LIBRARIES, 'realm_retro_jax'}
  for library in ('realm_jax', 'retro_jax'):
    for file in (_ROOT / library / 'packaged').rglob('*'):
      assert file.is_dir() or file.relative_to(_ROOT).as_posix() in names
  sources = {'realm_retro_jax/__init__.py'}
  for folder in (*_LIBRARIES, *_COMMANDS):
    inside = 'realm_retro_jax/' * (folder in _COMMANDS)
    for path in (_ROOT / folder).rglob('*'):
      if path.suffix in ('.py', '.html', '.css', '.js', '.txt', '.txtpb'):
        sources.add(inside + path.relative_to(_ROOT).as_posix())
  suffixes = {pathlib.Path(x).suffix for x in sources}
  names = {x for x in names if not x.split('/')[0].endswith('.dist-info')}
  assert {x for x in names if pathlib.Path(x).suffix in suffixes} == sources


def test_answers_and_scores_from_an_empty_folder(
  environment, retro_workdir, tmp_path
):
  (site,) = environment.glob('lib/python*/site-packages')
  out = _python(
    environment / 'bin/python', tmp_path, '-c', _USE, retro_workdir, str(site)
  )
  found = json.loads(out.splitlines()[-1])
  assert found['answer'] == 'Ulaanbaatar'
  assert 0 < found['bits_per_byte'] < 20
  assert found['found'] == []


def test_the_script_asks_own_documents(environment, tmp_path):
  text = 'The capital of Mongolia is Ulaanbaatar.'
  (tmp_path / 'own.jsonl').write_text(
    json.dumps({'id': 'a', 'title': 'Mongolia', 'text': text})
  )
  # Folders of the user's own that are not ours.
  for name in _COMMANDS:
    (tmp_path / name).mkdir()
    (tmp_path / name / '__init__.py').write_text('raise ImportError')
  out = _python(
    environment / 'bin/realm-retro',
    tmp_path,
    *('ask', '--packaged', '--question=What is the capital of Mongolia?'),
    *('--config.corpus.kind=jsonl', '--config.corpus.path=own.jsonl'),
    '--workdir=runs/ask',
  )
  assert 'Ulaanbaatar' in out
