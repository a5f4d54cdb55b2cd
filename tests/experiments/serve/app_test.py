# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The server in this process, with tiny models."""

import asyncio
import base64
import concurrent.futures
import contextlib
import json
import threading
import time
import types
from unittest import mock

import numpy as np
import pytest
from starlette import testclient

from experiments.serve import app, metrics, models, worker
from retrieval.text import corpus
from tests.experiments.open_qa import tiny_open_qa
from tests.experiments.retro import tiny_retro

PROMPT = 'river queen 日本 moon walked'


def _served(**parts):
  return models.Models([models.Run(**parts)])


def _client(served, **limits):
  made = app.make(served, app.Limits(**limits), ['localhost'])
  return testclient.TestClient(made, 'http://localhost')


@pytest.fixture(scope='module')
def retro(root):
  return tiny_retro.trained(root)


@pytest.fixture(scope='module')
def client(retro):
  with _client(_served(retro=retro), tokens=40) as made:
    yield made


@pytest.fixture(scope='module')
def reader(tmp_path_factory):
  run = tiny_open_qa.untrained(tmp_path_factory.mktemp('reader'))
  with _client(models.open_models([str(run.workdir)], 'minilm')) as made:
    yield made


def _complete(client, prompt=PROMPT, **fields):
  given = {'prompt': prompt, 'max_tokens': 6, 'seed': 3} | fields
  return client.post('/v1/completions', json=given)


def test_a_choice_depends_on_its_seed_alone(client, retro):
  [one] = _complete(client).json()['choices']
  [same] = retro.sample(
    PROMPT, row_numbers=[3], max_new_tokens=6, temperature=1.0, top_p=1.0
  )
  assert one['text'] == same.completion and one['finish_reason'] == 'length'
  assert one['neighbors'][0]['neighbors'][0]['title'] == 'Title 4'
  both = _complete(client, ['moon', PROMPT], n=2).json()
  assert both['choices'][2]['text'] == one['text']
  assert both['usage']['completion_tokens'] == 24
  ids = retro.data.tokenizer.encode(PROMPT).ids.tolist()
  assert _complete(client, ids).json()['choices'] == [one]
  other = _complete(client, seed=4).json()['choices']
  assert other != [one]


@pytest.mark.parametrize('most', [0, 1])
def test_an_echo_tells_the_logprobs_of_the_prompt(client, retro, most):
  asked = {'echo': True, 'logprobs': 1, 'max_tokens': most, 'temperature': 0}
  [found] = _complete(client, **asked).json()['choices']
  told = found['logprobs']
  assert ''.join(told['tokens']) == found['text']
  assert found['text'].startswith(PROMPT)
  size = len(told['tokens']) - most
  [page] = retro.score(PROMPT)
  assert -np.array(told['token_logprobs'][:size]) == pytest.approx(
    page.on[1:], abs=1e-5
  )
  for text, own, top in zip(
    told['tokens'], told['token_logprobs'], told['top_logprobs'], strict=True
  ):  # so harnesses tell what is greedy: own == max(top)
    assert top[text] >= own and max(top.values()) >= top[text]
  bos = retro.data.tokenizer.bos_id
  ids = [bos, *retro.data.tokenizer.encode(PROMPT).ids.tolist()]
  [of_ids] = _complete(client, ids, **asked).json()['choices']
  assert of_ids['logprobs']['token_logprobs'] == [None, *told['token_logprobs']]


@pytest.mark.parametrize('prompt', [PROMPT, 'Größe 日本 😀 end', 'moon'])
def test_a_stop_text_ends_a_choice_and_an_echo_changes_no_logprob(
  client, retro, prompt
):
  [whole] = _complete(client, prompt, max_tokens=20).json()['choices']
  stops = whole['text'][6:8], whole['text'][:1]
  for fields in ({}, *({'stop': x} for x in stops)):
    asked = {'max_tokens': 20, 'logprobs': 1} | fields
    [alone] = _complete(client, prompt, **asked).json()['choices']
    [echo] = _complete(client, prompt, **asked, echo=True).json()['choices']
    if stop := fields.get('stop'):
      assert alone['text'] == whole['text'][: whole['text'].index(stop)]
      assert alone['finish_reason'] == 'stop'
    size = len(retro.data.tokenizer.encode(prompt).ids)
    alone['logprobs']['text_offset'] = [
      len(prompt) + x for x in alone['logprobs']['text_offset']
    ]
    told = echo['logprobs']
    assert {k: x[size:] for k, x in told.items()} == alone['logprobs']
    assert ''.join(told['tokens']).startswith(echo['text'])
    for text, start in zip(told['tokens'], told['text_offset'], strict=True):
      assert echo['text'][start:].startswith(text[: len(echo['text']) - start])


