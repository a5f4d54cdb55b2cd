# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The end of a command on a signal: one line, exit code 128 + its number.

These are Ctrl-C (130), SIGTERM (143) and the terminal that goes (SIGHUP, 129; a
command that nohup started goes on).

A thread of its own waits for the signals, because Python runs handlers in the main
thread alone, which XLA may hold for minutes and whose code may swallow an
exception. Everything on disk is whole at any moment, so that the thread may end
the process at once; processes that the command started end by themselves
(`retrieval.store.children`). Only a training loop asks for more time: it saves a
checkpoint after SIGTERM.

Only commands call `watch`: in notebooks Ctrl-C stays a KeyboardInterrupt.
"""

import atexit
from collections.abc import Callable, Iterator
import contextlib
import ctypes
import os
import signal
import sys
import threading
from typing import NoReturn

from experiments.engine import heap

_LINES = {
  signal.SIGINT: 'interrupted; the same command continues.',
  signal.SIGTERM: 'terminated; the same command continues.',
  signal.SIGHUP: 'its terminal has gone; the same command continues.',
}
_CLEAR_LINE, _SHOW_CURSOR = '\r\x1b[K', '\x1b[?25h'
_FLUSH_SEC = 1.0


class Terminated(Exception):
  """A training loop has saved its state, as SIGTERM asked it to."""


class _Termination:
  """SIGTERM as a training loop sees it."""

  def __init__(self):
    self.awaited = False  # whether a loop will save a checkpoint
    self.asked = threading.Event()
    self.tell_jax: Callable[[int], None] | None = None


class _End:
  """The exit code, once it is known."""

  code: int | str | None = None


_TERMINATION, _END = _Termination(), _End()
_WATCHING: set[int] = set()  # process ids: a fork has no thread


def watch() -> None:
  """Answer the signals from now on; call it in the main thread."""
  if os.getpid() in _WATCHING:
    return
  _WATCHING.add(os.getpid())
  heap.keep_memory()  # before there is a second thread
  # Python's resource tracker removes what the workers leave; it need not say so.
  warnings = (os.environ.get('PYTHONWARNINGS'), 'ignore:resource_tracker')
  os.environ['PYTHONWARNINGS'] = ','.join(filter(None, warnings))
  read, write = os.pipe()
  os.set_blocking(write, False)
  signal.set_wakeup_fd(write, warn_on_full_buffer=False)
  for number in _LINES:
    ignored = signal.getsignal(number) == signal.SIG_IGN
    if number != signal.SIGHUP or not ignored:  # nohup ignores it
      signal.signal(number, _leave_to_thread)
  threading.Thread(target=_answer, args=(read,), daemon=True).start()
  atexit.register(_end)  # first registered: last called


def take_back_sigterm() -> None:
  """Answer SIGTERM again after `jax.distributed` has taken it.

  JAX's handler is kept: called from here, it makes all processes agree on the
  step to save.
  """
  handler = ctypes.CDLL(None).signal
  handler.argtypes, handler.restype = (
    (ctypes.c_int, ctypes.c_void_p),
    ctypes.c_void_p,
  )
  found = handler(signal.SIGTERM, None)
  if found:
    _TERMINATION.tell_jax = ctypes.CFUNCTYPE(None, ctypes.c_int)(found)
  if os.getpid() in _WATCHING:
    signal.signal(signal.SIGTERM, _leave_to_thread)


@contextlib.contextmanager
def awaiting_termination() -> Iterator[Callable[[], bool]]:
  """Let a training loop answer SIGTERM with a checkpoint.

  Yields:
    A function that the loop calls after each step: whether SIGTERM has come. From
    its first call on, SIGTERM no longer ends the process, unless it comes twice.
  """
  _TERMINATION.asked.clear()

  def asked() -> bool:
    _TERMINATION.awaited = True
    return _TERMINATION.asked.is_set()

  try:
    yield asked
    if _TERMINATION.asked.is_set():  # after the last step
      leave(signal.SIGTERM)
  finally:
    _TERMINATION.awaited = False


def leave(number: int, line: str = '') -> NoReturn:
  """Write one line and end the process at once, with exit code 128 + number."""
  flushing = threading.Thread(target=_flush, daemon=True)
  flushing.start()
  flushing.join(_FLUSH_SEC)  # another thread may hold the stream for ever
  text = (line or _LINES[number]) + '\n'
  with contextlib.suppress(OSError):
    if os.isatty(2):  # past '^C' or a progress bar
      text = _CLEAR_LINE + _SHOW_CURSOR + text
    os.write(2, text.encode())
  os._exit(128 + number)


def _flush() -> None:
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(Exception):
      stream.flush()


def end_with(code: int | str | None) -> None:
  """Let the process leave with SystemExit's code, after all exit functions.

  Python is then not taken down, which aborts a process whose other threads
  return from XLA.
  """
  _END.code = 0 if code is None else code


def _end() -> None:
  """Leave a finished command; signals come too late by now."""
  for number in _LINES:
    signal.signal(number, signal.SIG_IGN)
  if isinstance(_END.code, int):
    _flush()
    os._exit(_END.code)


def _leave_to_thread(number, frame) -> None:
  """Do nothing: a handler makes Python write the signal's number to the pipe."""
  del number, frame


def _answer(pipe: int) -> None:
  while True:
    number = os.read(pipe, 1)[0]
    first = not _TERMINATION.asked.is_set()
    if number == signal.SIGTERM and _TERMINATION.awaited and first:
      _TERMINATION.asked.set()
      if _TERMINATION.tell_jax:
        _TERMINATION.tell_jax(number)
    elif number in _LINES:
      leave(number)
