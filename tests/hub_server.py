# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A server on loopback that speaks of the Hugging Face Hub what downloads and uploads need."""

import base64
import contextlib
import hashlib
from http import server
import json
import pathlib
import re
import threading

from huggingface_hub import constants

SHA = 'a' * 40
TOKEN = 'hf_may_write'
_PATHS = re.compile(
  r'(?:/api/models)?/(?P<repo>[^/]+/[^/]+)/(?P<verb>revision|tree|resolve)'
  r'/(?P<revision>[^/?]+)/?(?P<file>[^?]*)'
)


class Hub:
  """Repositories by name: a folder each, or an error code of the Hub's own."""

  def __init__(self, url: str):
    self.url = url
    self.repos: dict[str, pathlib.Path | str] = {}
    self.got: list[str] = []  # files that were read
    self.close = lambda: None
    self.new = pathlib.Path()  # folder in which created repositories stand
    self.sent: dict[str, bytes] = {}  # large files by their SHA-256
    self.commits: list[list[str]] = []  # names of their files
    self.private: dict[str, bool] = {}


@contextlib.contextmanager
def serve(monkeypatch, cache: pathlib.Path):
  """Yields a `Hub` that huggingface_hub asks, with an empty cache."""

  class Handler(server.BaseHTTPRequestHandler):
    def do_PUT(self):
      data = self.body()
      hub.sent[hashlib.sha256(data).hexdigest()] = data
      self.send({}, '')

    def do_POST(self):
      body = self.body()
      if self.headers.get('Authorization') != f'Bearer {TOKEN}':
        return self.fail('Forbidden')
      parts = self.path.strip('/').split('/')
      if self.path == '/api/validate-yaml':
        return self.send({}, json.dumps({'errors': [], 'warnings': []}))
      if self.path == '/api/repos/create':
        asked = json.loads(body)
        name = f'{asked["organization"]}/{asked["name"]}'
        known = name in hub.repos
        if not known:
          hub.repos[name] = hub.new / name
          hub.repos[name].mkdir(parents=True)
          hub.private[name] = asked.get('visibility') == 'private'
        answer = json.dumps({'url': f'{hub.url}/{name}'})
        return self.send({}, answer, 409 if known else 200)
      if parts[-1] == 'batch':
        found = [
          {**x, 'actions': {'upload': {'href': f'{hub.url}/lfs/{x["oid"]}'}}}
          for x in json.loads(body)['objects']
        ]
        return self.send({}, json.dumps({'objects': found}))
      folder = hub.repos['/'.join(parts[2:4])]
      if parts[4] == 'preupload':
        files = [self.mode(folder, x) for x in json.loads(body)['files']]
        return self.send({}, json.dumps({'files': files}))
      lines = [json.loads(line) for line in body.splitlines()]
      values = [x['value'] for x in lines if x['key'] != 'header']
      for x in values:
        large = 'content' not in x
        data = hub.sent[x['oid']] if large else base64.b64decode(x['content'])
        (folder / x['path']).write_bytes(data)
      hub.commits.append([x['path'] for x in values])
      url = f'{hub.url}/{parts[2]}/{parts[3]}/commit/{SHA}'
      made = {'commitUrl': url, 'commitOid': SHA}
      return self.send({}, json.dumps(made))

    def mode(self, folder, asked):
      large = asked['path'].endswith('.safetensors.gz')
      found = {
        'path': asked['path'],
        'uploadMode': 'lfs' if large else 'regular',
        'shouldIgnore': False,
      }
      if (path := folder / asked['path']).exists():
        data = path.read_bytes()
        blob = b'blob %d\0' % len(data) + data
        kind = hashlib.sha256(data) if large else hashlib.sha1(blob)
        found['oid'] = kind.hexdigest()
      return found

    def body(self):
      if 'Content-Length' in self.headers:
        return self.rfile.read(int(self.headers['Content-Length']))
      parts = []
      while size := int(self.rfile.readline(), 16):
        parts.append(self.rfile.read(size))
        self.rfile.readline()
      self.rfile.readline()
      return b''.join(parts)

    def log_message(self, *args):
      del args

    def answer(self):
      match = _PATHS.match(self.path)
      folder = hub.repos.get(match['repo']) if match else None
      if not isinstance(folder, pathlib.Path):
        return self.fail(folder or 'RepoNotFound')
      if match['revision'] not in ('main', 'v1', 'refs%2Fpr%2F1', SHA):
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
      }
      if self.command == 'GET':
        hub.got.append(match['file'])
      return self.send(tag, data)

    do_HEAD = do_GET = answer

    def fail(self, code):
      status = 403 if code in ('GatedRepo', 'Forbidden') else 404
      headers = {'X-Error-Code': code, 'X-Error-Message': code}
      if code == 'EntryNotFound':
        headers['X-Repo-Commit'] = SHA
      self.send(headers, '', status)

    def send(self, headers, data, status=200):
      data = data if isinstance(data, bytes) else data.encode()
      self.send_response(status)
      for name, value in {**headers, 'Content-Length': len(data)}.items():
        self.send_header(name, str(value))
      self.end_headers()
      if self.command != 'HEAD':
        self.wfile.write(data)

  httpd = server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
  hub = Hub(f'http://127.0.0.1:{httpd.server_port}')
  hub.new = cache.parent / 'new'
  template = hub.url + '/{repo_id}/resolve/{revision}/{filename}'
  monkeypatch.setattr(constants, 'ENDPOINT', hub.url)
  monkeypatch.setattr(constants, 'HUGGINGFACE_CO_URL_TEMPLATE', template)
  monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(cache))
  # Files go to the Hub itself, not to the store of chunks beside it.
  monkeypatch.setattr(constants, 'HF_HUB_DISABLE_XET', True)
  monkeypatch.setattr(constants, 'HF_TOKEN_PATH', str(cache / 'token'))
  monkeypatch.delenv('HF_TOKEN', raising=False)
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
