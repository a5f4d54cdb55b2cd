# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Conversations with tiny decoders in this process."""

import dataclasses
import json

import pytest
from starlette import testclient

from experiments.serve import app, models
from retro_jax.data import samples
from retro_jax.views import prompts
from tests.experiments.retro import tiny_chat, tiny_retro

TEXT = 'the ü 12 river <|end|>'
MESSAGES = [
  {'role': 'system', 'content': 'the '},
  {'role': 'user', 'content': '12'},
  {'role': 'assistant', 'content': 'ü', 'refusal': None, 'type': 'text'},
  {'role': 'user', 'content': TEXT},
]


def _client(retro, **limits):
  served = models.Models([models.Run(retro=retro)])
  made = app.make(served, app.Limits(**limits), ['localhost'])
  return testclient.TestClient(made, 'http://localhost')


@pytest.fixture(scope='module')
def retro(root):
  return tiny_chat.trained(root)


@pytest.fixture(scope='module')
def client(retro):
  with _client(retro, tokens=300) as made:
    yield made


def _ask(client, messages=MESSAGES, **fields):
  fields = {'messages': messages, 'max_tokens': 6, 'seed': 3} | fields
  return client.post('/v1/chat/completions', json=fields)


def _written(retro, **settings):
  """The library continues the conversation; its last question retrieves."""
  tokenizer = retro.data.tokenizer
  ids = tokenizer.encode_chat([{**x} for x in MESSAGES])
  settings = {'max_new_tokens': 6, 'temperature': 1.0, 'top_p': 1.0} | settings
  prompt = prompts.TextPrompt('', ids=ids, query=TEXT)
  [sample] = retro.sample([prompt], **settings)
  return sample, len(ids) + 1  # BOS


