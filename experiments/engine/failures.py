# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""One line for each failure that a user, a disk or a machine can cause.

Libraries raise many classes for a full disk, want of memory or a damaged file, some
wrapped in others, some from another process; a line names the file.
"""

from collections.abc import Iterable, Iterator
from concurrent import futures
import contextlib
import errno
import io
import lzma
import os
import tarfile
import traceback
import zipfile
import zlib

from retrieval.store import executors, space

_USER_ERRORS = (ValueError, KeyError, AttributeError, OSError, ImportError)
# They tell what is wrong within a file, but not in which one.
_NAMELESS = (UnicodeError, EOFError, zlib.error, lzma.LZMAError)
_NAMELESS += (zipfile.BadZipFile, tarfile.TarError)
_MAX_MESSAGE = 2000
_QUOTES = '\'"'
# Of local variables that are str, in the order in which they are believed.
_FILE_NAMES = ('file', 'path', 'filename')


def line_of(error: BaseException, workdir: str = '') -> str | None:
  """Return the failure on one line, or None for a bug of the code.

  Args:
    workdir: folder that is named if a full disk's error names no file.
  """
  causes = list(_causes(error))
  return (
    _out_of_space(causes, workdir)
    or _out_of_memory(causes)
    or _failed_job(causes)
    or _dead_worker(causes)
    or _bad_input(error)
  )


@contextlib.contextmanager
def named(path: str | os.PathLike) -> Iterator[None]:
  """Name a file in each ValueError that does not."""
  try:
    yield
  except ValueError as error:
    if str(path) in str(error):
      raise
    raise ValueError(f'{path}: {error}') from None


def _causes(error: BaseException) -> Iterator[BaseException]:
  """Yield an error, its parts and what they arose from, nearest first."""
  seen, todo = set(), [error]
  while todo:
    found = todo.pop(0)
    if found is None or id(found) in seen:
      continue
    seen.add(id(found))
    yield found
    todo += getattr(found, 'exceptions', ())  # of an ExceptionGroup
    todo.append(found.__cause__)
    if not found.__suppress_context__:
      todo.append(found.__context__)


def _out_of_space(causes: Iterable[BaseException], workdir: str) -> str | None:
  for error in causes:
    if isinstance(error, space.NoSpaceError):
      return _text(error)
  for error in causes:
    if space.is_full(error):
      path = file_of(error) or workdir or '.'
      return _text(space.error_of(error, path))
  return None


def _out_of_memory(causes: Iterable[BaseException]) -> str | None:
  for error in causes:
    text = _text(error)
    if (
      isinstance(error, MemoryError)
      or getattr(error, 'errno', None) == errno.ENOMEM
      or (isinstance(error, RuntimeError) and 'RESOURCE_EXHAUSTED' in text)
    ):
      return (
        f'out of memory: {text}; make the batch, the model or the number of '
        'processes smaller.'
      )
  return None


def _failed_job(causes: Iterable[BaseException]) -> str | None:
  found = (x for x in causes if isinstance(x, executors.JobError))
  return next(map(_text, found), None)


def _dead_worker(causes: Iterable[BaseException]) -> str | None:
  for error in causes:
    if isinstance(error, futures.BrokenExecutor) or (
      isinstance(error, RuntimeError)
      and 'Worker process was terminated unexpectedly' in str(error)
    ):
      return (
        f'a worker process was killed ({_text(error)}), as happens for want of '
        'memory: fewer processes need less; the same command continues.'
      )
  return None


def _bad_input(error: BaseException) -> str | None:
  if not isinstance(error, (*_USER_ERRORS, *_NAMELESS)) and not _is_json(error):
    return None
  # An AttributeError is the user's only if a config lacks the field.
  if isinstance(error, AttributeError) and not (
    error.args and isinstance(error.args[0], KeyError)
  ):
    return None
  text = _text(error)
  if isinstance(error, _NAMELESS) or _is_json(error) or _is_bare(error):
    name = file_of(error)
    if name and name not in text:
      return f'{name}: {text}'
  return text


def _is_json(error: BaseException) -> bool:
  """Whether a JSON parser, of any package, says what is wrong with a text."""
  return type(error).__name__ == 'JSONDecodeError' or (
    isinstance(error, RecursionError) and 'decoding a JSON' in str(error)
  )


def _is_bare(error: BaseException) -> bool:
  """Whether an error is no message of ours: a disk's code, or a key alone."""
  if isinstance(error, OSError):
    return error.errno is not None
  return isinstance(error, KeyError) and ' ' not in str(error)


def _text(error: BaseException) -> str:
  """The error on one line."""
  start = ''
  if isinstance(error, AttributeError) and error.args:
    start, error = 'the config lacks a field: ', error.args[0]
  text = str(error)
  if isinstance(error, KeyError) and error.args:
    text = start + str(error.args[0])  # str() would quote it
    text = (
      f'no {text.strip(_QUOTES)!r} there'
      if _is_bare(error) and not start
      else text
    )
  if isinstance(error, OSError) and error.strerror and error.filename:
    text = f'{error.filename}: {error.strerror}'
  line = ' '.join(text.split()) or type(error).__name__
  return line if len(line) <= _MAX_MESSAGE else line[:_MAX_MESSAGE] + ' ...'


def file_of(error: BaseException) -> str:
  """Return the file that an error is about, or ''.

  It is the error's own, or that in the local variables of the innermost function
  that has one: a path, an open file, or a name such as `path`.
  """
  if getattr(error, 'filename', None):
    return str(error.filename)
  found = ''
  for frame, _ in traceback.walk_tb(error.__traceback__):
    values = frame.f_locals
    names = [values.get(name) for name in _FILE_NAMES]
    opened = [getattr(x, 'name', x) for x in values.values() if _is_file(x)]
    paths = [x for x in values.values() if isinstance(x, os.PathLike)]
    named = [x for x in names if isinstance(x, str) and os.path.exists(x)]
    found = next(
      (str(x) for x in [*opened, *named, *paths] if not isinstance(x, int)),
      found,
    )
  return found


def _is_file(value: object) -> bool:
  return isinstance(value, io.IOBase) and isinstance(
    getattr(value, 'name', None), str
  )
