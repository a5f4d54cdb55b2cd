# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""One writer a folder: who is refused, and when the lock ends."""

import errno
import fcntl
import os
import re
import signal
import subprocess
import sys

import pytest

import retrieval
from retrieval.store import array_store, drafts, locks

# Holds the lock of a folder, in the presence of a fork and of a started process.
_HOLDER = """
import os, subprocess, sys, time
from retrieval.store import locks
with locks.writer(sys.argv[1]):
  if not os.fork():
    with locks.writer(sys.argv[1], 'other'):
      time.sleep(60)
  subprocess.Popen(['sleep', '60'], close_fds=False)
  print(os.getpid(), flush=True)
  time.sleep(60)
"""


def _refused_by_another_open(folder, name='.writer.lock'):
  """Whether the kernel refuses the lock to whoever opens the file anew."""
  with open(folder / name, 'a') as f:
    try:
      fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      return True
  return False


def test_one_process_may_hold_a_lock_twice(tmp_path):
  with locks.writer(tmp_path / 'new'):
    with locks.writer(str(tmp_path / 'new')):
      pass
    assert _refused_by_another_open(tmp_path / 'new')
  assert not os.listdir(tmp_path)  # nothing was written


def test_roles_and_processes_have_locks_of_their_own(tmp_path):
  with locks.writer(tmp_path), locks.writer(tmp_path, locks.DATA):
    with locks.writer(tmp_path, locks.DATA, 2):
      names = ['.writer-data-2.lock', '.writer-data.lock', '.writer.lock']
      assert sorted(os.listdir(tmp_path)) == names
      assert all(_refused_by_another_open(tmp_path, name) for name in names)


def test_the_holder_is_named_and_the_lock_dies_with_it(tmp_path):
  job = subprocess.Popen(
    [sys.executable, '-c', _HOLDER, str(tmp_path)],
    stdout=subprocess.PIPE,
    text=True,
    start_new_session=True,
  )
  try:
    pid = job.stdout.readline().strip()
    with pytest.raises(locks.WriterError) as refused:
      with locks.writer(tmp_path):
        pass
    line = str(refused.value)
    assert f'{tmp_path}: process {pid} on ' in line and '\n' not in line
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    with locks.writer(tmp_path):  # though the fork and the child live
      os.killpg(job.pid, 0)
  finally:
    os.killpg(job.pid, signal.SIGKILL)


_PREPARE = """
import sys, time
from retrieval.store import locks
with locks.writer(sys.argv[1], locks.DATA):
  open(sys.argv[1] + '/documents.jsonl', 'w').close()
  print('begun', flush=True)
  sys.stdin.read(1) or sys.exit(3)
"""


def _errors(root):
  """Errors of readers of an index, and of two stores."""
  for read, *args in (
    (retrieval.open_index, root),
    (array_store.Store.open, root / 'chunks-train', 'kind'),
    (array_store.Store.open, root / 'masked' / 'blocks', 'kind'),
  ):
    with pytest.raises(FileNotFoundError) as error:
      read(*args)
    yield str(error.value)


@pytest.mark.parametrize('end', ['kill', 'fail', 'finish'])
def test_readers_hear_of_data_that_are_not_finished(tmp_path, end):
  job = subprocess.Popen(
    [sys.executable, '-c', _PREPARE, str(tmp_path), '--output=x'],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
  )
  job.stdout.readline()
  who = f'{tmp_path}: process {job.pid} on .* \\(-c {tmp_path} --output=x\\)'
  assert all(re.search(f'{who} writes here', x) for x in _errors(tmp_path))
  if end == 'kill':
    job.kill()
  job.communicate(b'x' if end == 'finish' else b'')
  told = [bool(re.search(f'{who} was.*again', x)) for x in _errors(tmp_path)]
  assert told == 3 * [end != 'finish']
  with locks.writer(tmp_path, locks.DATA):
    assert not locks.unfinished(tmp_path / 'index')  # this process knows
  with pytest.raises(ValueError), locks.writer(tmp_path, locks.DATA):
    raise ValueError('refused')
  assert not locks.unfinished(tmp_path / 'index')


def test_a_folder_that_cannot_be_written_needs_no_lock(tmp_path, monkeypatch):
  monkeypatch.setattr(locks.os, 'access', lambda *unused: False)
  with locks.writer(tmp_path):
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize('code', [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch, code):
  def refuse(*unused):
    raise OSError(code, os.strerror(code))

  monkeypatch.setattr(fcntl, 'flock', refuse)
  for lock in (
    locks.writer(tmp_path),
    locks.hold(tmp_path / 'x.lock'),
    locks.hold(tmp_path / 'x.lock', shared=True, wait=False),
  ):
    with pytest.raises(OSError, match='no file locks') as error, lock:
      pass
    assert str(tmp_path) in error.value.filename


def _draft_of(path, pid):
  name = drafts.beside(path).name
  return path.with_name(name.replace(f'-{os.getpid()}-', f'-{pid}-'))


def test_the_next_holder_removes_what_dead_writers_left(tmp_path):
  gone = subprocess.Popen([sys.executable, '-c', ''])
  gone.wait()
  below = tmp_path / 'tokenizer'
  dead = [_draft_of(below / 'model', gone.pid), _draft_of(below, gone.pid)]
  live = [drafts.beside(tmp_path / 'a'), _draft_of(below / 'a', os.getppid())]
  name = drafts.beside(tmp_path / 'new').name
  foreign = tmp_path / name.replace('.draft-', '.draft-other_')
  others = [tmp_path / '.lease-1', tmp_path / 'a.draft-b-2-00000000']
  dead[1].mkdir()
  below.mkdir()
  for path in (dead[0], dead[1] / 'half', *live, foreign, *others):
    path.write_bytes(b'half')
  with locks.writer(tmp_path):
    pass
  assert not any(x.exists() for x in dead)
  assert all(x.exists() for x in (*live, foreign, *others))
