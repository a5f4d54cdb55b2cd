# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The tools of an assistant, over two runs as one, called by the package's client."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import types

import pytest

from experiments.serve import app, models, tools
from tests.experiments.open_qa import tiny_open_qa


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  root = tmp_path_factory.mktemp('tools')
  runs = [tiny_open_qa.untrained(root / name) for name in 'pq']
  return ','.join(str(x.workdir) for x in runs)


@pytest.fixture(scope='module')
def opened(workdir):
  models.check([workdir])
  return models.open_models([workdir], 'minilm')


def _server(opened):
  async def server():
    return app.Server(opened, app.Limits())

  return server


def _call(opened, name, **fields):
  return asyncio.run(tools.call(_server(opened), name, fields))


def test_results_name_their_sources(opened):
  [name] = opened.names()
  assert name == 'reader-p+q'
  hits = _call(opened, 'search', query='the mill in Rome', k=7)['passages']
  assert {x['document'][:2] for x in hits} == {'p:', 'q:'}
  answer = _call(opened, 'ask', question='Where was the mill?', answers=2)
  for source in (*hits, answer):
    document = _call(opened, 'read_document', document=source['document'])
    assert source['text'] in document['text']
    assert document['title'] == source['title'] and document['next'] is None
  assert answer['text'][slice(*answer['span'])] == answer['answer']


def test_a_document_of_a_realm_alone_is_read(opened):
  [run] = opened.runs
  alone = types.SimpleNamespace(data=run.reader.data.parts[0])
  alone = models.Models([models.Run(realm=alone)])
  document = _call(alone, 'read_document', document='d3')
  assert document['text'] == run.document('p:d3')['text']


def test_a_long_document_is_read_in_parts(opened, monkeypatch):
  whole = _call(opened, 'read_document', document='q:d3')
  monkeypatch.setattr(tools, '_MOST', 10)
  text, start = '', 0
  while start is not None:
    part = _call(opened, 'read_document', document='q:d3', start=start)
    text, start = text + part['text'], part['next']
  assert text == whole['text'] and len(text) == whole['characters'] > 10


@pytest.mark.parametrize(
  ('tool', 'fields', 'name'),
  [
    ('search', {}, 'query'),
    ('read_document', {'start': 5}, 'document'),
    ('search', {'query': ' '}, 'query'),
    ('search', {'query': 'a', 'k': 0}, 'k'),
    ('search', {'query': 'a', 'top': 2}, 'top'),
    ('ask', {'question': 5}, 'question'),
    ('read_document', {'document': 'd3'}, 'document'),
    ('read_document', {'document': 'q:d3', 'start': -1}, 'start'),
  ],
)
def test_bad_arguments_are_named(opened, tool, fields, name):
  with pytest.raises(ValueError, match=f"^{name}[=:]|: field '{name}'"):
    _call(opened, tool, **fields)


def test_documents_of_several_folders_stay(opened, tmp_path):
  with pytest.raises(ValueError, match='several folders'):
    opened.changed(tmp_path, [], ['p:d3'])
  assert opened.runs[0].document('d3') is None


def test_runs_are_checked_before_they_are_loaded(workdir, tmp_path):
  with pytest.raises(FileNotFoundError):
    models.check([f'{workdir},{tmp_path}/none'])


def test_the_client_calls_the_tools(opened):
  pytest.importorskip('mcp_types')
  from mcp.client import client as client_lib
  from mcp.shared import exceptions

  async def call():
    async with client_lib.Client(tools.make(_server(opened))) as client:
      listed = (await client.list_tools()).tools
      assert [x.name for x in listed] == [*tools.TOOLS]
      assert listed[0].input_schema['required'] == ['query']
      result = await client.call_tool('search', {'query': 'the mill'})
      assert json.loads(result.content[0].text) == result.structured_content
      assert result.structured_content['passages'][0]['title']
      result = await client.call_tool('search', {'query': 'a', 'k': 0})
      assert result.is_error and result.content[0].text.startswith('k=0')
      with pytest.raises(exceptions.MCPError, match='nothing'):
        await client.call_tool('nothing', {})

  asyncio.run(call())


@pytest.mark.slow
def test_the_command_speaks_the_protocol_alone_and_ends(workdir):
  pytest.importorskip('mcp_types')
  from mcp.client import client as client_lib, stdio

  command = ['-m', 'experiments.serve', '--mcp', f'--workdir={workdir}']
  given = stdio.StdioServerParameters(
    command=sys.executable, args=command, env=dict(os.environ)
  )

  async def call():
    async with client_lib.Client(stdio.stdio_client(given)) as client:
      result = await client.call_tool('ask', {'question': 'Where was Rome?'})
      assert result.structured_content['document'][:2] in ('p:', 'q:')

  asyncio.run(call())
  pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}
  for end, code in (('close', 0), (signal.SIGINT, 130), (signal.SIGTERM, 143)):
    with subprocess.Popen([sys.executable, *command], **pipes) as process:
      ping = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
      process.stdin.write(ping)
      process.stdin.flush()
      assert json.loads(process.stdout.readline())['id'] == 1
      if end == 'close':
        process.stdin.close()
      else:
        process.send_signal(end)
      assert process.wait(200) == code and not process.stdout.read()
  bad = subprocess.run(
    [sys.executable, *command[:-1], '--workdir=none'],
    capture_output=True,
    text=True,
  )
  assert bad.returncode == 1 and not bad.stdout
  assert bad.stderr.count('\n') == 1 and 'none' in bad.stderr


def test_the_missing_package_is_named(opened, monkeypatch):
  monkeypatch.setitem(sys.modules, 'mcp_types', None)
  with pytest.raises(ImportError, match=r'\[mcp\]'):
    tools.make(_server(opened))
