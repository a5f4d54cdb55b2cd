# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The end of a command on a signal: one line, exit code 128 + its number.

Ctrl-C is 130, SIGTERM 143, a closed terminal (SIGHUP) 129; a command that nohup
started goes on. Everything on disk is whole at any moment, so the process may end at
once; processes that it started end by themselves (`retrieval.store.children`). Only a
training loop asks for more time after SIGTERM: it saves a checkpoint. In notebooks,
which do not call `watch`, Ctrl-C stays a KeyboardInterrupt.
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
_CLEAR_LINE, _SHOW_CURSOR = '\r\x1b[K', '\x1b[?25h'
# Of malloc.h: M_ARENA_MAX, M_MMAP_MAX and M_TRIM_THRESHOLD with their values.
_MALLOC = ((-8, 1), (-4, 0), (-1, -1))

# The handler of `jax.distributed`, which tells the other processes.
_TELL_JAX: list[Callable[[int], None]] = []


class Terminated(SystemExit):
  """A training loop has saved its state after SIGTERM; the exit code is 143."""

  def __init__(self, step: int):
    """Print the line of a step that is saved."""
    super().__init__(128 + signal.SIGTERM)
    print(f'Terminated after step {step}, saved. {_AGAIN}', file=sys.stderr)


def watch() -> None:
  """Set up a command's process; call it in the main thread, before others start."""
  named = os.environ.get('JAX_PLATFORMS')
  on_cpu = named == 'cpu' if named else not device_files.found()
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


def take_back_sigterm() -> None:
  """Answer SIGTERM again after `jax.distributed` has taken it.

  Its handler lets all processes agree on the step to save; `sigterm_saves` calls it.
  """
  exchange = ctypes.CDLL(None).signal
  exchange.argtypes = ctypes.c_int, ctypes.c_void_p
  exchange.restype = ctypes.c_void_p
  if found := exchange(signal.SIGTERM, None):
    _TELL_JAX[:] = [ctypes.CFUNCTYPE(None, ctypes.c_int)(found)]
  signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


@contextlib.contextmanager
def sigterm_saves() -> Iterator[Callable[[], bool]]:
  """Let a training loop answer SIGTERM with a checkpoint.

  Yields:
    A function that the loop calls after each step: whether SIGTERM has come. From
    its first call on, SIGTERM no longer ends the process, unless it comes twice.
  """
  came = []

  def handler(number, frame):
    came.append(number)
    signal.signal(number, leave)
    for tell in _TELL_JAX:
      tell(number)

  def asked() -> bool:
    if not came and signal.getsignal(signal.SIGTERM) == leave:
      signal.signal(signal.SIGTERM, handler)
    return bool(came)

  try:
    yield asked
    if came:  # after the last step
      leave(signal.SIGTERM)
  finally:
    if signal.getsignal(signal.SIGTERM) == handler:
      signal.signal(signal.SIGTERM, leave)


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
