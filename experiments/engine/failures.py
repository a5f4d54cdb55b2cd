# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""One line for each failure that a user, a disk or a machine can cause."""

from collections.abc import Iterator
import contextlib
import errno
import os

from retrieval.store import executors, output_files

_USER_ERRORS = (ValueError, KeyError, OSError, ImportError)
_KILLED = 'Worker process was terminated unexpectedly'  # Grain's words
_MAX_MESSAGE = 2000


def line_of(error: BaseException, workdir: str = '') -> str | None:
  """Return the failure on one line, or None for a bug of the code.

  Args:
    workdir: folder that is named if a full disk's error names no file.
  """
  for cause in _causes(error):
    text, number = _text(cause), getattr(cause, 'errno', None)
    of_runtime = isinstance(cause, RuntimeError)
    if isinstance(cause, executors.JobError):
      return text
    if output_files.is_full(cause):
      if not isinstance(cause, output_files.FullError):
        path = getattr(cause, 'filename', None)
        where = '' if path else f'{workdir or "."}: '
        left = output_files.space_left(path or workdir or '.')
        text = f'{where}{text}; {left}'
      return f'{text}; free some space and run the same command again.'
    if (
      isinstance(cause, MemoryError)
      or number == errno.ENOMEM
      or (of_runtime and 'RESOURCE_EXHAUSTED' in text)
    ):
      return (
        f'out of memory: {text}; make the batch, the model or the number of '
        'processes smaller.'
      )
    if of_runtime and _KILLED in text:
      return (
        f'a worker process was killed ({text}), as happens for want of '
        'memory: run again with fewer processes.'
      )
  return _text(error) if isinstance(error, _USER_ERRORS) else None


@contextlib.contextmanager
def named(path: str | os.PathLike, *kinds: type) -> Iterator[None]:
  """Name a file in each ValueError, or error of `kinds`, that does not."""
  try:
    yield
  except (ValueError, *kinds) as error:
    if str(path) in str(error):
      raise
    raise ValueError(f'{path}: {str(error).removesuffix(".")}.') from None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
  """Yield an error, its parts and their causes."""
  if error is None:
    return
  yield error
  for part in getattr(error, 'exceptions', ()):  # of an ExceptionGroup
    yield from _causes(part)
  hidden = error.__suppress_context__
  yield from _causes(error.__cause__ if hidden else error.__context__)


def _text(error: BaseException) -> str:
  text = str(error)
  if isinstance(error, KeyError) and error.args:
    text = str(error.args[0])  # str() would quote it
    text = text if ' ' in text else f'no {text!r} there'
  if isinstance(error, OSError) and error.strerror:
    name = f'{error.filename}: ' if error.filename else ''
    text = f'{name}{error.strerror}'
  line = ' '.join(text.split()) or type(error).__name__
  return line if len(line) <= _MAX_MESSAGE else line[:_MAX_MESSAGE] + ' ...'
