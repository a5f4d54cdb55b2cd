# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""OpenAI's addresses, and those of vLLM's tokenizer, by which harnesses count tokens."""

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
import functools
import time
from typing import Annotated, Any
import uuid

from starlette import responses

from experiments.serve import completions, http
from retrieval import settings
from retrieval.readers import base

_MAX_TEXTS = 256  # of a request for vectors


class OpenAi:
  """Answers of a server; see https://platform.openai.com/docs/api-reference."""

  def __init__(self, server: Any):
    """Take the server, whose models may change."""
    self._server = server
    self.posts = {
      '/v1/completions': self._complete,
      '/v1/embeddings': self._embed,
      '/tokenize': self._tokenize,
      '/detokenize': self._detokenize,
    }
    self.gets = {
      '/v1/models': self._models,
      '/tokenizer_info': self._tokenizer_info,
    }

  async def _complete(self, body: dict[str, Any]) -> Any:
    server = self._server
    model = server.models.get('retro')
    request = completions.read(body, model, server.limits.tokens)
    head = {
      'id': f'cmpl-{uuid.uuid4().hex}',
      'object': 'text_completion',
      'created': int(time.time()),
      'model': server.models.name('retro'),
    }
    show = functools.partial(
      completions.as_json, request=request, tokenizer=model.data.tokenizer
    )
    if request.fields.stream:
      return responses.StreamingResponse(
        self._stream(request, head, show), media_type='text/event-stream'
      )
    rows = request.rows
    choices = await server.done('complete', request.settings, rows, len(rows))
    shown = [show(choice, i) for i, choice in enumerate(choices)]
    return head | {'choices': shown, 'usage': self._usage(choices)}

  def _usage(self, choices: Sequence[completions.Choice]) -> dict[str, int]:
    counts = zip(*(x.usage for x in choices), strict=True)
    prompt, new = (sum(x) for x in counts)
    self._server.metrics.add('tokens_total', prompt, of='prompt')
    self._server.metrics.add('tokens_total', new, of='completion')
    names = 'prompt_tokens', 'completion_tokens', 'total_tokens'
    return dict(zip(names, (prompt, new, prompt + new), strict=True))

  async def _stream(self, request, head, show) -> AsyncIterator[str]:
    """Server-sent events: text as it is drawn, then the rest of each choice.

    An echo, and log-probabilities, which are found at the end, come then with the
    whole text.
    """
    events, rows, sent = asyncio.Queue(), request.rows, [0] * len(request.rows)
    put = events.put_nowait
    job = asyncio.create_task(
      self._server.done('complete', request.settings, rows, len(rows), put)
    )
    job.add_done_callback(lambda unused: put(None))
    waits = request.fields.echo or request.fields.logprobs is not None

    def chunk(**fields) -> str:
      choice = {'text': '', 'logprobs': None, 'finish_reason': None} | fields
      return http.event(head | {'choices': [choice]})

    try:
      while (event := await events.get()) is not None:
        j, text = event
        if text and not waits:
          yield chunk(text=text, index=j)
          sent[j] += len(text)
      choices = await job
      for i, choice in enumerate(choices):
        last = show(choice, i)
        yield chunk(**last | {'text': last['text'][sent[i] :]})
      usage = self._usage(choices)
      if request.include_usage:
        yield http.event(head | {'choices': [], 'usage': usage})
      yield 'data: [DONE]\n\n'
    except Exception as error:
      yield http.event(http.problem(error)[0])
    finally:
      job.cancel()

  async def _embed(self, body: dict[str, Any]) -> dict[str, Any]:
    texts, form = body.get('input'), body.get('encoding_format') or 'float'
    texts = [texts] if isinstance(texts, str) else texts
    settings.check_value('input', texts, Sequence[str])
    if not (0 < len(texts) <= _MAX_TEXTS and all(texts)):
      expected = f'1 to {_MAX_TEXTS} texts, none empty'
      raise settings.SettingsError('input', texts, expected)
    if form not in ('float', 'base64'):
      raise settings.SettingsError('encoding_format', form, 'float or base64')
    if body.get('dimensions') is not None:
      raise settings.SettingsError('dimensions', body['dimensions'], 'none')
    vectors = await self._server.done('embed', (), texts)
    if form == 'base64':
      shown = [base64.b64encode(x.astype('<f4').tobytes()) for x in vectors]
      shown = [x.decode() for x in shown]
    else:
      shown = vectors.tolist()
    data = [
      {'object': 'embedding', 'index': i, 'embedding': x}
      for i, x in enumerate(shown)
    ]
    size = sum(len(text.split()) for text in texts)
    usage = {'prompt_tokens': size, 'total_tokens': size}
    name = self._server.models.embedder
    return {'object': 'list', 'data': data, 'model': name, 'usage': usage}

  async def _models(self, unused) -> responses.Response:
    models = self._server.models
    common = {'object': 'model', 'created': 0, 'owned_by': 'realm-retro-jax'}
    data = [common | {'id': models.name(x), 'part': x} for x in models.names()]
    return http.as_json({'object': 'list', 'data': data})

  @property
  def _tokenizer(self) -> Any:
    return self._server.models.get('retro').data.tokenizer

  def _specials(self) -> dict[str, int]:
    """Names that /tokenize knows of tokens without a text."""
    ids = {'bos': self._tokenizer.bos_id, 'eos': self._tokenizer.eos_id}
    return {f'<|{name}|>': i for name, i in ids.items()}

  async def _tokenizer_info(self, unused) -> responses.Response:
    if self._server.models.retro is None:
      return http.as_json({}, 404)
    bos, eos = self._specials()
    kind = type(self._tokenizer).__name__
    fields = {'bos_token': bos, 'eos_token': eos, 'tokenizer_class': kind}
    return http.as_json(fields)

  async def _tokenize(self, body: dict[str, Any]) -> dict[str, Any]:
    text = base.string(body, 'prompt', 'request')
    special = self._specials().get(text)
    ids = [special]
    if special is None:
      ids = self._tokenizer.encode(text).ids.tolist()
    return {'tokens': ids, 'count': len(ids)}

  async def _detokenize(self, body: dict[str, Any]) -> dict[str, Any]:
    most = settings.Range(0, self._tokenizer.vocab_size - 1)
    ids = body.get('tokens')
    settings.check_value('tokens', ids, Sequence[Annotated[int, most]])
    return {'prompt': self._tokenizer.decode(ids)}
