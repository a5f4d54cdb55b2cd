# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""List the commands, room by room: `python -m experiments [--markdown | --fields]`.

A command is a module that runs as a program; its line is the first line of its
docstring. Sources are parsed, never imported, so the list appears at once.
`python -m experiments --fields` prints the page of all fields of configs.
"""

import ast
import html
import pathlib
import signal
import sys

_FOLDER = pathlib.Path(__file__).parent
_USAGE = 'Run a command with `python -m NAME`; `python -m NAME --help` lists its flags.'
_MARKDOWN_HEAD = f"""# Commands

{_USAGE}
This page is generated: `python -m experiments --markdown > docs/commands.md`.
"""

_FIELDS_HEAD = """# Fields of configs

`--config.FIELD=VALUE` sets a field of any command with a config; files of configs/ set others
than these defaults. `config.evaluate` and its like belong to the command of that name.
This page is generated: `python -m experiments --fields > docs/config.md`.
"""


def find_commands() -> dict[str, dict[str, str]]:
  """Return, for each room and its purpose, its commands and theirs."""
  rooms = {}
  for init in (_FOLDER / '__init__.py', *sorted(_FOLDER.glob('*/__init__.py'))):
    parts = init.parent.relative_to(_FOLDER).parts
    names = {}
    of_room = init.parent.glob('__main__.py') if parts else ()
    for path in (*of_room, *sorted(init.parent.glob('[!_]*.py'))):
      text = path.read_text(encoding='utf-8')
      if "\nif __name__ == '__main__'" in text:
        name = '.'.join(('experiments', *parts, path.stem))
        names[name.removesuffix('.__main__')] = _summary(text)
    if names:
      about = _summary(init.read_text(encoding='utf-8'))
      title = parts[0] if parts else 'For every model'
      rooms[f'{title}: {about}'] = names
  return rooms


def _summary(text: str) -> str:
  return (ast.get_docstring(ast.parse(text)) or '').partition('\n')[0]


def as_text(rooms: dict[str, dict[str, str]]) -> str:
  """The list for a terminal."""
  width = max(len(name) for names in rooms.values() for name in names)
  lines = []
  for room, names in rooms.items():
    lines += [room, *(f'  {x:{width}}  {y}' for x, y in names.items()), '']
  return '\n'.join([*lines, _USAGE])


def as_markdown(rooms: dict[str, dict[str, str]]) -> str:
  """The page docs/commands.md."""
  lines = [_MARKDOWN_HEAD]
  for room, names in rooms.items():
    title, _, about = room.partition(': ')
    lines += [f'## {title}\n\n{about}\n\n| command | purpose |\n|---|---|']
    lines += [f'| `{x}` | {y} |' for x, y in names.items()] + ['']
  return '\n'.join(lines).rstrip()


def fields_as_markdown() -> str:
  """The page docs/config.md: a table for each section and its tasks."""
  from experiments import retrieve, sample
  from experiments.engine import configs, field_help, rooms

  used = [(task, rooms.config_class(task), 'config') for task in rooms.ROOMS]
  for task, verbs in rooms.ROOMS.items():
    sections = (rooms.section(task, x) for x in verbs if x != 'config')
    used += [
      (task, x, f'config.{configs.section_name(x)}') for x in sections if x
    ]
  used.append(('sample', sample.Sample, 'config.sample'))
  used.append(('retrieve', retrieve.Evaluate, 'config.evaluate'))
  rows = {}  # by section, class and field
  for task, cls, name in used:
    values = configs.of(cls).to_dict()
    for *key, about, value, text in field_help.fields(cls, values, name):
      text = html.escape(' '.join(text.split()), False).replace('|', r'\|')
      row = rows.setdefault(tuple(key), (about, {}, text, {}))
      row[1][f'`{value!r}`'] = row[3][task] = True
  tables: dict[str, list[str]] = {}
  for (section, _, field), (about, values, text, tasks) in rows.items():
    line = f'| `{field}` | {about} | {" or ".join(values)} | {text} |'
    tables.setdefault(f'## {section}: {", ".join(tasks)}', []).append(line)
  lines = [_FIELDS_HEAD]
  for title, table in tables.items():
    lines += [title, '', '| field | type | default | about |']
    lines += ['|---|---|---|---|', *table, '']
  return '\n'.join(lines).rstrip()


if __name__ == '__main__':
  # A reader such as `head` may leave early.
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)
  if unknown := {*sys.argv[1:]} - {'--fields', '--markdown'}:
    sys.exit(
      f'error: unknown {sorted(unknown)}: expected --markdown, --fields or none.'
    )
  if '--fields' in sys.argv:
    print(fields_as_markdown())
  else:
    as_page = as_markdown if '--markdown' in sys.argv else as_text
    print(as_page(find_commands()))
