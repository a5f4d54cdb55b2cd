# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Requests and responses in JSON: bounds, errors in OpenAI's form, safe headers."""

import asyncio
from collections.abc import Awaitable, Callable
import json
import time
from typing import Any

from absl import logging
from starlette import exceptions, requests, responses, staticfiles

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

Answer = Callable[[dict[str, Any]], Awaitable[Any]]


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
) -> Callable[[requests.Request], Awaitable[responses.Response]]:
  """Return the handler of a POST; `answer` gets its body.

  It refuses other types of content: a page of another site cannot send this one
  without being asked for permission, which it does not get.
  """

  async def handle(request: requests.Request) -> responses.Response:
    start = time.monotonic()
    try:
      async with asyncio.timeout(seconds):
        body = await _body(request, max_bytes)
      response = await answer(body)
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


async def _body(request: requests.Request, most: int) -> dict[str, Any]:
  if request.headers.get('content-type', '').split(';')[0] != _JSON:
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


class Page(staticfiles.StaticFiles):
  """Files of a page, with headers that keep its content harmless."""

  async def get_response(self, path: str, scope: Any) -> responses.Response:
    """Answer as Starlette does."""
    response = await super().get_response(path, scope)
    response.headers.update(_HEADERS)
    return response
