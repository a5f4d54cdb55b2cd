# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The frame of commands, run as its users do, each in a process of its own.

One process imports the libraries and forks for each command.
"""

import json
import os
import shlex
import subprocess
import sys

import pytest

from retrieval.store import locks

_COMMAND = """
import dataclasses
import logging
import os

from absl import flags

from retrieval import settings

from experiments.engine import command
from retrieval.store import cluster_settings

@dataclasses.dataclass(kw_only=True)
class Settings:
  # How many there are, which
  # one reads whole here.
  size: settings.Size = 5  # of them
  fail: str
  distributed: bool
  cluster: cluster_settings.Cluster

def run(config, workdir):
  if config.fail == 'value':
    raise ValueError('corpus.jsonl, line 3:\\n  expected a title')
  if config.fail == 'file':
    open('/nonexistent/corpus')
  if config.fail == 'disk':
    raise OSError('181632 requested and 119776 written')
  if config.fail == 'library':
    source = "try:\\n  1 / 0\\nexcept Exception:\\n  logging.exception('told')"
    code = compile(source, '/site-packages/library.py', 'exec')
    exec(code, {'logging': logging})
  if config.fail == 'bug':
    None.no_such_method()
  if flags.FLAGS.prompt:
    told = compile("logging.info('of a library')", 'other.py', 'exec')
    exec(told, {'logging': logging})
    logging.info('of the command')
  print(workdir, config.size, flags.FLAGS.prompt, *flags.FLAGS.question)

if __name__ == '__main__':
  flags.DEFINE_string('prompt', '', 'Where to start.')
  flags.DEFINE_multi_string('question', [], 'What to ask.')
  command.define_output('json', '', 'Where to write.')
  command.define_output('output', '', 'Where to write, too.', is_folder=True)
  command.main(
    run,
    Settings,
    writes=os.environ.get('TEST_WRITES'),
    default_config=os.environ.get('TEST_DEFAULT', ''),
    text=os.environ.get('TEST_TEXT', ''),
  )
"""
_FORK = """
import json, os, runpy, sys

from absl import app
import jax
from experiments.engine import command

names = {}
for name, environment, args in json.loads(sys.argv[1]):
  pid = os.fork()
  if pid:
    names[pid] = name
    continue
  for number, stream in ((1, 'stdout'), (2, 'stderr')):
    os.dup2(os.open(f'{name}.{stream}', os.O_CREAT | os.O_WRONLY), number)
  os.environ.update(environment)
  sys.argv[:] = ['command_x', *args]
  runpy.run_module('command_x', run_name='__main__', alter_sys=True)
  sys.exit()
for _ in range(len(names)):
  pid, status = os.wait()
  with open(f'{names[pid]}.code', 'w') as f:
    f.write(str(os.waitstatus_to_exitcode(status)))
"""
_CONFIG = """
import ml_collections

def get_config():
  return ml_collections.ConfigDict({
    'fail': '',
    'size': 1,
    'distributed': False,
    'cluster': {'address': '', 'workers': 1},
  })
