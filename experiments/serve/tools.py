# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The tools of an assistant, by the Model Context Protocol on stdin and stdout.

search         passages of the documents, best first
ask            the answer of a reader, with its source and runner-ups
read_document  the text of a document, by an id that the others tell

A result is JSON, structured and as text. The models load while the assistant connects.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
import functools
import json
from typing import Any

from experiments.serve import app as app_lib, http, models as models_lib
from retrieval import settings
from retrieval.readers import base

NAME = 'realm-retro'
_MOST = 20_000  # characters of a document in one result
_TEXT, _COUNT = {'type': 'string'}, {'type': 'integer', 'minimum': 1}
# name -> description, and the properties of its arguments, the first of which it needs
TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
  'search': (
    'Find passages of the documents, best first, each with the id of its document.',
    {'query': _TEXT, 'k': _COUNT | {'maximum': 100, 'default': 5}},
  ),
  'ask': (
    'Answer a question by a span of one of the documents. "prediction" is empty where '
    'they seem to hold no answer; "runner_ups" are the next likely ones.',
    {'question': _TEXT, 'answers': _COUNT | {'maximum': 100, 'default': 5}},
  ),
  'read_document': (
    f'Read a document by its id. A result has at most {_MOST:,} characters; "next" is '
    'the start of the rest, null at the end.',
    {'document': _TEXT, 'start': {'type': 'integer', 'minimum': 0}},
  ),
}


Opened = Callable[[], Awaitable[app_lib.Server]]


async def call(
  opened: Opened, name: str, fields: Mapping[str, Any]
) -> dict[str, Any]:
  """Return the result of one of `TOOLS`.

  Raises:
    ValueError: for arguments that do not fit, naming one.
  """
  _, properties = TOOLS[name]
  for other in fields.keys() - {*properties, 'model'}:
    expected = f'only {[*properties, "model"]}'
    raise settings.SettingsError(other, fields[other], expected)
  if (needed := next(iter(properties))) not in fields:
    raise ValueError(f'{needed}: missing; expected a text.')
  server = await asyncio.shield(opened())
  if name == 'read_document':
    return _read_document(server.models, fields)
  answer = server.search if name == 'search' else server.ask
  return await answer(dict(fields))


def _read_document(
  models: models_lib.Models, fields: Mapping[str, Any]
) -> dict[str, Any]:
  """Return a part of a document; ValueError where no run has it."""
  name, start = base.string(fields, 'document', 'call'), fields.get('start', 0)
  settings.check_value('start', start, settings.Count)
  for run in models.runs:
    if (document := run.document(name)) is not None:
      text = document['text'][start : start + _MOST]
      end, size = start + len(text), len(document['text'])
      more = {'start': start, 'next': end if end < size else None}
      return document | {'text': text, 'characters': size} | more
  expected = 'an id that search or ask tells'
  raise settings.SettingsError('document', name, expected)


def make(opened: Opened) -> Any:
  """Return the server of the protocol; ImportError without its package."""
  try:
    from mcp.server import lowlevel
    from mcp.shared import exceptions
    import mcp_types as types
  except ImportError as error:
    raise ImportError(
      f"--mcp: {error}; pip install 'realm-retro-jax[mcp]'."
    ) from None

  async def list_tools(*unused) -> types.ListToolsResult:
    read_only = types.ToolAnnotations(read_only_hint=True)
    return types.ListToolsResult(
      tools=[
        types.Tool(
          name=name,
          description=description,
          input_schema={
            'type': 'object',
            'properties': properties | {'model': _TEXT},
            'required': [next(iter(properties))],
          },
          annotations=read_only,
        )
        for name, (description, properties) in TOOLS.items()
      ]
    )

  async def call_tool(unused, params) -> types.CallToolResult:
    if params.name not in TOOLS:
      message = f'No tool {params.name!r}, only {[*TOOLS]}.'
      raise exceptions.MCPError(types.INVALID_PARAMS, message)
    try:
      result = await call(opened, params.name, params.arguments or {})
    except Exception as error:
      line = http.problem(error)[0]['error']['message']
      content = [types.TextContent(type='text', text=line)]
      return types.CallToolResult(content=content, is_error=True)
    text = json.dumps(result, ensure_ascii=False)
    content = [types.TextContent(type='text', text=text)]
    return types.CallToolResult(content=content, structured_content=result)

  return lowlevel.Server(
    NAME,
    instructions='Search and question answering over documents, with sources.',
    on_list_tools=list_tools,
    on_call_tool=call_tool,
  )


def run(load: Callable[[], models_lib.Models], limits: Any) -> None:
  """Serve the tools until stdin is closed; the log goes to stderr."""

  @functools.cache
  def opened() -> asyncio.Future:
    opening = asyncio.to_thread(lambda: app_lib.Server(load(), limits))
    return asyncio.ensure_future(opening)

  made = make(opened)
  from mcp.server import stdio

  async def serve() -> None:
    async with stdio.stdio_server() as streams:
      opened()
      await made.run(*streams, made.create_initialization_options())

  asyncio.run(serve())
