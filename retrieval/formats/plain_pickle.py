# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Pickles of plain data, read without executing them.

Most instructions of a pickle build lists, dicts, numbers and strings; a few
import and call. This module follows the former. For the latter it uses a table
of known names from the caller and refuses every other name, so it never imports
anything and calls only the caller's functions.
"""

from collections.abc import Callable, Iterator, Mapping
import io
import os
import pickletools
import sys
from typing import Any

# 'module name' of a global -> function to call in its place.
Known = Mapping[str, Callable[..., Any]]
Operation = tuple[str, Any, int]  # name, argument, byte in the file

_CONSTANTS = {'NONE': None, 'NEWTRUE': True, 'NEWFALSE': False}
_EMPTY = {'EMPTY_DICT': dict, 'EMPTY_LIST': list, 'EMPTY_TUPLE': tuple}
PUT = ('PUT', 'BINPUT', 'LONG_BINPUT')
GET = ('GET', 'BINGET', 'LONG_BINGET')
_TUPLES = {'TUPLE1': 1, 'TUPLE2': 2, 'TUPLE3': 3}
_LITERALS = {
  'INT',
  'BININT',
  'BININT1',
  'BININT2',
  'LONG',
  'LONG1',
  'LONG4',
  'FLOAT',
  'BINFLOAT',
  'BINUNICODE',
  'SHORT_BINUNICODE',
  'BINUNICODE8',
  'UNICODE',
  'BINBYTES',
  'SHORT_BINBYTES',
  'BINBYTES8',
  'BINSTRING',
  'SHORT_BINSTRING',
  'STRING',
}


class Global:
  """A name that a pickle asks to import; it is never imported."""

  def __init__(self, name: str):
    self.name = name


def operations(file: io.BufferedIOBase) -> Iterator[Operation]:
  """Yield the instructions of a pickle without executing them.

  Raises:
    ValueError: for bytes that are not a pickle.
  """
  try:
    for opcode, argument, position in pickletools.genops(_Held(file)):
      yield opcode.name, argument, position or 0
  except (ValueError, IndexError, UnicodeDecodeError) as e:
    raise ValueError(f'not a pickle: {e}') from None


class _Held:
  """A file that holds lengths against its size before they are allocated."""

  def __init__(self, file: io.BufferedIOBase):
    self.readline, self.tell, self._read = file.readline, file.tell, file.read
    try:
      self._size = os.fstat(file.fileno()).st_size
    except OSError:  # in memory or in an archive, which allocate what they hold
      self._size = sys.maxsize

  def read(self, length: int) -> bytes:
    if length > self._size:
      raise ValueError(f'{length} bytes in a file of {self._size}')
    return self._read(length)


class Machine:
  """Follows the instructions of a pickle that build plain data.

  Attributes:
    stack: values built but not yet used.
  """

  def __init__(
    self,
    known: Known,
    persistent: Callable[[Any], Any] | None = None,
  ):
    """Starts with an empty stack.

    Args:
      known: 'module name' -> function that builds the result of its call.
      persistent: (description) -> an object stored beside the pickle.
    """
    self._known, self._persistent = known, persistent
    self._memo: dict[int, Any] = {}
    self._marks: list[int] = []
    self.stack: list[Any] = []

  def run(self, file: io.BufferedIOBase) -> Any:
    """Follow a whole pickle and return its value.

    Raises:
      ValueError: naming an import or an instruction that is not plain data.
    """
    for operation in operations(file):
      try:
        self.step(*operation)
      except (IndexError, KeyError, TypeError, AttributeError) as e:
        raise ValueError(
          f'not a well-formed pickle: {operation[0]} at byte {operation[2]} '
          f'({type(e).__name__}: {e}).'
        ) from None
    if len(self.stack) != 1:
      raise ValueError(f'a pickle of {len(self.stack)} values; expected one.')
    return self.stack[0]

  def step(self, name: str, argument: Any, position: int) -> None:
    """Follow one instruction."""
    stack = self.stack
    if name in _LITERALS:
      stack.append(argument)
    elif name in _CONSTANTS:
      stack.append(_CONSTANTS[name])
    elif name in _EMPTY:
      stack.append(_EMPTY[name]())
    elif name in PUT:
      self._memo[int(argument)] = stack[-1]
    elif name == 'MEMOIZE':
      self._memo[len(self._memo)] = stack[-1]
    elif name in GET:
      stack.append(self._memo[int(argument)])
    elif name == 'MARK':
      self._marks.append(len(stack))
      stack.append(None)
    elif name in _TUPLES:
      count = _TUPLES[name]
      stack[-count:] = [tuple(stack[-count:])]
    elif name == 'GLOBAL':
      stack.append(Global(argument))
    elif name == 'STACK_GLOBAL':
      stack[-2:] = [Global(f'{stack[-2]} {stack[-1]}')]
    elif name not in ('PROTO', 'FRAME', 'STOP'):
      self._change(name, position)

  def _change(self, name: str, position: int) -> None:
    """Follow an instruction that takes values off the stack."""
    stack = self.stack
    if name in ('TUPLE', 'LIST', 'DICT'):
      items = self._since_mark()
      pairs = zip(items[::2], items[1::2], strict=True)
      made = {'TUPLE': tuple(items), 'LIST': items}
      stack.append(dict(pairs) if name == 'DICT' else made[name])
    elif name in ('SETITEMS', 'SETITEM'):
      items = self._since_mark() if name == 'SETITEMS' else _pop(stack, 2)
      _plain(stack[-1], dict).update(zip(items[::2], items[1::2], strict=True))
    elif name in ('APPENDS', 'APPEND'):
      items = self._since_mark() if name == 'APPENDS' else _pop(stack, 1)
      _plain(stack[-1], list).extend(items)
    elif name == 'BINPERSID' and self._persistent:
      stack.append(self._persistent(stack.pop()))
    elif name == 'REDUCE':
      function, arguments = _pop(stack, 2)
      stack.append(self._lookup(function)(*arguments))
    elif name == 'BUILD':
      _pop(stack, 1)  # attributes of a container; not data
    else:
      raise ValueError(
        f'instruction {name} at byte {position}: expected plain data; refused, '
        'and nothing of it was executed.'
      )

  def _lookup(self, function: Any) -> Callable[..., Any]:
    name = function.name if isinstance(function, Global) else repr(function)
    if name not in self._known:
      raise ValueError(
        f'it wants to call {name!r}; expected nothing but '
        f'{sorted(self._known)}: refused, and nothing of it was executed.'
      )
    return self._known[name]

  def _since_mark(self) -> list:
    at = self._marks.pop()
    items = self.stack[at + 1 :]
    del self.stack[at:]
    return items


def _plain(value: Any, kind: type) -> Any:
  if type(value) is not kind:
    raise ValueError(f'items for a {type(value).__name__}; refused.')
  return value


def _pop(stack: list, count: int) -> list:
  items = stack[-count:]
  if len(items) < count:
    raise IndexError('the stack is empty')
  del stack[-count:]
  return items
