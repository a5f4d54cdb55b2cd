# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""OpenAI's chat completions of a decoder that brings a chat template.

A conversation is a prompt of `completions`, whose last user turn retrieves.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Annotated, Any

from experiments.serve import completions
from retrieval import settings
from retrieval.tokenization import chat_templates
from retro_jax.trained import inspection, language_model
from retro_jax.views import prompts as prompts_lib

_ROLES = {'developer': 'system'}  # names of one role
_KNOWN_ROLES = ('system', 'developer', 'user', 'assistant')
_NEUTRAL = {
  'tools': ([], None),
  'functions': ([], None),
  'tool_choice': ('none', 'auto', None),
  'function_call': ('none', 'auto', None),
  'response_format': ({'type': 'text'}, None),
  'modalities': (['text'], None),
  **completions.NEUTRAL,
}
_IGNORED = ('messages', 'metadata', 'store', *completions.IGNORED)
_MAX_TOKENS = 256  # where a request names no number
_CALLS = ('tool_calls', 'function_call', 'audio')  # in a message


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields(completions.Fields):
  """The fields of a request that have one type; `logprobs` counts likely tokens."""

  NAMES = 'chatcmpl', 'chat.completion', 'chat.completion.chunk'

  logprobs: Annotated[int, settings.Range(0, inspection.NUM_LIKELY)] | None = (
    None
  )

  def ends(self, tokenizer: Any) -> tuple[int, ...]:
    """Ids that end an answer."""
    return tokenizer.chat_ends

  def first_parts(self) -> list[dict[str, Any]]:
    """Who speaks in each choice."""
    return [{'index': i, 'role': 'assistant'} for i in range(self.n)]

  def shown(self, choice: dict[str, Any], part: bool = False) -> dict[str, Any]:
    """Return a choice, or a part of a streamed one, in the form of chats."""
    others = {k: x for k, x in choice.items() if k not in ('text', 'role')}
    if part:
      role = {k: x for k, x in choice.items() if k == 'role'}
      return others | {'delta': role | {'content': choice['text']}}
    message = {'role': 'assistant', 'content': choice['text'], 'refusal': None}
    return others | {'message': message}

  def logprobs_form(
    self, tokens: Sequence[completions.Token], most: int, tokenizer: Any
  ) -> dict[str, Any]:
    """Log-probabilities in the form of chats, without the token that ends the turn."""
    if tokens and tokens[-1].id in self.ends(tokenizer):
      tokens = tokens[:-1]

    def told(i, text, value):
      shown = {'token': text, 'logprob': value}
      return shown | {'bytes': [*tokenizer.token_bytes[i]]}

    content = [
      told(x.id, x.text, x.logprob)
      | {'top_logprobs': [told(*y) for y in x.likely[:most]]}
      for x in tokens
    ]
    return {'content': content, 'refusal': None}


def read(
  body: Mapping[str, Any], model: language_model.LanguageModel, max_tokens: int
) -> completions.Request:
  """Check a request; ValueError names the first field that does not fit."""
  tokenizer = model.data.tokenizer
  if getattr(tokenizer, 'chat', None) is None:
    raise ValueError(
      'This model has no chat template; expected a decoder that brings one, or '
      f'{chat_templates.FILE} beside its tokenizer.json. POST /v1/completions '
      'continues texts.'
    )
  messages = _messages(body.get('messages'))
  asked = [x['content'] for x in messages if x['role'] == 'user']
  if not asked:
    expected = 'a message of the role user'
    raise settings.SettingsError('messages', body['messages'], expected)
  fields = completions.build(Fields, _values(body, max_tokens), model)
  if fields.num_neighbors and body.get('stop') is None:
    fields = dataclasses.replace(fields, stop=tuple(tokenizer.chat.stop))
  prompt = prompts_lib.TextPrompt(
    '',
    ids=tokenizer.encode_chat(messages),
    query=asked[-1] if fields.num_neighbors else None,
  )
  return completions.request(fields, [prompt], body)


def _values(body: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
  """Return the fields of a request under the names that completions have."""
  limits = {
    'max_completion_tokens': Annotated[int, settings.Range(1, max_tokens)],
    'max_tokens': Annotated[int, settings.Range(1, max_tokens)],
    'logprobs': bool,
    'top_logprobs': Annotated[int, settings.Range(0, inspection.NUM_LIKELY)],
  }
  known = {*settings.hints(Fields), *limits} - {'echo'}
  named = completions.values(body, _NEUTRAL, _IGNORED, known)
  for name, hint in limits.items():
    if name in named:
      settings.check_value(name, named[name], hint)
  most = [named.pop(x) for x in limits if x.startswith('max') and x in named]
  named['max_tokens'] = (most or [min(_MAX_TOKENS, max_tokens)])[0]
  shows, count = named.pop('logprobs', False), named.pop('top_logprobs', 0)
  if count and not shows:
    raise settings.SettingsError('top_logprobs', count, '0 without logprobs')
  return named | ({'logprobs': count} if shows else {})


def _messages(value: Any) -> list[dict[str, str]]:
  """Read roles and texts of messages."""
  messages = []
  for i, row in enumerate(_checked('messages', value, list)):
    where = f'messages[{i}]'
    role = _checked(where, row, dict).get('role')
    if role not in _KNOWN_ROLES:
      expected = f'one of {_KNOWN_ROLES}'
      raise settings.SettingsError(f'{where}.role', role, expected)
    for name in _CALLS:
      if row.get(name):
        expected = 'none: calls are not supported'
        raise settings.SettingsError(f'{where}.{name}', row[name], expected)
    text = _text(row.get('content'), f'{where}.content')
    messages.append({'role': _ROLES.get(role, role), 'content': text})
  return messages


def _text(content: Any, where: str) -> str:
  """Join the texts of a message's content: a text, or parts of the type text."""
  if isinstance(content, str):
    return content
  texts = []
  for i, part in enumerate(_checked(where, content, list)):
    place = f'{where}[{i}]'
    kind = _checked(place, part, dict).get('type')
    if kind != 'text':
      expected = "'text': nothing else is read"
      raise settings.SettingsError(f'{place}.type', kind, expected)
    texts.append(_checked(f'{place}.text', part.get('text'), str))
  return '\n'.join(texts)


def _checked(name: str, value: Any, kind: type) -> Any:
  """Return a value; SettingsError where it is of another type."""
  if not isinstance(value, kind):
    names = {list: 'a list', dict: 'an object', str: 'a text'}
    raise settings.SettingsError(name, value, names[kind])
  return value
