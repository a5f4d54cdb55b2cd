# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""OpenAI's completions of a RETRO or its baseline, with the neighbors of each choice.

A choice depends on its prompt, seed and settings, never on what is drawn beside it:
choice j of a prompt draws as row seed + j of `LanguageModel.sample`.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import itertools
import random
from typing import Annotated, Any

import numpy as np

from retrieval import settings
from retrieval.readers import base
from retro_jax.data import samples as samples_lib
from retro_jax.decoding import growing_text
from retro_jax.trained import inspection, language_model
from retro_jax.views import prompts as prompts_lib, samples as views

MAX_ROWS = 8  # of a batch; one row or so many are compiled
_MAX_CHOICES = 128  # of a request
_MAX_PROMPT = 8192  # tokens
_NUMBERS = 2**31  # of rows
_MOST_LIKELY = 5  # OpenAI's most


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields:
  """The fields of a request that have one type, and the form of its answer."""

  NAMES = 'cmpl', 'text_completion', 'text_completion'  # of ids, answers, parts
  PROMPT = 'prompt'  # the field of the texts
  # Fields of OpenAI's form that change nothing at these values, and no others here.
  NEUTRAL = {
    'best_of': (1, None),
    'frequency_penalty': (0, None),
    'logit_bias': ({}, None),
    'presence_penalty': (0, None),
    'suffix': ('', None),
  }
  IGNORED = ('user', 'model', 'stream_options')

  max_tokens: settings.SizeOrZero = 16
  temperature: Annotated[float, settings.Range(0, 2)] = 1.0
  top_p: Annotated[float, settings.Range(0, 1, above=True)] = 1.0
  top_k: settings.SizeOrZero = 0
  n: Annotated[int, settings.Range(1, _MAX_CHOICES)] = 1
  logprobs: Annotated[int, settings.Range(0, _MOST_LIKELY)] | None = None
  seed: Annotated[int, settings.Range(0)] | None = None
  stream: bool = False
  echo: bool = False
  stop: tuple[str, ...] = ()
  # further fields: neighbors of a chunk, and whether each choice has a `page`
  num_neighbors: Annotated[int, settings.Range(0, 64)] = 2
  explain: bool = False

  def ends(self, tokenizer: Any) -> tuple[int, ...]:
    """Ids that end a choice."""
    return (tokenizer.eos_id,)

  def shown(self, choice: dict[str, Any], *unused: Any) -> dict[str, Any]:
    """Return a choice, or a part of a streamed one, in the form of its address."""
    return choice

  def logprobs_form(
    self, tokens: Sequence['Token'], most: int, tokenizer: Any
  ) -> dict[str, Any]:
    """Log-probabilities in the form of completions; offsets count characters."""
    del tokenizer
    texts = [x.text for x in tokens]
    tops: list[dict[str, float] | None] = []
    for token in tokens:
      # of equal texts the likelier stays
      top = {text: x for _, text, x in reversed(token.likely)}
      top.setdefault(token.text, token.logprob)
      tops.append(top if token.logprob is not None else None)
    return {
      'tokens': texts,
      'token_logprobs': [x.logprob for x in tokens],
      'top_logprobs': tops if most else None,
      'text_offset': [*itertools.accumulate(map(len, texts), initial=0)][:-1],
    }


@dataclasses.dataclass(frozen=True)
class Token:
  """A token of a choice, and what might have stood in its place."""

  id: int
  text: str  # a split character is the text of its last token
  logprob: float | None  # nats
  likely: list[tuple[int, str, float | None]]  # ids, texts, nats, best first


@dataclasses.dataclass(frozen=True)
class Row:
  """A choice to be drawn."""

  prompt: prompts_lib.TextPrompt
  number: int  # decides the draws
  index: int  # of the choice in its request
  echo: bool
  logprobs: int | None


@dataclasses.dataclass(frozen=True)
class Request:
  """A checked request."""

  fields: Fields
  rows: tuple[Row, ...]  # choices, those of the first prompt first
  include_usage: bool  # at the end of a stream

  @property
  def settings(self) -> Fields:
    """Settings that all rows of a batch share."""
    logprobs = None if self.fields.logprobs is None else 0
    alike = {'n': 1, 'seed': None, 'stream': False, 'echo': False}
    return dataclasses.replace(self.fields, logprobs=logprobs, **alike)


@dataclasses.dataclass(frozen=True)
class Choice:
  """A drawn text."""

  content: dict[str, Any]  # of OpenAI's form
  usage: tuple[int, int]  # tokens of the prompt, BOS included, and tokens drawn


