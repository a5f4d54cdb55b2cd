# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Requests and responses in JSON: bounds, errors in OpenAI's form, safe headers."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
import json
import pathlib
import re
import time
from typing import Any

from absl import logging
from starlette import exceptions, requests, responses

from experiments.engine import failures
from experiments.serve import metrics as metrics_lib, models as models_lib
from retrieval import settings
from retrieval.readers import base

RETRY = {'Retry-After': '2'}
_JSON = 'application/json'
_HEADERS = {
  'Content-Security-Policy': (
    "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
  ),
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
}

Answer = Callable[[dict[str, Any]], Coroutine[Any, Any, Any]]
Handler = Callable[[requests.Request], Coroutine[Any, Any, responses.Response]]


def as_json(
  content: Any, status: int = 200, headers: dict[str, str] | None = None
) -> responses.Response:
  """Return a response with JSON values."""
  return responses.Response(json.dumps(content), status, headers, _JSON)


def event(content: Any) -> str:
  """Return a server-sent event with JSON values."""
  return f'data: {json.dumps(content)}\n\n'


def problem(error: BaseException) -> tuple[dict, int, dict[str, str]]:
  """Return an error in OpenAI's form, its status, and headers."""
  kind, headers, field = 'invalid_request_error', {}, None
  status, message = 400, failures.line_of(error)
  if isinstance(error, exceptions.HTTPException):
    status, message = error.status_code, error.detail
    headers = dict(error.headers or {})
    kind = 'overloaded_error' if status == 503 else kind
  elif isinstance(error, models_lib.Missing):
    status = 404
  elif isinstance(error, settings.SettingsError):
    field = error.args[0].removeprefix('request.')
  elif isinstance(error, requests.ClientDisconnect):
    status, message = 499, 'The client left.'
  elif isinstance(error, TimeoutError):
    status, kind = 504, 'timeout_error'
    message = 'The answer took longer than the server allows.'
  elif not isinstance(error, ValueError):
    logging.error('A request failed.', exc_info=error)
    status, kind = 500, 'server_error'
    message = message or 'The server failed; see its log.'
  content = {'message': message, 'type': kind, 'param': field, 'code': None}
  return {'error': content}, status, headers


def post(
  path: str,
  answer: Answer,
  metrics: metrics_lib.Metrics,
  max_bytes: int,
  seconds: float,
) -> Handler:
  """Return the handler of a POST; `answer` gets its body.

  It refuses other types of content: a page of another site cannot send this one
  without being asked for permission, which it does not get.
  """

  async def handle(request: requests.Request) -> responses.Response:
    start = time.monotonic()
    try:
      async with asyncio.timeout(seconds):
        body = await _body(request, max_bytes)
      response = await _while_connected(request, answer(body))
      if not isinstance(response, responses.Response):
        response = as_json(response)
    except Exception as error:
      response = as_json(*problem(error))
    took = time.monotonic() - start
    code = f'{response.status_code}'
    metrics.add('requests_total', path=path, code=code)
    metrics.observe('request_seconds', took, path=path)
    return response

  return handle


async def _while_connected(request: requests.Request, answer: Any) -> Any:
  """Return the answer; cancel it and raise ClientDisconnect where the client leaves."""
  job = asyncio.create_task(answer)
  left = asyncio.create_task(request.receive())  # the body was read
  try:
    await asyncio.wait({job, left}, return_when=asyncio.FIRST_COMPLETED)
    if not job.done():
      raise requests.ClientDisconnect
    return job.result()
  finally:
    job.cancel()
    left.cancel()


async def _body(request: requests.Request, most: int) -> dict[str, Any]:
  kind = request.headers.get('content-type', '').split(';')[0]
  if kind.strip().lower() != _JSON:
    raise exceptions.HTTPException(415, f'Expected content-type: {_JSON}.')
  content = bytearray()
  async for part in request.stream():
    content += part
    if len(content) > most:
      message = f'Expected a body of at most {most:,} bytes.'
      raise exceptions.HTTPException(413, message)
  try:
    body = json.loads(content)
  except (ValueError, RecursionError) as error:
    raise ValueError(f'The body is no JSON: {error}') from None
  return base.check_type(body, 'The body', dict)


def file(path: pathlib.Path) -> Handler:
  """Return the handler of a file of the page, with safe headers."""

  async def handle(unused_request: requests.Request) -> responses.Response:
    return responses.FileResponse(path, headers=_HEADERS)

  return handle


class Hosts:
  """Middleware that refuses requests to other names than these."""

  def __init__(self, app: Any, names: Sequence[str]):
    self._app, self._names = app, {*names}

  async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
    """Pass a request on, or answer it with an error."""
    app = self._app
    if scope['type'] == 'http' and '*' not in self._names:
      host = requests.Request(scope).headers.get('host', '')
      name = re.sub(r':\d*$', '', host).lower()
      if name not in self._names:
        message = f'Host {host!r}: expected one of {sorted(self._names)}.'
        app = as_json(*problem(exceptions.HTTPException(400, message)))
    await app(scope, receive, send)
