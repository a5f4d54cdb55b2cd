# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""List the commands, room by room: `python -m experiments [WORD | --markdown]`.

A command is a module that runs as a program; its line is the first line of its
docstring. Sources are parsed, never imported, so the list appears at once.
"""

import ast
from collections.abc import Iterator
import itertools
import pathlib
import signal
import sys
from typing import NamedTuple

_FOLDER = pathlib.Path(__file__).parent
_USAGE = 'Run a command with `python -m NAME`; `python -m NAME --help` lists its flags.'
_MARKDOWN_HEAD = f"""# Commands

{_USAGE}
This page is generated: `python -m experiments --markdown > docs/commands.md`.
"""


class Command(NamedTuple):
  """A module that runs as a program."""

  room: str  # its folder in experiments/
  name: str  # dotted name, as in `python -m NAME`
  summary: str  # first line of its docstring


def _is_command(path: pathlib.Path, tree: ast.Module) -> bool:
  """Whether a module is run by users; benchmarks start their own workers."""
  worker = path.parent.name == 'benchmarks' and path.stem.endswith('_worker')
  return not worker and any(
    isinstance(node, ast.If)
    and ast.unparse(node.test) == "__name__ == '__main__'"
    for node in tree.body
  )


def _summary(tree: ast.Module) -> str:
  return (ast.get_docstring(tree) or '').partition('\n')[0]


def find_commands(word: str = '') -> Iterator[Command]:
  """Yield the commands whose name or summary contains a word."""
  for path in sorted(_FOLDER.glob('*/*.py')):
    tree = ast.parse(path.read_text(encoding='utf-8'))
    if _is_command(path, tree):
      room = path.parent.name
      found = Command(room, f'experiments.{room}.{path.stem}', _summary(tree))
      if word.lower() in f'{found.name} {found.summary}'.lower():
        yield found


def _by_room(word: str) -> Iterator[tuple[str, str, list[Command]]]:
  """Yield each room with its description and its commands."""
  for room, commands in itertools.groupby(
    find_commands(word), lambda command: command.room
  ):
    source = (_FOLDER / room / '__init__.py').read_text(encoding='utf-8')
    about = _summary(ast.parse(source))
    yield room, about, list(commands)


def as_text(word: str = '') -> str:
  """The list for a terminal."""
  width = max((len(x.name) for x in find_commands(word)), default=0)
  lines = []
  for room, about, commands in _by_room(word):
    lines += [f'{room}: {about}']
    lines += [f'  {x.name:{width}}  {x.summary}' for x in commands] + ['']
  return '\n'.join([*lines, _USAGE])


def as_markdown() -> str:
  """The page docs/commands.md."""
  lines = [_MARKDOWN_HEAD]
  for room, about, commands in _by_room(''):
    lines += [f'## {room}', '', about, '', '| command | purpose |', '|---|---|']
    lines += [f'| `{x.name}` | {x.summary} |' for x in commands] + ['']
  return '\n'.join(lines).rstrip()


def main(args: list[str]) -> None:
  """Print the list, or exits with one line when nothing matches."""
  word = ' '.join(args)
  if word == '--markdown':
    print(as_markdown())
  elif next(find_commands(word), None):
    print(as_text(word))
  else:
    sys.exit(
      f'error: no command matches {word!r}; `python -m experiments` lists all.'
    )


if __name__ == '__main__':
  # A reader such as `head` may leave early.
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)
  main(sys.argv[1:])
