# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A server on loopback that speaks as much of the Hugging Face Hub as downloads need."""

import contextlib
import hashlib
from http import server
import json
import pathlib
import re
import threading

from huggingface_hub import constants

SHA = 'a' * 40
_PATHS = re.compile(
  r'(?:/api/models)?/(?P<repo>[^/]+/[^/]+)/(?P<verb>revision|tree|resolve)'
  r'/(?P<revision>[^/?]+)/?(?P<file>[^?]*)'
)


class Hub:
  """Repositories by name: a folder each, or an error code of the Hub's own."""

  def __init__(self, url: str):
    self.url = url
    self.repos: dict[str, pathlib.Path | str] = {}
    self.got: list[
      tuple[str, str]
    ] = []  # files that were read, and their ranges
    self.cut = 0  # bytes of the next file after which the connection ends
    self.close = lambda: None


@contextlib.contextmanager
def serve(monkeypatch, cache: pathlib.Path):
  """Yields a `Hub` that huggingface_hub asks, with an empty cache."""

  class Handler(server.BaseHTTPRequestHandler):
    def do_HEAD(self):
      self.answer()

    def do_GET(self):
      self.answer()

    def log_message(self, *args):
      del args

    def answer(self):
      match = _PATHS.match(self.path)
      folder = hub.repos.get(match['repo']) if match else None
      if not isinstance(folder, pathlib.Path):
        return self.fail(folder or 'RepoNotFound')
      if match['revision'] not in ('main', 'v1', SHA):
        return self.fail('RevisionNotFound')
      names = [x for x in sorted(folder.rglob('*')) if x.is_file()]
      if match['verb'] == 'revision':
        return self.send({}, json.dumps({'id': match['repo'], 'sha': SHA}))
      if match['verb'] == 'tree':
        rows = [
          {
            'type': 'file',
            'path': x.relative_to(folder).as_posix(),
            'size': x.stat().st_size,
            'oid': hashlib.sha1(x.read_bytes()).hexdigest(),
          }
          for x in names
        ]
        return self.send({}, json.dumps(rows))
      if (path := folder / match['file']) not in names:
        return self.fail('EntryNotFound')
      data = path.read_bytes()
      tag = {
        'ETag': f'"{hashlib.sha1(data).hexdigest()}"',
        'X-Repo-Commit': SHA,
        'Accept-Ranges': 'bytes',
      }
      if self.command == 'GET':
        ranges = self.headers.get('Range', '')
        hub.got.append((match['file'], ranges))
        first = int(re.sub(r'\D', '', ranges) or 0)
        if first:
          tag['Content-Range'] = f'bytes {first}-{len(data) - 1}/{len(data)}'
        return self.send(tag, data[first:], 206 if first else 200)
      return self.send(tag, data)

    def fail(self, code):
      status = 403 if code == 'GatedRepo' else 404
      self.send({'X-Error-Code': code, 'X-Error-Message': code}, '', status)

    def send(self, headers, data, status=200):
      data = data if isinstance(data, bytes) else data.encode()
      self.send_response(status)
      for name, value in {**headers, 'Content-Length': len(data)}.items():
        self.send_header(name, str(value))
      self.end_headers()
      if self.command == 'GET':
        cut = None
        if 'ETag' in headers and hub.cut:
          cut, hub.cut = hub.cut, 0
        self.wfile.write(data[:cut])

  httpd = server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
  hub = Hub(f'http://127.0.0.1:{httpd.server_port}')
  template = hub.url + '/{repo_id}/resolve/{revision}/{filename}'
  monkeypatch.setattr(constants, 'ENDPOINT', hub.url)
  monkeypatch.setattr(constants, 'HUGGINGFACE_CO_URL_TEMPLATE', template)
  monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(cache))
  monkeypatch.setattr(constants, 'DOWNLOAD_CHUNK_SIZE', 50_000)
  threading.Thread(
    target=httpd.serve_forever, args=(0.01,), daemon=True
  ).start()

  def close():
    httpd.shutdown()
    httpd.server_close()

  hub.close = close
  try:
    yield hub
  finally:
    close()