def test_an_answer_is_the_continuation_of_the_conversation(client, retro):
  sample, size = _written(retro, row_numbers=[4])
  answer = _ask(client, n=2).json()
  assert answer['object'] == 'chat.completion'
  assert answer['usage'] == {
    'prompt_tokens': size,
    'completion_tokens': 12,
    'total_tokens': size + 12,
  }
  first, second = answer['choices']
  assert [first['index'], second['index']] == [0, 1]
  assert first['finish_reason'] == 'length' and first['logprobs'] is None
  message = {'role': 'assistant', 'content': sample.completion, 'refusal': None}
  assert second['message'] == message != first['message']
  read = [x for x in sample.chunks if x.ids]
  assert [x['text'] for x in second['neighbors']] == [x.text for x in read]
  titles = [x['neighbors'][0]['title'] for x in second['neighbors']]
  m = retro.model.config.chunk_length
  last = -(-size // m) - 1  # the test's look-up names the tokens that ask
  assert {*titles[: last - 1]} == {'Title 0'} and titles[last] == f'Title {m}'
  [off] = _ask(client, num_neighbors=0).json()['choices']
  assert off['neighbors'] == [] and off['message'] != first['message']


def test_other_spellings_of_a_conversation_are_the_same(client):
  first, *others, last = MESSAGES
  lines = {'role': 'user', 'content': '12\n river'}
  parts = [{'type': 'text', 'text': x} for x in ('12', ' river')]
  neutral = {'tools': [], 'tool_choice': 'none', 'user': 'u', 'top_p': None}
  neutral |= {'response_format': {'type': 'text'}, 'max_tokens': 1}
  same = [first | {'role': 'developer'}, *others, last | {'content': parts}]
  changed = _ask(client, same, **neutral, max_completion_tokens=6).json()
  plain = _ask(client, [first, *others, lines]).json()
  assert changed['choices'] == plain['choices']


@pytest.mark.parametrize('joint', [False, True])
def test_logprobs_are_those_of_the_tokens_drawn(root, joint):
  fields = {'temperature': 0, 'max_tokens': 9, 'logprobs': True}
  with _client(tiny_chat.trained(root, joint)) as client:
    # It fits into a sequence: longer ones are read in other windows while they grow.
    messages = [{'role': 'user', 'content': 'the 12'}]
    asked = fields | {'top_logprobs': 20}
    [choice] = _ask(client, messages, **asked).json()['choices']
    [plain] = _ask(client, messages, **fields).json()['choices']
  content = choice['logprobs']['content']
  assert len(content) == 9
  assert ''.join(x['token'] for x in content) == choice['message']['content']
  data = b''.join(bytes(x['bytes']) for x in content)
  assert data.decode(errors='replace') == choice['message']['content']
  for token in content:  # greedy: the likeliest is what was drawn
    best, *others = token['top_logprobs']
    assert len(others) == 19 and best['bytes'] == token['bytes']
    assert best['logprob'] == token['logprob'] >= others[0]['logprob']
  assert [x['top_logprobs'] for x in plain['logprobs']['content']] == [[]] * 9


def test_the_end_of_a_turn_ends_an_answer(client, retro, monkeypatch):
  tokenizer, events = retro.data.tokenizer, []
  _written(retro, row_numbers=[3], max_new_tokens=9, take=events.append)
  drawn = [x.token for x in events if isinstance(x, samples.Drawn)]
  place = next(i for i in range(2, 9) if drawn[i] not in drawn[:i])
  ends = (*tokenizer.chat_ends, drawn[place])
  monkeypatch.setitem(vars(tokenizer), 'chat_ends', ends)
  asked = {'max_tokens': 9, 'logprobs': True}
  answer = _ask(client, **asked).json()
  [choice] = answer['choices']
  assert choice['finish_reason'] == 'stop'
  assert answer['usage']['completion_tokens'] == place + 1
  told = [bytes(x['bytes']) for x in choice['logprobs']['content']]
  assert told == [tokenizer.token_bytes[i] for i in drawn[:place]]
  assert tiny_chat.END in tokenizer.chat_ends


def test_a_run_says_where_answers_that_read_end(root):
  [whole] = _ask(_client(tiny_chat.trained(root))).json()['choices']
  stop = whole['message']['content'][2]
  chat = dataclasses.replace(tiny_chat.CHAT, stop=(stop,))
  with _client(tiny_chat.trained(root, chat=chat)) as client:
    [cut], [off], [own] = (
      _ask(client, **x).json()['choices']
      for x in ({}, {'num_neighbors': 0}, {'stop': []})
    )
  assert cut['finish_reason'] == 'stop' and own == whole
  assert off['finish_reason'] == 'length'
  text = whole['message']['content']
  assert cut['message']['content'] == text[: text.index(stop)]


@pytest.mark.parametrize('logprobs', [False, True])
def test_a_stream_adds_up_to_the_choices(client, logprobs):
  fields = {'n': 2, 'logprobs': logprobs}
  whole = _ask(client, **fields).json()
  options = {'include_usage': True}
  got = _ask(client, stream=True, stream_options=options, **fields)
  *events, last = got.text.split('\n\n')[:-1]
  assert last == 'data: [DONE]'
  rows = [json.loads(x.removeprefix('data: ')) for x in events]
  assert {x['object'] for x in rows} == {'chat.completion.chunk'}
  end = rows.pop()
  assert end['usage'] == whole['usage'] and end['choices'] == []
  for choice in whole['choices']:
    parts = [y for x in rows for y in x['choices']]
    parts = [x for x in parts if x['index'] == choice['index']]
    deltas = [x.pop('delta') for x in parts]
    roles = [x.get('role') for x in deltas]
    assert roles == ['assistant'] + [None] * (len(parts) - 1)
    text = ''.join(x['content'] for x in deltas)
    assert text == choice.pop('message')['content']
    assert not any(x['finish_reason'] for x in parts[:-1])
    assert logprobs or len(parts) > 2
    assert parts[-1] == choice


def _one(**fields):
  return {'messages': [{'role': 'user', 'content': 'a'} | fields]}


@pytest.mark.parametrize(
  ('fields', 'param'),
  [
    ({'messages': None}, 'messages'),
    ({'messages': ['a']}, 'messages[0]'),
    (_one(role='tool'), 'messages[0].role'),
    (_one(role='system'), 'messages'),  # no user
    (_one(content=None), 'messages[0].content'),
    (_one(content=[{'type': 'image_url'}]), 'messages[0].content[0].type'),
    ({'messages': MESSAGES[1:2] + MESSAGES[:1]}, None),  # by the template
    ({'tools': [{'type': 'function'}]}, 'tools'),
    ({'response_format': {'type': 'json_object'}}, 'response_format'),
    ({'messages': [{'role': 'user', 'content': 'a' * 9000}]}, None),  # too long
    ({'max_tokens': 0}, 'max_tokens'),
    ({'max_completion_tokens': 301}, 'max_completion_tokens'),
    ({'logprobs': 1}, 'logprobs'),
    ({'logprobs': True, 'top_logprobs': 21}, 'top_logprobs'),
    ({'top_logprobs': 1}, 'top_logprobs'),
    ({'echo': True}, 'echo'),
    ({'max_completion_token': 1}, 'max_completion_token'),
  ],
)
def test_a_refusal_names_the_field(client, fields, param):
  answer = _ask(client, **fields)
  error = answer.json()['error']
  assert answer.status_code == 400 and error['param'] == param
  told = error['message']
  assert param != 'max_completion_token' or "'max_completion_tokens'" in told
  assert param or 'system first' in told or told.startswith('messages: 9,0')


def test_a_model_without_a_template_says_so(root):
  for retro in (tiny_retro.trained(root), tiny_chat.trained(root, chat=None)):
    answer = _ask(_client(retro))
    assert answer.status_code == 400
    message = answer.json()['error']['message']
    assert 'chat_template.jinja' in message and '/v1/completions' in message
