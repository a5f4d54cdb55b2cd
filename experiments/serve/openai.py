# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""OpenAI's addresses, and vLLM's of the tokenizer, by which harnesses count tokens."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Sequence
import functools
import time
from typing import Annotated, Any, Literal
import uuid

from starlette import exceptions, responses

from experiments.serve import chat, completions, http
from retrieval import settings
from retrieval.readers import base

_MAX_TEXTS = 256  # of a request for vectors


async def complete(
  read: Callable[..., completions.Request], server: Any, body: dict[str, Any]
) -> Any:
  """Draw texts by RETRO; see https://platform.openai.com/docs/api-reference."""
  run = server.models.get('retro', body.get('model'))
  request = read(body, run.retro, server.limits.tokens)
  fields = request.fields
  beginning, *objects = fields.NAMES
  head = {
    'id': f'{beginning}-{uuid.uuid4().hex}',
    'object': objects[fields.stream],
    'created': int(time.time()),
    'model': f'retro-{run.name}',
  }
  job = ('retro', run.name), request.settings, request.rows, len(request.rows)
  if fields.stream:
    parts = _stream(server, job, request, head)
    await anext(parts)
    return responses.StreamingResponse(parts, media_type='text/event-stream')
  choices = await server.done('complete', *job)
  usage = _usage(server, choices, request)
  shown = [fields.shown(x.content) for x in choices]
  return head | {'choices': shown, 'usage': usage}


def _usage(server, choices, request) -> dict[str, int]:
  """Count the tokens of each prompt, once for all its choices, and of each choice."""
  prompt = sum(x.usage[0] for x in choices[:: request.fields.n])
  new = sum(x.usage[1] for x in choices)
  server.metrics.add('tokens_total', prompt, of='prompt')
  server.metrics.add('tokens_total', new, of='completion')
  names = 'prompt_tokens', 'completion_tokens', 'total_tokens'
  return dict(zip(names, (prompt, new, prompt + new), strict=True))


async def _stream(server, job, request, head) -> AsyncIterator[str]:
  """Server-sent events: text as it is drawn, then the rest of each choice.

  An echo, and log-probabilities, which come last, are sent with the whole text.
  Nothing is the first event: an error before it is the answer, with its status.
  """
  events, sent = asyncio.Queue(), {}
  put = events.put_nowait
  job = asyncio.create_task(server.done('complete', *job, put))
  job.add_done_callback(lambda unused: put(None))
  waits = request.fields.echo or request.fields.logprobs is not None
  unfinished = {'logprobs': None, 'finish_reason': None}

  def chunk(choice) -> str:
    first = choice['index'] not in sent
    shown = request.fields.shown(choice, 'delta', first)
    return http.event(head | {'choices': [shown]})

  begun = False
  try:
    event = await events.get()
    if event is None:
      await job
    begun = True
    yield ''
    while event is not None:
      j, text = event
      if text and not waits:
        yield chunk({'text': text, 'index': j} | unfinished)
        sent[j] = sent.get(j, 0) + len(text)
      event = await events.get()
    choices = await job
    for i, choice in enumerate(choices):
      rest = choice.content['text'][sent.get(i, 0) :]
      yield chunk(choice.content | {'text': rest})
    usage = _usage(server, choices, request)
    if request.include_usage:
      yield http.event(head | {'choices': [], 'usage': usage})
    yield 'data: [DONE]\n\n'
  except Exception as error:
    if not begun:
      raise
    yield http.event(http.problem(error)[0])
  finally:
    job.cancel()


async def embed(server: Any, body: dict[str, Any]) -> dict[str, Any]:
  """Embed texts by the embedder of --embedder."""
  texts, form = body.get('input'), body.get('encoding_format') or 'float'
  texts = [texts] if isinstance(texts, str) else texts
  is_list = isinstance(texts, list) and 0 < len(texts) <= _MAX_TEXTS
  if not (is_list and all(isinstance(x, str) and x for x in texts)):
    expected = f'1 to {_MAX_TEXTS} texts, none empty'
    raise settings.SettingsError('input', texts, expected)
  settings.check_value('encoding_format', form, Literal['float', 'base64'])
  if body.get('dimensions') is not None:
    raise settings.SettingsError('dimensions', body['dimensions'], 'none')
  vectors, size = await server.done('embed', (), (), texts)
  if form == 'base64':
    shown = [base64.b64encode(x.astype('<f4').tobytes()) for x in vectors]
    shown = [x.decode() for x in shown]
  else:
    shown = vectors.tolist()
  data = [
    {'object': 'embedding', 'index': i, 'embedding': x}
    for i, x in enumerate(shown)
  ]
  usage = {'prompt_tokens': size, 'total_tokens': size}
  name = server.models.embedder
  return {'object': 'list', 'data': data, 'model': name, 'usage': usage}


async def models(server: Any, request: Any) -> responses.Response:
  """List the models that are served, or show the one that is named."""
  common = {'object': 'model', 'created': 0, 'owned_by': 'realm-retro-jax'}
  served = server.models.names().items()
  data = {name: common | {'id': name, 'part': x} for name, x in served}
  name = request.path_params.get('name')
  if not name:
    return http.as_json({'object': 'list', 'data': [*data.values()]})
  if name not in data:
    message = f'No model {name!r} is served here, only {[*data]}.'
    raise exceptions.HTTPException(404, message)
  return http.as_json(data[name])


def _tokenizer(server: Any, fields: Any) -> Any:
  return server.models.get('retro', fields.get('model')).retro.data.tokenizer


def _specials(tokenizer: Any) -> dict[str, int]:
  """Return names and ids of tokens without a text, as /tokenize knows them."""
  ids = {'bos': tokenizer.bos_id, 'eos': tokenizer.eos_id}
  return {f'<|{name}|>': i for name, i in ids.items()}


async def tokenizer_info(server: Any, request: Any) -> responses.Response:
  """Name RETRO's tokenizer and its tokens without a text."""
  tokenizer = _tokenizer(server, request.query_params)
  bos, eos = _specials(tokenizer)
  kind = {'tokenizer_class': type(tokenizer).__name__}
  return http.as_json({'bos_token': bos, 'eos_token': eos} | kind)


async def tokenize(server: Any, body: dict[str, Any]) -> dict[str, Any]:
  """Return the tokens of a text, or of the name of a special token."""
  tokenizer = _tokenizer(server, body)
  text = base.string(body, 'prompt', 'request')
  special = _specials(tokenizer).get(text)
  ids = tokenizer.encode(text).ids.tolist() if special is None else [special]
  return {'tokens': ids, 'count': len(ids)}


async def detokenize(server: Any, body: dict[str, Any]) -> dict[str, Any]:
  """Return the text of tokens."""
  tokenizer = _tokenizer(server, body)
  most = settings.Range(0, tokenizer.vocab_size - 1)
  ids = body.get('tokens')
  settings.check_value('tokens', ids, Sequence[Annotated[int, most]])
  return {'prompt': tokenizer.decode(ids)}


POSTS = {
  '/v1/completions': functools.partial(complete, completions.read),
  '/v1/chat/completions': functools.partial(complete, chat.read),
  '/v1/embeddings': embed,
  '/tokenize': tokenize,
  '/detokenize': detokenize,
}
GETS = {
  '/v1/models': models,
  '/v1/models/{name:path}': models,
  '/tokenizer_info': tokenizer_info,
}
