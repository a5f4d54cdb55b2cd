# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""OpenAI's chat completions of a decoder that brings a chat template.

A conversation is a prompt of `completions`, whose last user turn retrieves.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Annotated, Any, Literal

from experiments.serve import completions
from retrieval import settings
from retrieval.tokenization import chat_templates
from retro_jax.trained import inspection, language_model
from retro_jax.views import prompts as prompts_lib

_Role = Literal['system', 'developer', 'user', 'assistant']
_MAX_TOKENS = 256  # where a request names no number


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields(completions.Fields):
  """The fields of a request that have one type; `logprobs` counts likely tokens."""

  NAMES = 'chatcmpl', 'chat.completion', 'chat.completion.chunk'
  PROMPT = 'messages'
  NEUTRAL = {
    'echo': (False, None),
    'response_format': ({'type': 'text'}, None),
    'tools': ([], None),
    'tool_choice': ('none', 'auto', None),
    **completions.Fields.NEUTRAL,
  }
  IGNORED = (
    *completions.Fields.IGNORED,
    *('metadata', 'store'),
    *('max_completion_tokens', 'top_logprobs'),  # `_named` reads them
  )

  logprobs: Annotated[int, settings.Range(0, inspection.NUM_LIKELY)] | None = (
    None
  )

  def ends(self, tokenizer: Any) -> tuple[int, ...]:
    """Ids that end an answer."""
    return tokenizer.chat_ends

  def shown(
    self, choice: dict[str, Any], name: str = 'message', first: bool = True
  ) -> dict[str, Any]:
    """Return a choice as a message, or a part of one; the first says who speaks."""
    others = {k: x for k, x in choice.items() if k != 'text'}
    who = {'role': 'assistant', 'refusal': None} if first else {}
    return others | {name: who | {'content': choice['text']}}

  def logprobs_form(
    self, tokens: Sequence[completions.Token], most: int, tokenizer: Any
  ) -> dict[str, Any]:
    """Log-probabilities in the form of chats, without the token that ends the turn."""
    del most
    if tokens and tokens[-1].id in self.ends(tokenizer):
      tokens = tokens[:-1]

    def told(i, text, value):
      shown = {'token': text, 'logprob': value}
      return shown | {'bytes': [*tokenizer.token_bytes[i]]}

    content = [
      told(x.id, x.text, x.logprob)
      | {'top_logprobs': [told(*y) for y in x.likely]}
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
  named = _named(body, max_tokens)
  fields = completions.check(Fields, named, model, max_tokens)
  if fields.num_neighbors and body.get('stop') is None:
    fields = dataclasses.replace(fields, stop=tuple(tokenizer.chat.stop))
  prompt = prompts_lib.TextPrompt(
    '',
    ids=tokenizer.encode_chat(messages),
    query=asked[-1] if fields.num_neighbors else None,
  )
  return completions.request(fields, [prompt], body)


def _named(body: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
  """Return a request with the names that completions have for its fields."""
  limits = {
    'max_completion_tokens': Annotated[int, settings.Range(1, max_tokens)],
    'max_tokens': Annotated[int, settings.Range(1, max_tokens)],
    'logprobs': bool,
    'top_logprobs': Annotated[int, settings.Range(0, inspection.NUM_LIKELY)],
  }
  named = {k: v for k, v in body.items() if k not in limits}
  own = {k: body[k] for k in limits if body.get(k) is not None}
  for name, value in own.items():
    settings.check_value(name, value, limits[name])
  most = [x for k, x in own.items() if k.startswith('max')]
  named['max_tokens'] = (most or [min(_MAX_TOKENS, max_tokens)])[0]
  count = own.get('top_logprobs', 0)
  if own.get('logprobs'):
    named['logprobs'] = count
  elif count:
    raise settings.SettingsError('top_logprobs', count, '0 without logprobs')
  return named


def _messages(value: Any) -> list[dict[str, str]]:
  messages = []
  for i, row in enumerate(_checked('messages', value, list)):
    where = f'messages[{i}]'
    role = _checked(where, row, dict).get('role')
    settings.check_value(f'{where}.role', role, _Role)
    role = 'system' if role == 'developer' else role
    text = _text(row.get('content'), f'{where}.content')
    messages.append({'role': role, 'content': text})
  return messages


def _text(content: Any, where: str) -> str:
  """Join the texts of a message's content: a text, or parts of the type text."""
  if isinstance(content, str):
    return content
  texts = []
  for i, part in enumerate(_checked(where, content, list)):
    kind = _checked(f'{where}[{i}]', part, dict).get('type')
    settings.check_value(f'{where}[{i}].type', kind, Literal['text'])
    settings.check_value(f'{where}[{i}].text', part.get('text'), str)
    texts.append(part['text'])
  return '\n'.join(texts)


def _checked(name: str, value: Any, kind: type) -> Any:
  """Return a list or a dictionary; SettingsError for another value."""
  if not isinstance(value, kind):
    names = {list: 'a list', dict: 'an object'}
    raise settings.SettingsError(name, value, names[kind])
  return value
