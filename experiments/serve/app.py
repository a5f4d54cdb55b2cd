# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The server: its addresses, its thread that computes, and its changing documents.

POST /v1/completions /v1/chat/completions /v1/embeddings /tokenize /detokenize (openai.py)
POST /ask /search /explain /documents
GET  / /v1/models /tokenizer_info /healthz /metrics
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
import contextlib
import ctypes
import dataclasses
import functools
import pathlib
import shutil
import tempfile
from typing import Annotated, Any
import uuid

from starlette import applications, exceptions, middleware, responses, routing

from experiments.serve import (
  completions,
  http,
  metrics as metrics_lib,
  models as models_lib,
  openai,
  worker as worker_lib,
)
from retrieval import settings
from retrieval.readers import base
from retrieval.store import locks
from retrieval.text import corpus as corpus_lib

STATIC = pathlib.Path(__file__).parent / 'static'
_LOCK = 'serve.lock'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
  """Limits of the requests of a client."""

  body_bytes: settings.Size = 1 << 20
  waiting: settings.Size = 64  # requests in the queue
  seconds: settings.Positive = 120.0  # from a request to its answer
  tokens: settings.Size = 1024  # drawn for a choice


class Server:
  """Answers requests by the models."""

  def __init__(self, models: models_lib.Models, limits: Limits):
    """Start the thread that computes."""
    self.models, self.limits = models, limits
    self.metrics = metrics_lib.Metrics()
    self._changes, self._changing = 0, asyncio.Lock()
    self._worker = worker_lib.Worker(
      self._call,
      max_waiting=limits.waiting,
      max_size=completions.MAX_ROWS,
    )

  def _call(self, shared, items, take) -> Sequence[Any]:
    kind, model, how = shared
    self.metrics.add('batches_total', kind=kind)
    self.metrics.add('jobs_total', len(items), kind=kind)
    served = self.models.get(*model) if model else self.models
    if kind == 'complete':
      return completions.complete(served.retro, how, items, take)
    return getattr(served, kind)(how, items, lambda *unused: take())

  async def done(self, kind: str, model: Any, how: Any, *job: Any) -> Any:
    """Return the result of `worker.Worker.do`; HTTPException or TimeoutError.

    `model` is of `self.model`, or () where none is asked.
    """
    try:
      async with asyncio.timeout(self.limits.seconds):
        return await self._worker.do((kind, model, how), *job)
    except worker_lib.Full:
      message = f'{self.limits.waiting} requests wait already; try again later.'
      raise exceptions.HTTPException(503, message, http.RETRY) from None

  def model(self, body: dict[str, Any], part: str) -> tuple[str, str]:
    """Return a kind and the name of the run that a request asks; or Missing."""
    return part, self.models.get(part, body.get('model')).name

  async def ask(self, body: dict[str, Any]) -> dict[str, Any]:
    """{question, answers}: a line of `experiments.ask --output`."""
    model = self.model(body, 'reader')
    count = _number(body, 'answers')
    return await self.done('ask', model, count, _text(body, 'question'))

  async def search(self, body: dict[str, Any]) -> dict[str, Any]:
    """{query, k, in}: {unit, passages}."""
    part = body.get('in', '')
    if part not in ('', 'reader', 'retro'):
      raise settings.SettingsError('in', part, "'reader' or 'retro'")
    there = self.models.names().values()
    part = part or ('reader' if 'reader' in there else 'retro')
    model, how = self.model(body, part), (part, _number(body, 'k'))
    return await self.done('search', model, how, _text(body, 'query'))

  async def _explain(self, body: dict[str, Any]) -> dict[str, Any]:
    """{text, answer, top}: REALM's `Explained`, or RETRO's `Page` without a mask."""
    text, answer = _text(body, 'text'), body.get('answer', '')
    settings.check_value('answer', answer, str)
    masked = '[MASK]' in text
    model = self.model(body, 'realm' if masked else 'retro')
    how = masked, answer, _number(body, 'top')
    return await self.done('explain', model, how, text)

  async def _documents(self, body: dict[str, Any]) -> dict[str, Any]:
    """{add: [{title, text, id}], delete: [ids]}: {changes, models, ids}."""
    added, delete = (
      base.check_type(body.get(x) or [], f'field {x!r}', list)
      for x in ('add', 'delete')
    )
    delete = [
      base.string({'id': base.named(x)}, 'id', 'delete') for x in delete
    ]
    documents = [_document(x, i) for i, x in enumerate(added)]
    # A change that has begun is made, whether or not its client waits.
    counts = await asyncio.shield(self._change(documents, delete))
    first = functools.reduce(lambda x, y: y | x, counts.values())
    ids = [x.id for x in documents]
    return {'changes': first, 'models': counts, 'ids': ids}

  async def _change(
    self, documents: Sequence[corpus_lib.Document], delete: Sequence[str]
  ) -> dict[str, Any]:
    if self._changing.locked():
      message = 'Another change is being made; try again later.'
      raise exceptions.HTTPException(503, message, http.RETRY)
    async with self._changing:
      self._changes += 1
      new, counts = await asyncio.to_thread(
        self.models.changed, self._root / f'{self._changes}', documents, delete
      )
      self.models = new
      # Requests that run may still read the data before.
      shutil.rmtree(self._root / f'{self._changes - 2}', ignore_errors=True)
      with contextlib.suppress(AttributeError):  # commands keep freed memory
        ctypes.CDLL(None).malloc_trim(0)
    return counts

  async def _healthz(self, unused) -> responses.Response:
    state = {'status': 'ok', 'models': [*{*self.models.names().values()}]}
    return http.as_json(state | {'waiting': len(self._worker)})

  async def _metrics(self, unused) -> responses.Response:
    text = self.metrics.text({'waiting_jobs': len(self._worker)})
    return responses.Response(text, media_type=metrics_lib.CONTENT_TYPE)

  def routes(self) -> list[routing.Route]:
    """Return all addresses."""
    posts, gets = (
      {path: functools.partial(x, self) for path, x in table.items()}
      for table in (openai.POSTS, openai.GETS)
    )
    posts |= {
      '/ask': self.ask,
      '/search': self.search,
      '/explain': self._explain,
      '/documents': self._documents,
    }
    gets |= {'/healthz': self._healthz, '/metrics': self._metrics}
    gets |= {f'/{x}': http.file(STATIC / x) for x in ('page.css', 'page.js')}
    gets['/'] = http.file(STATIC / 'index.html')
    limits, routes = (self.limits.body_bytes, self.limits.seconds), []
    for path, answer in posts.items():
      handler = http.post(path, answer, self.metrics, *limits)
      routes.append(routing.Route(path, handler, methods=['POST']))
    return routes + [routing.Route(*x) for x in gets.items()]

  @contextlib.asynccontextmanager
  async def lifespan(self, unused_app) -> AsyncIterator[None]:
    """End the thread and remove changed documents."""
    with _temporary_folder() as self._root:
      yield
      self._worker.stop()


