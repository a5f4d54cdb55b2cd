# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Chat templates: how a decoder was taught to read a conversation.

A template is Jinja, in the dialect of Hugging Face's tokenizers. It comes with the model,
so it runs in a sandbox: it reads what it is passed, and calls what is harmless.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import datetime
import functools
import json
import pathlib
from typing import Any

from retrieval import settings as settings_lib

FILE = 'chat_template.jinja'
_TEMPLATE = 'chat_template'  # of tokenizer_config.json
# There, where a run wrote it: the template's tokens, and `ChatTemplate.stop`.
_TOKENS, _STOP = 'chat_tokens', 'chat_stop'

Message = Mapping[str, str]  # 'role' and 'content'


@dataclasses.dataclass(frozen=True)
class ChatTemplate:
  """A chat template and the tokens that it may name."""

  source: str  # Jinja
  tokens: Mapping[str, str]  # 'bos_token', 'eos_token', ...
  # texts at which an answer that reads neighbors ends, where training taught them
  stop: Sequence[str] = ()

  def render(self, messages: Sequence[Message], *, answer: bool = True) -> str:
    """Return messages as one text; `answer`: up to where the assistant's turn begins.

    ValueError where the template is damaged, or refuses the messages.
    """
    try:
      return _compiled(self.source).render(
        messages=[dict(x) for x in messages],
        tools=None,
        documents=None,
        add_generation_prompt=answer,
        **self.tokens,
      )
    except Exception as error:  # a template may do anything
      text = ' '.join(f'{type(error).__name__}: {error}'.split())
      raise ValueError(
        f'messages: refused by the chat template ({text}).'
      ) from None

  def fields(self) -> dict[str, Any]:
    """Return its entries in tokenizer_config.json, for `read`."""
    fields = {_TEMPLATE: self.source, _TOKENS: dict(self.tokens)}
    return fields | ({_STOP: [*self.stop]} if self.stop else {})


def read(
  folder: pathlib.Path, settings: Mapping[str, Any]
) -> ChatTemplate | None:
  """Read the chat template of a tokenizer's folder; None without one.

  `settings` is the content of tokenizer_config.json; chat_template.jinja goes before its
  entry, which may be a list of templates with names: 'default' is taken.
  """
  source, file = settings.get(_TEMPLATE), folder / FILE
  if isinstance(source, list):
    named = [x for x in source if isinstance(x, dict)]
    source = {x.get('name'): x.get('template') for x in named}.get('default')
  if file.is_file():
    source = file.read_text(encoding='utf-8')
  if not source:
    return None
  tokens, stop = settings.get(_TOKENS), settings.get(_STOP, [])
  if tokens is None:
    tokens = {
      k: x.get('content') if isinstance(x, dict) else x
      for k, x in settings.items()
      if k.endswith('_token')
    }
    tokens = {k: x for k, x in tokens.items() if isinstance(x, str)}
  for name, value, hint in (
    (_TEMPLATE, source, str),
    (_TOKENS, tokens, Mapping[str, str]),
    (_STOP, stop, Sequence[str]),
  ):
    settings_lib.check_value(f'{folder}: {name}', value, hint)
  return ChatTemplate(source, tokens, tuple(stop))


@functools.lru_cache(8)
def _compiled(source: str) -> Any:
  """Compile a template with the settings and functions of Hugging Face."""
  from jinja2 import exceptions, ext, sandbox

  class Generation(ext.Extension):
    """Statements that mark the assistant's text, for training: read as they are."""

    tags = frozenset({'generation'})

    def parse(self, parser):
      next(parser.stream)
      return parser.parse_statements(('name:endgeneration',), drop_needle=True)

  def refuse(message):
    raise exceptions.TemplateError(message)

  environment = sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=[Generation, ext.loopcontrols],
  )
  environment.filters['tojson'] = functools.partial(
    json.dumps, ensure_ascii=False
  )
  environment.globals |= {
    'raise_exception': refuse,
    'strftime_now': lambda form: datetime.datetime.now().strftime(form),
  }
  return environment.from_string(source)
