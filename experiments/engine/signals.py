# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The end of a command on a signal: one line, exit code 128 + its number.

Ctrl-C is 130, SIGTERM 143, a closed terminal (SIGHUP) 129; a command that nohup
started goes on. Everything on disk is whole at any moment, so the process may end at
once; processes that it started end by themselves (`retrieval.store.children`). Only a
training loop asks for more time after Ctrl-C or SIGTERM: it saves a checkpoint. In
notebooks, which do not call `watch`, Ctrl-C stays a KeyboardInterrupt.
"""

from collections.abc import Callable, Iterator
import contextlib
import ctypes
import os
import platform
import signal
import sys
from typing import NoReturn

from retrieval.kernels import device_files

_AGAIN = 'Run the same command again to resume.'
_LINES = {
  signal.SIGINT: f'Interrupted. {_AGAIN}',
  signal.SIGTERM: f'Terminated. {_AGAIN}',
  signal.SIGHUP: f'The terminal was closed. {_AGAIN}',
}
_SAVING = (signal.SIGINT, signal.SIGTERM)
_WAIT = 'Saving the next step; a second Ctrl-C does not wait for it.'
_CLEAR_LINE, _SHOW_CURSOR = '\r\x1b[K', '\x1b[?25h'
# Of malloc.h: M_ARENA_MAX, M_MMAP_MAX and M_TRIM_THRESHOLD with their values.
_MALLOC = ((-8, 1), (-4, 0), (-1, -1))


class Saved(SystemExit):
  """Exit of a training loop that saved its state after a signal."""

  def __init__(self, step: int, number: int):
    """Print the line of the signal and the step that is saved."""
    super().__init__(128 + number)
    print(f'{_LINES[number]} Step {step} is saved.', file=sys.stderr)


def watch() -> None:
  """Set up a command's process; call it in the main thread, before others start."""
  named = os.environ.get('JAX_PLATFORMS')
  on_cpu = named == 'cpu' if named else not device_files.paths()
  if on_cpu and platform.libc_ver()[0] == 'glibc':
    # Keep freed memory. XLA asks for a step's temporary memory anew each time, and
    # glibc hands such blocks back to the kernel, which zeroes every page: a tenth to
    # a fifth of a step.
    for name, value in _MALLOC:
      ctypes.CDLL(None).mallopt(name, value)
  # Python's resource tracker removes what workers leave, and need not say so.
  warnings = (os.environ.get('PYTHONWARNINGS'), 'ignore:resource_tracker')
  os.environ['PYTHONWARNINGS'] = ','.join(filter(None, warnings))
  for number in _LINES:
    if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets SIGHUP
      signal.signal(number, leave)


@contextlib.contextmanager
def first_saves() -> Iterator[Callable[[], int]]:
  """Let a training loop answer Ctrl-C or SIGTERM with a checkpoint.

  Yields:
    A function that the loop calls after each step: the signal that has come, or 0.
    From its first call on, the first signal no longer ends the process; a second one
    does. In a job of several processes SIGTERM is answered by `jax.distributed`.
  """
  came: list[int] = []

  def note(number: int, frame: object) -> None:
    if came:
      leave(number, frame)
    came.append(number)
    if os.isatty(2):
      os.write(2, f'\n{_WAIT}\n'.encode())

  def asked() -> int:
    for number in _SAVING:
      if signal.getsignal(number) == leave:
        signal.signal(number, note)
    return came[0] if came else 0

  try:
    yield asked
    if came:  # after the last step
      leave(came[0])
  finally:
    for number in _SAVING:
      if signal.getsignal(number) == note:
        signal.signal(number, leave)


def leave(number: int, unused_frame=None) -> NoReturn:
  """Write one line and end the process at once."""
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(Exception):  # the signal may have come in a write
      stream.flush()
  text = _LINES[number] + '\n'
  with contextlib.suppress(OSError):
    if os.isatty(2):  # past '^C' or a progress bar
      text = _CLEAR_LINE + _SHOW_CURSOR + text
    os.write(2, text.encode())
  os._exit(128 + number)