"""
_CASES = {
  'good': ['--config.size=3', '--prompt=hello'],
  'words': ['--config.size', '3', '--prompt', 'hello'],
  'lines': ['--flagfile=lines.txt'],
  'default': ['--config.size=3'],
  'help': ['--config.size=3', '--help'],
  'helpfull': ['--helpfull'],
  'debug': ['--config.fail=value', '--debug'],
  'bug': ['--config.fail=bug'],
  'library': ['--config.fail=library'],
  'prompt': ['hello', '--config.size=3'],
  'prompt_verbose': ['hello', '--verbosity=0'],
  'questions': ['who is', '--config.size=3', '--', '--it or not?'],
  'locked': ['--workdir=H'],
}
# Bad input, and a part of the line that refuses it.
_REFUSED = {
  'value': ('--config.fail=value', 'corpus.jsonl, line 3: expected a title'),
  'disk': ('--config.fail=disk', 'error: W: '),
  'disk_of_output': ('--config.fail=disk --output=O', 'error: O: '),
  'file': (
    '--config.fail=file',
    '/nonexistent/corpus: No such file or directory',
  ),
  'stray': ('size=3', 'size=3'),
  'prompt_twice': ("--prompt=hello 'you there'", "--prompt and ['you there']"),
  'prompts': ("'hello you' 'hello there'", "['hello you', 'hello there']"),
  'questions_twice': ("--question=who? 'is it?'", "--question and ['is it?']"),
  'question_words': ("who 'is it?'", "['who', 'is it?']"),
  'question_setting': ('size=3', "['size=3']"),
  'nested': ('--config.cluster.workers=-1', 'config.cluster.workers=-1'),
  'nowhere': ('--workdir=', '--workdir='),
  'unwritable': ('--json=/proc/x.json', '--json=/proc/x.json'),
  'file_as_folder': ('--workdir=config_x.py', '--workdir=config_x.py'),
  'typo': ('--config.sise=3', '--config.sise=3: no such field (near: size)'),
  'flag': (
    '--promt=x',
    "Unknown command line flag 'promt'. Did you mean: prompt",
  ),
  'number': ('--verbosity=two', '--verbosity=two: expected a whole number'),
  'flag_file': ('--flagfile=no_such_file', 'no_such_file'),
  'absent': (
    '--config=no_such_file.py',
    '--config=no_such_file.py: no such file',
  ),
}
_ALL = _CASES | {name: shlex.split(x) for name, (x, _) in _REFUSED.items()}
_TEXTS = ('prompt', 'question')  # flags of a text, and cases of them


@pytest.fixture(scope='module')
def results(tmp_path_factory):
  folder = tmp_path_factory.mktemp('command')
  (folder / 'command_x.py').write_text(_COMMAND)
  (folder / 'config_x.py').write_text(_CONFIG)
  (folder / 'lines.txt').write_text('--config.size=3\n--prompt=hello\n')

  def case(name):
    environment, named = {}, ['--config=config_x.py']
    if name == 'locked':
      environment['TEST_WRITES'] = 'x.json'
    if name == 'default':
      environment['TEST_DEFAULT'], named = 'config_x.py', []
    if name.startswith(_TEXTS):
      environment['TEST_TEXT'] = name.partition('_')[0].removesuffix('s')
    return name, environment, [*named, '--workdir=W', *_ALL[name]]

  with locks.writer(folder / 'H', 'x.json'):
    subprocess.run(
      [sys.executable, '-c', _FORK, json.dumps([*map(case, _ALL)])],
      cwd=folder,
      check=True,
      timeout=100,
    )

  def result(name):
    code, out, err = (
      (folder / f'{name}.{part}').read_text()
      for part in ('code', 'stdout', 'stderr')
    )
    return subprocess.CompletedProcess(name, int(code), out, err)

  return {name: result(name) for name in _ALL}


def test_runs(results):
  for name in ('good', 'words', 'lines'):
    assert results[name].returncode == 0, results[name].stderr
    assert results[name].stdout.split() == ['W', '3', 'hello']
  assert results['default'].stdout.split() == ['W', '3']


def test_texts_stand_without_their_flag(results):
  assert results['prompt'].stdout == 'W 3 hello\n', results['prompt'].stderr
  assert results['questions'].stdout == 'W 3  who is --it or not?\n'


def test_few_lines_stand_before_an_answer(results):
  (line,) = results['prompt'].stderr.splitlines()
  assert line.endswith('of the command')
  for name in ('prompt_verbose', 'good'):
    assert 'of a library' in results[name].stderr


def test_help_lists_the_fields_of_a_config(results):
  shown = results['help'].stdout
  assert '\ncommand_x:\n  --config: ' in shown
  assert '\n  --output: ' in shown and '\n  --prompt: ' in shown
  texts = [' '.join(results[x].stdout.split()) for x in ('help', 'helpfull')]
  short = (
    '--config.size=3 a whole number at least 1 and at most 16,777,216. How'
  )
  assert (
    f'{short} many there are, which one reads whole ... --config.fail'
    in texts[0]
  )
  assert (
    'How many there are, which one reads whole here. of them --' in texts[1]
  )
  for name in ('help', 'helpfull'):
    assert (
      "\n  --config.cluster.address=''\n    a text." in results[name].stdout
    )
    assert '\n  --config.distributed=False\n    True or False.' in shown


def test_a_second_writer_is_refused_before_it_runs(results):
  found = results['locked']
  assert (found.returncode, found.stdout) == (1, '')
  assert found.stderr.startswith(f'error: H: process {os.getpid()} on ')
  assert found.stderr.count('\n') == 1


@pytest.mark.parametrize('case', _REFUSED)
def test_bad_input_is_one_line(results, case):
  assert results[case].returncode == 1
  (line,) = results[case].stderr.splitlines()
  assert line.startswith('error: ') and _REFUSED[case][1] in line


@pytest.mark.parametrize('case', ['debug', 'bug'])
def test_a_bug_and_a_flag_show_the_traceback(results, case):
  assert results[case].returncode == 1
  assert 'Traceback' in results[case].stderr


def test_a_library_logs_no_traceback(results):
  (line,) = results['library'].stderr.splitlines()
  assert line.endswith('] told')


_SCRIPT = """
from experiments.engine import command
command.main_of_script(lambda argv: print(input().upper()))
"""


@pytest.mark.parametrize('utf8', ['0', '1'])
def test_an_ascii_terminal_is_read_and_shows_escapes(utf8):
  environment = {'LC_ALL': 'C', 'PYTHONIOENCODING': 'ascii', 'PYTHONUTF8': utf8}

  def run(*args):
    return subprocess.run(
      [sys.executable, *args],
      env=os.environ | environment,
      input='één'.encode(),
      capture_output=True,
      timeout=60,
    )

  done = run('-c', _SCRIPT)
  assert done.stdout == rb'\xc9\xc9N' + os.linesep.encode(), done.stderr
  done = run('-m', 'experiments.ask', '--config=é.py')
  assert done.returncode == 1
  assert rb'--config=\xe9.py: no such file' in done.stderr