def test_prompts_are_answered_as_if_alone(client, retro):
  ids = retro.data.tokenizer.encode(PROMPT).ids.tolist()
  bos = retro.data.tokenizer.bos_id
  prompts = [[bos, *ids], 'moon', ids, '', [bos]]
  fields = {'echo': True, 'logprobs': 1, 'max_tokens': 0, 'explain': True}
  alone = [_complete(client, [x], **fields).json() for x in prompts]
  logprobs = [x['choices'][0]['logprobs']['token_logprobs'] for x in alone]
  assert logprobs[0] == [None, *logprobs[2]] and logprobs[3:] == [[], [None]]
  for order in ([0, 1, 2, 3, 4], [4, 2, 3, 1, 0]):
    both = _complete(client, [prompts[i] for i in order], **fields, n=2).json()
    sizes = [x['usage']['prompt_tokens'] for x in alone]
    assert both['usage']['prompt_tokens'] == sum(sizes)
    for i, choice in enumerate(both['choices']):
      [one] = alone[order[i // 2]]['choices']
      assert choice == one | {'index': i}


@pytest.mark.parametrize('echo', [False, True])
def test_a_stream_adds_up_to_the_choices(client, echo):
  fields = {'n': 2, 'echo': echo, 'explain': True}
  wanted = _complete(client, **fields).json()
  options = {'include_usage': True}
  got = _complete(client, stream=True, stream_options=options, **fields)
  *events, last = got.text.split('\n\n')[:-1]
  assert last == 'data: [DONE]'
  rows = [json.loads(x.removeprefix('data: ')) for x in events]
  assert rows.pop()['usage'] == wanted['usage']
  for choice in wanted['choices']:
    parts = [y for x in rows for y in x['choices']]
    parts = [x for x in parts if x['index'] == choice['index']]
    assert ''.join(x['text'] for x in parts) == choice['text']
    assert parts[-1] | {'text': choice['text']} == choice
  page = wanted['choices'][0]['page']
  assert ''.join(page['pieces']).startswith(PROMPT) and page['explained']


@pytest.mark.parametrize(
  ('fields', 'param'),
  [
    ({'prompt': 3}, 'prompt'),
    ({'prompt': [[1, 'a']]}, 'prompt'),
    ({'n': 0}, 'n'),
    ({'max_tokens': 41}, 'max_tokens'),
    ({'max_tokens': '2'}, 'max_tokens'),
    ({'max_completion_tokens': 2}, 'max_completion_tokens'),
    ({'logprobs': 9}, 'logprobs'),
    ({'stop': ['']}, 'stop'),
    ({'best_of': 2}, 'best_of'),
    ({'stream': 1}, 'stream'),
  ],
)
def test_a_refusal_names_the_field(client, fields, param):
  got = _complete(client, **fields)
  assert got.status_code == 400 and got.json()['error']['param'] == param
  assert param != 'max_tokens' or 'at most 40' in got.json()['error']['message']


def test_addresses_are_told(client):
  [model] = client.get('/v1/models').json()['data']
  assert client.get(f'/v1/models/{model["id"]}').json() == model
  for method, path, status, told, allowed in [
    ('GET', '/v1/models/gpt-4', 404, model['id'], ''),
    ('GET', '/v1/chat/completions', 405, 'POST /v1/completions', 'POST'),
    ('DELETE', '/nothing', 404, 'DELETE /nothing', ''),
    ('GET', '/v1/completions', 405, 'POST /v1/completions', 'POST'),
    ('POST', '/v1/models', 405, 'GET /v1/models', 'GET'),
  ]:
    response = client.request(method, path)
    assert response.status_code == status
    assert told in response.json()['error']['message']
    assert allowed in response.headers.get('allow', '')
  for kind in ('Application/JSON', 'application/json ; charset=utf-8'):
    head = {'content-type': kind}
    assert client.post('/ask', content='{}', headers=head).status_code == 404


def test_bodies_hosts_and_absent_models_are_refused(client):
  post = client.post
  assert post('/ask', json={'question': 'who?'}).status_code == 404
  assert post('/search', content='{"query').status_code == 415
  head = {'content-type': 'application/json'}
  assert post('/search', content='{"query', headers=head).status_code == 400
  assert post('/search', json={'query': ' '}).status_code == 400
  assert post('/search', json={'query': 'x' * 2**20}).status_code == 413
  for host in ('evil.example', 'localhost.evil.example', 'localhost:80:80'):
    refused = client.get('/healthz', headers={'host': host})
    assert refused.status_code == 400 and refused.json()['error']['message']
  assert client.get('/healthz', headers={'host': 'LocalHost:8'}).is_success
  for path in ('/', '/page.css', '/page.js'):
    policy = client.get(path).headers['content-security-policy']
    assert "script-src 'self'" in policy
  assert 'realm_retro_requests_total{code="413",path="/search"} 1' in (
    client.get('/metrics').text
  )


def test_tokenizers_and_embeddings_have_their_forms(client, retro, monkeypatch):
  post = client.post
  ids = post('/tokenize', json={'prompt': PROMPT}).json()['tokens']
  assert post('/detokenize', json={'tokens': ids}).json()['prompt'] == PROMPT
  bos = client.get('/tokenizer_info').json()['bos_token']
  found = post('/tokenize', json={'prompt': bos}).json()['tokens']
  assert found == [retro.data.tokenizer.bos_id]
  assert client.get('/v1/models').json()['data'][0]['part'] == 'retro'
  vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
  monkeypatch.setattr(models.Models, 'embed', lambda *unused: [(vectors, 7)])
  asked = {'input': ['a', 'b'], 'encoding_format': 'base64'}
  got = post('/v1/embeddings', json=asked).json()
  data = got['data']
  assert got['usage']['prompt_tokens'] == 7
  assert np.frombuffer(
    base64.b64decode(data[1]['embedding']), '<f4'
  ).tolist() == [3, 4, 5]


def test_answers_follow_changed_documents(reader):
  ask = {'question': 'Where was the zebra?', 'answers': 2}
  before = reader.post('/ask', json=ask).json()
  assert before['text'][slice(*before['span'])] == before['answer']
  assert before['id'] == ''  # not the place in a batch
  old = before['document']
  new = {'title': 'Zebra', 'text': 'The zebra was in the crown of Rome.'}
  changed = reader.post('/documents', json={'add': [new], 'delete': [old]})
  assert changed.json()['changes']['documents deleted'] == 1
  [(name, counts)] = changed.json()['models'].items()
  assert name.startswith('reader-') and counts == changed.json()['changes']
  search = {'query': 'zebra', 'k': 100}
  found = reader.post('/search', json=search).json()['passages']
  documents = {x['document'] for x in found}
  [added] = changed.json()['ids']
  assert added in documents and old not in documents
  again = reader.post('/documents', json={'delete': [old]})
  assert again.status_code == 400 and old in again.json()['error']['message']


def test_added_documents_replace_none_without_their_id(reader):
  def add(*rows):
    got = reader.post('/documents', json={'add': rows})
    return got.json()['changes']['documents added'], got.json()['ids']

  row = {'title': 'Rome', 'text': 'The river of Rome is near.'}
  count, ids = add(row, row, row | {'id': None}, row | {'id': ''})
  assert count == len({*ids}) == 4 and 'Rome' not in ids
  assert add(row | {'title': None, 'id': 7})[1] == ['7']
  assert add(row | {'title': 1984, '_id': '7'}) == (0, ['7'])  # in its place
  got = reader.post('/documents', json={'delete': [7, *ids]})
  assert got.json()['changes']['documents deleted'] == 5
  got = reader.post('/documents', json={'add': [{'text': 'a', 'id': 1.5}]})
  assert got.status_code == 400 and 'add[0]' in got.json()['error']['message']


def test_changes_that_are_undone_bring_the_run_back(tmp_path):
  run = tiny_open_qa.untrained(tmp_path)
  first = models.open_models([str(run.workdir)], 'minilm')
  note = corpus.Document('note', '', 'A zebra was in Rome.')
  changed, _ = first.changed(tmp_path / '1', [note], [])
  undone, _ = changed.changed(tmp_path / '2', [], ['note'])
  first, changed, undone = (
    x.get('reader').reader for x in (first, changed, undone)
  )
  assert changed.made_of() != first.made_of()
  # so that a calibration still holds
  assert undone.made_of() == first.made_of()
  assert undone.index_folder == first.index_folder


@pytest.fixture
def openable(monkeypatch):
  """RETROs in any folder, and packaged models."""
  saved = types.SimpleNamespace(params=['embedding'], config=['retrieval'])
  monkeypatch.setattr(models.checkpoints, 'find', lambda unused: saved)
  monkeypatch.setattr(models.realm_packaged, 'take', lambda: 'folder')
  monkeypatch.setattr(models.realm_jax, 'load', lambda *x, **_: x[0])
  monkeypatch.setattr(models.retro_jax, 'load', lambda *x, **_: x[0])


@pytest.mark.parametrize('order', [1, -1])
def test_packaged_models_take_free_places(openable, order):
  served = models.open_models(['packaged', 'runs/own'][::order], 'minilm')
  assert served.get('retro').retro == 'runs/own'
  assert served.get('reader').workdir == served.get('realm').realm == 'folder'


@pytest.mark.parametrize(
  ('workdirs', 'names'),
  [
    (['runs/a', 'runs/b/'], ['a', 'b']),
    (['runs/a/retro', 'runs/b/retro', 'x/c'], ['a/retro', 'b/retro', 'c']),
    (['retro', 'runs/retro'], ['{}/retro', 'runs/retro']),
    (['small=runs/a/retro', 'runs/b/retro'], ['small', 'b/retro']),
    (['runs/rate=1', 'x=a=b', 'lr=1'], ['rate=1', 'x', 'lr=1']),
  ],
)
def test_runs_are_named(openable, monkeypatch, tmp_path, workdirs, names):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'lr=1').mkdir()
  served = models.open_models(workdirs, 'minilm')
  names = [x.format(tmp_path.name) for x in names]
  assert [*served.names()] == [f'retro-{x}' for x in names]
  for run, workdir in zip(served.runs, workdirs, strict=False):
    assert workdir in (run.retro, f'{run.name}={run.retro}')


@pytest.mark.parametrize('workdirs', [['a', 'a/'], ['x=a', 'x=b']])
def test_two_runs_of_one_name_are_refused(openable, workdirs):
  with pytest.raises(ValueError, match='NAME=DIR'):
    models.open_models(workdirs, 'minilm')


def test_two_retros_answer_to_their_names(retro, root):
  other = tiny_retro.trained(root, baseline=True)
  runs = [models.Run('a', retro=retro), models.Run('b/c', retro=other)]
  with _client(models.Models(runs)) as client:
    data = client.get('/v1/models').json()['data']
    assert [x['id'] for x in data] == ['retro-a', 'retro-b/c']
    assert client.get('/v1/models/retro-b/c').json() == data[1]
    replies = {
      name: _complete(client, model=name, logprobs=0).json()
      for name in ('', 'retro', 'a', 'retro-a', 'b/c', 'retro-b/c')
    }
    texts = {k: v['choices'] for k, v in replies.items()}
    assert (
      texts['']
      == texts['retro']
      == texts['a']
      == texts['retro-a']
      != texts['b/c']
    )
    assert texts['b/c'] == texts['retro-b/c']
    assert replies['b/c']['model'] == 'retro-b/c'
    unknown = _complete(client, model='gpt-4')
    assert unknown.status_code == 404
    assert 'retro-b/c' in unknown.json()['error']['message']


def test_the_folders_of_killed_servers_are_removed(
  retro, tmp_path, monkeypatch
):
  monkeypatch.setattr(app.tempfile, 'tempdir', str(tmp_path))
  for name in ('serve-killed/1', 'serve-other'):
    (tmp_path / name).mkdir(parents=True)
  (tmp_path / 'serve-killed' / 'serve.lock').touch()
  with _client(_served(retro=retro)):
    [running] = {*tmp_path.glob('serve-*')} - {tmp_path / 'serve-other'}
    with _client(_served(retro=retro)):
      assert running.exists() and not (tmp_path / 'serve-killed').exists()
  assert [x.name for x in tmp_path.iterdir()] == ['serve-other']


def test_embeddings_count_tokens():
  served = models.Models()
  texts = [['a', 'unbelievably'], ['a']]
  [(two, size), (one, less)] = served.embed((), texts, lambda *unused: None)
  assert (two.shape, one.shape, less) == ((2, 384), (1, 384), 3)
  assert size > 7  # more than a token a word


def test_waiting_jobs_are_done_together_and_bounded():
  running, go, seen = threading.Event(), threading.Event(), []

  def handler(how, items, take):
    running.set()
    go.wait()
    seen.append((how, list(items)))
    take(0, 'event')
    if 'bad' in items:
      raise ValueError('bad')
    return items

  async def run():
    made = worker.Worker(handler, max_waiting=5, max_size=3)
    jobs = []
    for how, item in zip('aabaaa', [0, 1, 2, 'bad', 4, 5], strict=True):
      jobs.append(asyncio.create_task(made.do(how, item)))
      await asyncio.sleep(0.01)  # the first runs alone, the others wait
    with pytest.raises(worker.Full):
      await made.do('a', 6)
    jobs[2].cancel()
    go.set()
    with pytest.raises(ValueError, match='bad'):
      await jobs[3]
    assert [await jobs[i] for i in (0, 1, 4, 5)] == [0, 1, 4, 5]
    made.stop()

  asyncio.run(run())
  assert ('a', [1, 'bad', 4]) in seen and ('b', [2]) not in seen


def test_waiting_has_a_bound_in_time(retro, monkeypatch):
  go = threading.Event()
  monkeypatch.setattr(models.Run, 'search', lambda *x: go.wait() and [{}])
  with _client(_served(retro=retro), seconds=0.5) as client:
    response = client.post('/search', json={'query': 'a'})
    go.set()
  assert response.status_code == 504


@pytest.mark.parametrize('stream', [False, True])
def test_a_full_queue_is_told_before_the_first_byte(retro, monkeypatch, stream):
  running, go = threading.Event(), threading.Event()

  def complete(*unused):
    running.set()
    go.wait()
    raise ValueError('bad')

  monkeypatch.setattr(app.completions, 'complete', complete)
  with (
    _client(_served(retro=retro), waiting=1) as client,
    concurrent.futures.ThreadPoolExecutor(3) as threads,
  ):
    posts = []
    for _ in range(3):
      posts.append(threads.submit(_complete, client, stream=stream))
      running.wait()
      time.sleep(0.1)
    full = posts[2].result()
    go.set()
    assert full.status_code == 503 and full.headers['retry-after']
    assert [x.result().status_code for x in posts[:2]] == [400, 400]


@pytest.mark.parametrize(
  ('path', 'function', 'body'),
  [
    ('/v1/completions', 'complete', {'prompt': 'a'}),
    ('/v1/completions', 'complete', {'prompt': 'a', 'stream': True}),
    ('/ask', 'ask', {'question': 'a'}),
    ('/explain', 'explain', {'text': 'a'}),
    ('/v1/embeddings', 'embed', {'input': 'a'}),
  ],
)
def test_work_ends_with_its_client(retro, monkeypatch, path, function, body):
  running, ended = threading.Event(), threading.Event()

  def handle(*arguments):
    running.set()
    with contextlib.ExitStack() as stack:
      stack.callback(ended.set)
      while True:
        arguments[-1]()

  places = {'complete': app.completions, 'embed': models.Models}
  place = places.get(function, models.Run)
  monkeypatch.setattr(place, function, handle)
  made = app.make(_served(retro=retro, reader=retro), app.Limits(), ['*'])
  head = [(b'content-type', b'application/json')]
  scope = {'type': 'http', 'method': 'POST', 'path': path, 'headers': head}
  messages = [{'type': 'http.request', 'body': json.dumps(body).encode()}]

  async def receive():
    if messages:
      return messages.pop()
    await asyncio.to_thread(running.wait)
    return {'type': 'http.disconnect'}

  asyncio.run(made(scope | {'query_string': b''}, receive, mock.AsyncMock()))
  assert ended.wait(10)


def test_metrics_have_prometheus_form():
  made = metrics.Metrics()
  made.observe('request_seconds', 0.2, path='/ask')
  lines = made.text({'waiting_jobs': 2}).splitlines()
  name = 'realm_retro_request_seconds'
  assert f'{name}_bucket{{path="/ask",le="0.25"}} 1' in lines
  assert f'{name}_bucket{{path="/ask",le="0.1"}} 0' in lines
  assert 'realm_retro_waiting_jobs 2' in lines