@contextlib.contextmanager
def _temporary_folder() -> Iterator[pathlib.Path]:
  """Make a folder that ends with its server; remove those of killed servers."""
  for file in pathlib.Path(tempfile.gettempdir()).glob(f'serve-*/{_LOCK}'):
    with contextlib.suppress(OSError), locks.hold(file, wait=False):
      shutil.rmtree(file.parent, ignore_errors=True)
  with tempfile.TemporaryDirectory(prefix='serve-') as name:
    root = pathlib.Path(name)
    with locks.hold(root / 'draft'):
      # A lock of this name is held, or of a killed server.
      (root / 'draft').rename(root / _LOCK)
      yield root


def _text(body: dict[str, Any], name: str) -> str:
  text = base.string(body, name, 'request')
  if not text.strip():
    raise settings.SettingsError(name, text, 'a text')
  return text


def _number(body: dict[str, Any], name: str) -> int:
  value = body.get(name, 5)
  settings.check_value(name, value, Annotated[int, settings.Range(1, 100)])
  return value


def _document(value: Any, number: int) -> corpus_lib.Document:
  """Read a document as from a file; one without an id gets a new one."""
  where = f'add[{number}]'
  row = base.check_type(value, where, dict)
  is_named = row.get('id', row.get('_id')) not in (None, '')
  fields = base.Fields(id='id' if is_named else '', metadata=None)
  return fields.document(row, where, f'document-{uuid.uuid4().hex}')


def make(
  models: models_lib.Models, limits: Limits, hosts: Sequence[str]
) -> applications.Starlette:
  """Return the application.

  Args:
    hosts: names under which it is asked, against pages of other sites that point
      their name at this machine; '*' is any.
  """
  server = Server(models, limits)
  routes = server.routes()
  known = ', '.join(f'{min(x.methods)} {x.path}' for x in routes)

  async def refuse(request, error):
    if getattr(error, 'detail', '') in ('Not Found', 'Method Not Allowed'):
      asked = f'{request.method} {request.url.path[:100]}'
      error.detail = f'No {asked} here; there are {known}.'
    return http.as_json(*http.problem(error))

  return applications.Starlette(
    routes=routes,
    middleware=[middleware.Middleware(http.Hosts, names=hosts)],
    exception_handlers=dict.fromkeys(
      (exceptions.HTTPException, models_lib.Missing), refuse
    ),
    lifespan=server.lifespan,
  )
