# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Serve trained models: OpenAI's completions and chats, answers, searches, and a page.

  python -m experiments.serve
  python -m experiments.serve --workdir=RUN --port=8000

By default the packaged RETRO, reader and REALM, over the packaged articles.
--workdir, which may repeat, names a run, and with NAME=RUN its name in requests;
`packaged` stands for the package's. RUN,RUN are readers whose documents are searched
as one. --mcp serves the tools search, ask and read_document to an assistant on stdin
and stdout (the extra [mcp]). docs/serve.md has the addresses, http://127.0.0.1:8000/
the page.

The server listens to this machine alone. --host=0.0.0.0 lets everyone ask who reaches
the machine: there are no accounts and no encryption. Changes of documents go into a
copy that ends with the server.
"""

import dataclasses
import functools
import socket

from absl import flags, logging

from experiments.engine import command
from retrieval import settings

_LOOPBACK = ('127.0.0.1', 'localhost', '::1')


def _listen(host: str, port: int) -> socket.socket:
  """Open the port; OSError that names it."""
  family = socket.AF_INET6 if ':' in host else socket.AF_INET
  opened = socket.socket(family)
  opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
  try:
    opened.bind((host, port))
  except OSError as error:
    raise OSError(f'--host={host} --port={port}: {error.strerror}.') from None
  return opened


def main(unused_argv: list[str]) -> None:
  """Load the models, then serve until a signal comes."""
  import uvicorn

  from experiments.serve import app as app_lib, models as models_lib, tools

  values = flags.FLAGS
  limits = {
    field.name: values[f'max_{field.name}'].value
    for field in dataclasses.fields(app_lib.Limits)
  }
  limits = settings.build(app_lib.Limits, limits, '--max')
  workdirs = values.workdir or [models_lib.PACKAGED]
  if values.mcp:
    models_lib.check(workdirs)
    opened = functools.partial(
      models_lib.open_models, workdirs, values.embedder, writes=False
    )
    return tools.run(opened, limits)
  with _listen(values.host, values.port) as opened:
    port = opened.getsockname()[1]
    is_local = values.host in _LOOPBACK
    hosts = [*_LOOPBACK, '[::1]'] if is_local else ['*']
    models = models_lib.open_models(workdirs, values.embedder)
    app = app_lib.make(models, limits, hosts)
    if not is_local:
      logging.warning(
        '--host=%s: everyone who reaches this machine can use the models, change '
        'the documents served, and read them; nothing is encrypted.',
        values.host,
      )
    name = f'[{values.host}]' if ':' in values.host else values.host
    opened.listen()
    logging.info('Serving %s at http://%s:%d/', [*models.names()], name, port)
    config = uvicorn.Config(
      app,
      log_config=None,
      log_level='warning',
      access_log=False,
      server_header=False,
      timeout_graceful_shutdown=int(limits.seconds),
      limit_concurrency=max(256, 4 * limits.waiting),
    )
    # It answers Ctrl-C and SIGTERM when the running requests are done, and then
    # calls the command's own handler, which gives the exit code.
    uvicorn.Server(config).run(sockets=[opened])


if __name__ == '__main__':
  flags.DEFINE_multi_string('workdir', [], 'RUN or NAME=RUN; may repeat.')
  flags.DEFINE_bool('mcp', False, 'Serve tools on stdin and stdout.')
  flags.DEFINE_string('host', '127.0.0.1', 'Address to listen at.')
  flags.DEFINE_integer('port', 8000, 'Port; 0: a free one.', 0, 65535)
  flags.DEFINE_string('embedder', 'minilm', 'Embedder of texts, or its folder.')
  flags.DEFINE_integer('max_body_bytes', 1 << 20, 'Bytes of a request.')
  flags.DEFINE_integer('max_waiting', 64, 'Requests that wait.')
  flags.DEFINE_float('max_seconds', 120.0, 'Longest time of a request.')
  flags.DEFINE_integer('max_tokens', 1024, 'Tokens drawn for a choice.')
  command.main_of_script(main)
