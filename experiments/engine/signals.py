# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The end of a command on a signal: one line, exit code 128 + its number.

Ctrl-C is 130, SIGTERM 143, a closed terminal (SIGHUP) 129; a command that nohup
started goes on. Everything on disk is whole at any moment, so that the process may
end at once; processes that it started end by themselves (`retrieval.store.children`).
Only a training loop asks for more time after SIGTERM: it saves a checkpoint. In
notebooks, which do not call `watch`, Ctrl-C stays a KeyboardInterrupt.
"""

from collections.abc import Callable, Iterator
import contextlib
import os
import signal
import sys
from typing import NoReturn

from experiments.engine import heap

_AGAIN = 'Run the same command again to resume.'
_LINES = {
  signal.SIGINT: f'Interrupted. {_AGAIN}',
  signal.SIGTERM: f'Terminated. {_AGAIN}',
  signal.SIGHUP: f'The terminal was closed. {_AGAIN}',
}
_CLEAR_LINE, _SHOW_CURSOR = '\r\x1b[K', '\x1b[?25h'


class Terminated(SystemExit):
  """A training loop has saved its state after SIGTERM; the exit code is 143."""

  def __init__(self, step: int):
    """Print the line of a step that is saved."""
    super().__init__(128 + signal.SIGTERM)
    print(f'Terminated after step {step}, saved. {_AGAIN}', file=sys.stderr)


def watch() -> None:
  """Answer the signals from now on; call it in the main thread."""
  heap.keep_memory()
  # Python's resource tracker removes what workers leave, and need not say so.
  warnings = (os.environ.get('PYTHONWARNINGS'), 'ignore:resource_tracker')
  os.environ['PYTHONWARNINGS'] = ','.join(filter(None, warnings))
  for number in _LINES:
    if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets SIGHUP
      signal.signal(number, leave)


@contextlib.contextmanager
def sigterm_saves() -> Iterator[Callable[[], bool]]:
  """Let a training loop answer SIGTERM with a checkpoint.

  Yields:
    A function that the loop calls after each step: whether SIGTERM has come. From
    its first call on, SIGTERM no longer ends the process, unless it comes twice.
  """
  came = []
  before = None

  def handler(number, frame):
    came.append(number)
    signal.signal(number, before)

  def asked() -> bool:
    nonlocal before
    if before is None and signal.getsignal(signal.SIGTERM) == leave:
      before = signal.signal(signal.SIGTERM, handler)
    return bool(came)

  try:
    yield asked
    if came:  # after the last step
      leave(signal.SIGTERM)
  finally:
    if before is not None:
      signal.signal(signal.SIGTERM, before)


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