def read(
  body: Mapping[str, Any], model: language_model.LanguageModel, max_tokens: int
) -> Request:
  """Check a request; ValueError names the first field that does not fit."""
  fields = check(Fields, body, model, max_tokens)
  return request(fields, _prompts(body.get('prompt', ''), model), body)


def check(
  cls: type[Fields],
  body: Mapping[str, Any],
  model: language_model.LanguageModel,
  max_tokens: int,
) -> Fields:
  """Return the fields of a request; ValueError names one that does not fit."""
  for name, allowed in cls.NEUTRAL.items():
    if body.get(name) not in allowed:
      expected = f'{allowed[0]!r}: another one is not supported'
      raise settings.SettingsError(name, body[name], expected)
  others, known = (*cls.NEUTRAL, *cls.IGNORED, cls.PROMPT), settings.hints(cls)
  named = {k: v for k, v in body.items() if v is not None and k not in others}
  if isinstance(named.get('stop'), str):
    named['stop'] = [named['stop']]
  if not model.model.config.cca_layers:
    named['num_neighbors'] = 0
  if unknown := sorted({*named} - {*known}):
    expected = f'no such field; known are {sorted({*known, *others})}'
    raise settings.SettingsError(unknown[0], named[unknown[0]], expected)
  named.setdefault('max_tokens', min(Fields.max_tokens, max_tokens))
  limit = Annotated[int, settings.Range(0, max_tokens)]
  settings.check_value('max_tokens', named['max_tokens'], limit)
  fields = settings.build(cls, named, 'request')
  if '' in fields.stop:
    raise settings.SettingsError('stop', fields.stop, 'texts, none empty')
  return fields


def request(
  fields: Fields,
  prompts: Sequence[prompts_lib.TextPrompt],
  body: Mapping[str, Any],
) -> Request:
  """Return the choices of prompts; ValueError where they are too many or too long."""
  for prompt in prompts:
    if len(prompt.ids) > _MAX_PROMPT:
      raise ValueError(
        f'{fields.PROMPT}: {len(prompt.ids):,} tokens; expected at most '
        f'{_MAX_PROMPT:,}.'
      )
  if len(prompts) * fields.n > _MAX_CHOICES:
    raise ValueError(
      f'{fields.PROMPT}: {len(prompts)} with n={fields.n}; expected '
      f'{_MAX_CHOICES} choices or fewer.'
    )
  seed = random.randrange(_NUMBERS) if fields.seed is None else fields.seed
  options = body.get('stream_options') or {}
  base.check_type(options, "field 'stream_options'", dict)
  choices = itertools.product(prompts, range(fields.n))
  rows = (
    Row(x, (seed + j) % _NUMBERS, i, fields.echo, fields.logprobs)
    for i, (x, j) in enumerate(choices)
  )
  return Request(fields, tuple(rows), bool(options.get('include_usage')))


def _prompts(value: Any, model) -> list[prompts_lib.TextPrompt]:
  """A text, texts, token ids, or lists of ids."""
  many = isinstance(value, list) and not (value and type(value[0]) is int)
  vocab, tokenizer = model.model.config.vocab_size, model.data.tokenizer
  prompts = []
  for one in value if many else [value]:
    is_ids = isinstance(one, list) and all(
      type(x) is int and 0 <= x < vocab for x in one
    )
    if not isinstance(one, str) and not (is_ids and one):
      expected = f'texts, or token ids below {vocab:,}'
      raise settings.SettingsError('prompt', one, expected)
    ids = one if is_ids else tokenizer.encode(one).ids.tolist()
    prompts.append(prompts_lib.TextPrompt('', ids=ids))
  if not prompts:
    raise settings.SettingsError('prompt', value, 'at least one text')
  return prompts


def complete(
  model: language_model.LanguageModel,
  how: Fields,
  items: Sequence[Sequence[Row]],
  take: Callable[..., None],
) -> list[list[Choice]]:
  """Draw the rows of several requests; a worker's handler.

  take: called with the request's number and (number of its row, text that is new).
  """
  places = [(i, j) for i, rows in enumerate(items) for j in range(len(rows))]
  choices: dict[tuple[int, int], Choice] = {}
  for start in range(0, len(places), MAX_ROWS):
    part = places[start : start + MAX_ROWS]
    rows = [items[i][j] for i, j in part]
    if len(rows) > 1 and how.max_tokens:  # a repeated row ends with its like
      rows += rows[-1:] * (MAX_ROWS - len(rows))

    def tell(event, part=part):
      kinds = samples_lib.Drawn | samples_lib.Finished
      if isinstance(event, kinds) and event.row < len(part):
        i, j = part[event.row]
        take(i, (j, event.text))
      take()

    drawn = _draw(model, how, rows, tell)
    for place, row, sample in zip(part, rows, drawn, strict=False):
      choices[place] = _choice(model, how, row, sample, take)
  return [
    [choices[i, j] for j in range(len(rows))] for i, rows in enumerate(items)
  ]


