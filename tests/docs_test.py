# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""README and guides: commands parse, links resolve, figures are those of the evidence."""

import json
import pathlib
import re
import runpy
import shlex
import string

from absl import flags
import grain  # defines flags when it is first imported
import pytest

from experiments import __main__ as commands
from experiments.engine import command, configs, rooms
from experiments.tables import claims

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PAGES = sorted(x for y in ('*.md', 'docs/*.md') for x in _ROOT.glob(y))
_CONFIG = 'configs/retro_pretrain_quickstart.py'  # where a page says CONFIG
_BLOCK = re.compile(r'^```\w*\n(.*?)^```', re.DOTALL | re.MULTILINE)
_OF_README = (
  *('copying: RETRO - baseline', 'copying: RETRO - baseline, fresh documents'),
  'copying: RETRO - baseline of equal parameters',
  'copying: RETRO - baseline of equal time',
  *('copying: RETRO - off', 'trained with k = 10: RETRO - baseline'),
)


def _commands(text):
  """Yield the words of each command in a page."""
  names, text = {}, text.replace('\\\n', ' ')
  lines = '\n'.join(_BLOCK.findall(text)).splitlines()
  for line in lines + re.findall(r'`([^`\n]+)`', text):
    line = string.Template(line.removeprefix('$ ')).safe_substitute(names)
    if match := re.match(r'([A-Z])=(\S.*)', line):
      names[match[1]] = ' '.join(shlex.split(match[2]))
    elif re.search(r'python -m experiments\.(?!VERB|nano)', line):
      yield shlex.split(line.partition('python -m ')[2], comments=True)


def _check(monkeypatch, module, *args):
  """Run a module as a command that checks its arguments and does nothing else."""
  known = {'config', 'workdir', 'debug', 'help', 'helpfull'}
  fields = [x[9:].split('=', 1) for x in args if x.startswith('--config.')]
  rest = [x for x in args if not x.startswith('--config.')]
  named = dict(x[2:].split('=', 1) for x in rest if re.match('--.*=', x))

  def define(name, *_, **__):
    known.update([name] if isinstance(name, str) else name)

  def main(run, root=None, *, section=None, **more):
    path = named.get('config', more.get('default_config', 'CONFIG'))
    config = configs.load(re.sub('^CONFIG$', _CONFIG, path))
    root = root or rooms.config_class(config.task)
    if isinstance(run, str):
      section = rooms.section(config.task, run)
    configs.complete(config, [x for x in fields if x[1:]], root, section)
    assert more.get('text') or all(x.startswith('--') for x in rest)
    main_of_script(None)

  def main_of_script(_, own_arguments=False, text=''):
    flagged = {x[2:].partition('=')[0] for x in rest if x.startswith('--')}
    assert own_arguments or flagged <= known, flagged - known

  for name in dir(flags):
    if name.startswith(('DEFINE_', 'register_', 'mark_')):
      monkeypatch.setattr(flags, name, define)
  assert grain  # not imported while nothing defines flags
  monkeypatch.setattr(command, 'define_output', define)
  monkeypatch.setattr(command, 'main', main)
  monkeypatch.setattr(command, 'main_of_script', main_of_script)
  runpy.run_module(module, run_name='__main__', alter_sys=True)


@pytest.mark.filterwarnings('ignore:.*found in sys.modules')
@pytest.mark.parametrize('page', _PAGES, ids=lambda x: x.name)
def test_commands_parse(page, monkeypatch):
  monkeypatch.chdir(_ROOT)
  for words in _commands(page.read_text()):
    _check(monkeypatch, *words)


def _anchors(page):
  heads = re.findall('^#+ (.*)', page.read_text().lower(), re.MULTILINE)
  return {re.sub(r'[^\w\- ]', '', x).replace(' ', '-') for x in heads}


def test_links_resolve():
  for page in [*_PAGES, *(_ROOT / 'docs').glob('*/*.md')]:
    text = _BLOCK.sub('', page.read_text())
    for link in re.findall(r'\]\((?!http)([^)\s]+)\)', text):
      path, _, anchor = link.partition('#')
      target = page.parent / path if path else page
      assert target.exists(), f'{page.name}: {link}'
      assert not anchor or anchor in _anchors(target), f'{page.name}: {link}'


def test_figures_are_those_of_the_evidence():
  docs = _ROOT / 'docs'
  page, judged = claims.load(docs)
  measured = {y.what: y.figures() for x in judged for y in x.differences}
  readme = ' '.join((_ROOT / 'README.md').read_text().split())
  shown = re.findall(r'\| ([+-][.\d]+) \| ([+-].*?) \|', readme)
  assert [f'{x} [{y}]' for x, y in shown] == [measured[x] for x in _OF_README]
  fresh = measured['trained with k = 10: RETRO - baseline, fresh documents']
  assert f'(fresh documents: {fresh.split()[0]})' in readme
  papers = [x.verdict for x in judged if not x.claim.control]
  counted = re.search(r"papers' claims (.*?) \(\[claims", readme)[1]
  counts = [str(papers.count(x)) for x in claims.VERDICTS]
  assert re.findall(r'\d+', counted) == counts
  facts = docs / claims.EVIDENCE / 'reading/facts_rows.json'
  rows = json.loads(facts.read_text())
  right = sum(x['right'] for x in rows if x['mode'] == 'real')
  assert f'completes {right} ' in readme
  for name, expected in (
    ('commands.md', commands.as_markdown(commands.find_commands()) + '\n'),
    ('config.md', commands.fields_as_markdown() + '\n'),
    (claims.FILE, page),
  ):
    assert (docs / name).read_text() == expected, f'{name}: write it anew'