def _draw(model, how, rows, take) -> list[samples_lib.Sample]:
  tokenizer, c, samples = model.data.tokenizer, model.model.config, []
  if not how.max_tokens:
    m = c.chunk_length
    for row in rows:
      take(None)
      ids = np.asarray(row.prompt.tokens(tokenizer, c.neighbor_length).tokens)
      x = inspection.of_tokens(model, ids, how.num_neighbors)
      read = x.neighbors[: len(ids) // m]
      samples.append(samples_lib.Sample(x.tokens, len(ids), m, read, text=''))
    return samples

  def keep(event):
    if isinstance(event, samples_lib.Finished):
      samples.append(event.sample)
    take(event)

  model.sample(
    [row.prompt for row in rows],
    batch_size=MAX_ROWS,
    row_numbers=[row.number for row in rows],
    take=keep,
    max_new_tokens=how.max_tokens,
    temperature=float(how.temperature),
    top_p=float(how.top_p),
    top_k=how.top_k,
    num_neighbors=how.num_neighbors,
    stop_ids=how.ends(tokenizer),
    stop_strings=how.stop,
  )
  return samples


def _choice(
  model, how: Fields, row: Row, sample: samples_lib.Sample, take
) -> Choice:
  """Return a choice of OpenAI's form, with `neighbors` of each chunk that has some."""
  take()
  tokenizer, new = model.data.tokenizer, sample.new_tokens
  ended = len(new) and new[-1] in how.ends(tokenizer)
  stopped = any(stop in tokenizer.decode(new) for stop in how.stop)
  whole = len(new) >= how.max_tokens and not (ended or stopped)
  passage = inspection.of_sample(model, sample)
  text = views.to_text(sample, tokenizer)
  content = {
    'text': text.text if row.echo else text.completion,
    'index': row.index,
    'logprobs': None,
    'finish_reason': 'length' if whole else 'stop',
    'neighbors': [_neighbors(u, x) for u, x in enumerate(text.chunks) if x.ids],
  }
  if row.logprobs is not None:
    scores = inspection.token_logprobs(model, passage)
    tokens = _tokens(row, sample, len(text.completion), scores, tokenizer)
    form = how.logprobs_form(tokens, row.logprobs, tokenizer)
    content['logprobs'] = form
  if how.explain:
    page = inspection.inspect(
      model,
      passage,
      explain=bool(model.model.config.cca_layers),
      progress=lambda *unused: take(),
    ).to_json()
    content['page'] = page | {'prompt_tokens': sample.prompt_length}
  return Choice(content, (sample.prompt_length, len(new)))


def _neighbors(number: int, chunk: views.TextChunk) -> dict[str, Any]:
  columns = chunk.ids, chunk.scores, chunk.titles, chunk.neighbors
  names = 'id', 'score', 'title', 'text'
  rows = zip(*columns, strict=True)
  return {
    'chunk': number,
    'text': chunk.text,
    'unit': chunk.unit,
    'neighbors': [dict(zip(names, row, strict=True)) for row in rows],
  }


def _tokens(
  row: Row,
  sample: samples_lib.Sample,
  size: int,
  scores: inspection.TokenLogprobs,
  tokenizer: Any,
) -> list[Token]:
  """Tokens of the text that is returned, with their log-probabilities.

  BOS is told where a prompt of ids begins with it. A document's end has no text.

  Args:
    size: characters of the completion.
  """
  texts = growing_text.pieces(tokenizer.decode, sample.new_tokens)
  if size < len(''.join(texts)):  # the others are a part of the stop string
    starts = itertools.accumulate(map(len, texts), initial=0)
    texts = [x for x, start in zip(texts, starts, strict=False) if start < size]
  first = sample.prompt_length
  if row.echo:
    prompt = sample.tokens[:first]
    first = int(row.prompt.ids[:1] != [tokenizer.bos_id])
    texts = growing_text.pieces(tokenizer.decode, prompt)[first:] + texts
  tokens = []
  for i, text in enumerate(texts, first):
    pairs = zip(scores.likely[i], scores.likely_logprobs[i], strict=True)
    pairs = [(int(x), y) for x, y in pairs if x >= 0][: row.logprobs]
    likely = [(x, tokenizer.decode([x]), _number(y)) for x, y in pairs]
    value = _number(scores.logprobs[i])
    tokens.append(Token(int(sample.tokens[i]), text, value, likely))
  return tokens


def _number(value) -> float | None:
  return float(value) if np.isfinite(value) else None
