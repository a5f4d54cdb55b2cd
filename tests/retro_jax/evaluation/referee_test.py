# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""An honest bigram model with a memory passes; each planted cheat fails by name."""

import dataclasses
import functools
import types

import numpy as np
import pytest

from retro_jax.evaluation import referee

V, RNG = 32, np.random.default_rng(0)
WORDS = 'abcdefghijklmnopqrstuvwxyz'
TEXTS = [
  ' '.join(''.join(RNG.choice([*WORDS], 3)) for _ in range(12))
  for _ in range(3)
]
TRAINING = [
  ' '.join(''.join(RNG.choice([*WORDS], 3)) for _ in range(80))
  for _ in range(3)
]


def encode(text):
  return [0, *(1 + WORDS.find(x) if x != ' ' else 30 for x in text)]


def log_softmax(x):
  x = x - x.max(-1, keepdims=True)
  return x - np.log(np.exp(x).sum(-1, keepdims=True))


class Bigrams:
  """Counts of pairs in a memory, mixed with a table of weights."""

  def __init__(self, texts=TRAINING, share=0.4):
    self.table = log_softmax(np.random.default_rng(1).normal(size=(V, V)))
    rows = [np.array(encode(x)) for x in texts]
    self.memory = np.concatenate([np.append(x, -1) for x in rows])
    self.share = share

  def rows(self, tokens, share=None):
    """[B, T, V]: what followed the last two tokens in the memory."""
    share, m = self.share if share is None else share, self.memory
    out = np.exp(self.table[tokens])
    for b, t in np.ndindex(tokens.shape):
      last = tokens[b, max(t - 1, 0) : t + 1]
      if len(last) == 2:
        at = np.flatnonzero((m[:-2] == last[0]) & (m[1:-1] == last[1])) + 2
        at = at[m[at] >= 0]
        if len(at):
          seen = np.bincount(m[at], minlength=V) / len(at)
          out[b, t] = (1 - share) * out[b, t] + share * seen
    return np.log(out)


def take(rows, places):
  return np.take_along_axis(rows, places[..., None], axis=1)


def honest(model=None, **changes):
  model = model or Bigrams()

  def log_probs(tokens, places, documents):
    del documents
    return take(model.rows(tokens), places)

  fields = {
    'log_probs': log_probs,
    'encode': encode,
    'score': functools.partial(reports, log_probs),
    'without': lambda t, p, _: take(model.rows(t, 0.0), p),
    'memory': lambda _: model.memory,
    'num_bytes': lambda: {
      'weights': model.table.nbytes,
      'memory': model.memory.nbytes,
    },
    'max_tokens': 64,
    'batch_size': 2,
  }
  return referee.Scorer(**fields | changes)


def reports(log_probs, contexts, texts, whole=False, more_bytes=0):
  """Scores that an evaluation reports of texts after contexts."""
  rows = []
  for context, text in zip(contexts, texts, strict=True):
    tokens = np.array([encode(context + text)])
    first = 1 if whole else len(encode(context))
    places = np.arange(first - 1, tokens.shape[1] - 1)
    of_all = log_probs(tokens, places[None], [''])[0]
    nats = -of_all[np.arange(len(places)), tokens[0, first:]].sum()
    size = len((context + text if whole else text).encode()) + more_bytes
    rows.append(types.SimpleNamespace(nats=nats, num_bytes=size))
  return rows


def reported(**how):
  """An honest model whose reports are another's."""
  inner = honest()
  score = functools.partial(reports, inner.log_probs, **how)
  return dataclasses.replace(inner, score=score)


def changed(function):
  """The honest scorer whose log-probabilities go through a function."""
  inner = honest()

  def log_probs(tokens, places, documents):
    rows = inner.log_probs(tokens, places, documents)
    return function(rows, tokens, places, documents)

  score = functools.partial(reports, log_probs)
  return dataclasses.replace(inner, log_probs=log_probs, score=score)


def not_normalized():
  return changed(lambda rows, *_: rows + 0.1)


def reads_the_next_token():
  def peek(rows, tokens, places, _):
    after = np.minimum(places + 1, tokens.shape[1] - 1)
    seen = np.eye(V)[np.take_along_axis(tokens, after, axis=1)]
    return np.log(0.9 * np.exp(rows) + 0.1 * seen)

  return changed(peek)


def reads_its_own_document():
  shelf = {f'text {i}': np.array(encode(x)) for i, x in enumerate(TEXTS)}

  def look(rows, tokens, places, documents):
    rows = np.exp(rows)
    for b, name in enumerate(documents):
      own = shelf.get(name, [])
      for i, place in enumerate(places[b]):
        if place + 1 < len(own):
          rows[b, i] = 0.5 * rows[b, i] + 0.5 * np.eye(V)[own[place + 1]]
    return np.log(rows)

  return changed(look)


def normalizes_over_the_top():
  def top(rows, *_):
    least = np.sort(rows)[..., -5][..., None]
    total = np.where(rows >= least, np.exp(rows), 0).sum(-1, keepdims=True)
    return np.where(rows >= least, rows - np.log(total), rows)

  return changed(top)


def reads_the_padding():
  def long(rows, tokens, *_):
    share = tokens.shape[1] / 1000
    return np.log((1 - share) * np.exp(rows) + share / V)

  return dataclasses.replace(changed(long), score=None)


def reads_the_padding_of_masked_words():
  return dataclasses.replace(reads_the_padding(), causal=False)


def averages_rows_of_masked_words():
  def mixed(rows, *_):
    return np.log(0.9 * np.exp(rows) + 0.1 * np.exp(rows).mean(0))

  fields = {'score': None, 'causal': False, 'batch_size': 3}
  return dataclasses.replace(changed(mixed), **fields)


class _Cache:
  """Tokens that were scored before, in whatever row."""

  def __init__(self):
    self.counts = np.ones(V)

  def __call__(self, rows, tokens, *_):
    mixed = 0.8 * np.exp(rows)
    for b, row in enumerate(tokens):
      mixed[b] += 0.2 * self.counts / self.counts.sum()
      self.counts += np.bincount(row, minlength=V)
    return np.log(mixed)


def a_cache_that_leaks():
  return changed(_Cache())


def scores_the_prompt():
  return reported(whole=True)


def counts_other_bytes_of_the_text():
  return reported(more_bytes=5)


def counts_fewer_bytes():
  table = np.zeros((1 << 16, 8), np.float64)
  return changed(lambda rows, tokens, *_: rows + table[tokens[0, 0], 0])


def reports_no_number():
  rows = types.SimpleNamespace
  inner = honest()

  def score(contexts, texts):
    first, *rest = inner.score(contexts, texts)
    return [first, *(rows(nats=np.nan, num_bytes=x.num_bytes) for x in rest)]

  return dataclasses.replace(inner, score=score)


def seeds_the_memory():
  return honest(Bigrams([*TRAINING, TEXTS[1]]))


def hides_its_memory():
  return honest(memory=None)


def _judge(scorer, **how):
  return referee.referee(scorer, TEXTS, num_places=4, **how)


def test_an_honest_model_passes():
  scorer = honest(
    gradient=lambda tokens, place: np.arange(len(tokens)) <= place,
  )
  found = _judge(scorer, again=honest().log_probs)
  assert not found.failed, found
  by_name = {x.name: x for x in found.verdicts}
  assert [x for x in by_name if by_name[x].passed is None] == ['cost']
  assert 'passes' in str(found) and 'holds 0 of 3 documents' in str(found)
  speaks = by_name['sums to 1'].figures.partition(', at ')[2]
  assert int(speaks.split()[0]) > 0
  # Bits a byte of the page are those of the model's report.
  rows = scorer.score([''] * 3, TEXTS)
  bits = sum(x.nats for x in rows) / np.log(2)
  bits /= sum(x.num_bytes for x in rows)
  assert f'{bits:.3f} bits a byte' in by_name['reported'].figures


@pytest.mark.parametrize(
  ('cheat', 'verdicts'),
  [
    (not_normalized, {'sums to 1'}),
    (reads_the_next_token, {'later tokens'}),
    (reads_its_own_document, {'own document'}),
    (normalizes_over_the_top, {'sums to 1'}),
    (reads_the_padding, {'padding'}),
    (reads_the_padding_of_masked_words, {'padding'}),
    (averages_rows_of_masked_words, {'batch and order'}),
    (a_cache_that_leaks, {'batch and order', 'cache'}),
    (scores_the_prompt, {'reported'}),
    (counts_fewer_bytes, {'bytes'}),
    (reports_no_number, {'reported'}),
    (counts_other_bytes_of_the_text, {'reported'}),
    (seeds_the_memory, {'memory'}),
    (hides_its_memory, {'memory'}),
  ],
  ids=lambda x: getattr(x, '__name__', ''),
)
def test_cheats_are_named(cheat, verdicts):
  found = _judge(cheat())
  assert verdicts <= {*found.failed}, found


def test_a_gradient_of_later_tokens_and_another_restart_fail():
  scorer = honest(gradient=lambda tokens, place: np.ones(len(tokens)))
  found = _judge(scorer, again=not_normalized().log_probs)
  assert {*found.failed} == {'gradient', 'restart'}


def test_probabilities_may_be_zero():
  def never(rows, *_):
    rows = np.exp(rows)
    rows[..., 30] = 0  # of the spaces
    with np.errstate(divide='ignore'):
      return np.log(rows / rows.sum(-1, keepdims=True))

  assert not (found := _judge(changed(never))).failed, found


def test_what_cannot_change_has_no_verdict():
  length = max(map(len, map(encode, TEXTS)))
  scorer = honest(causal=False, score=None, max_tokens=length)
  report = referee.referee(scorer, TEXTS[:1], num_places=4)
  passed = {x.name: x.passed for x in report.verdicts}
  assert passed['padding'] is passed['batch and order'] is None


def test_nats_of_masked_words_alone_are_not_divided_by_all_bytes():
  report = _judge(honest(causal=False, score=None))
  [figures] = [x.figures for x in report.verdicts if x.name == 'reported']
  assert 'bits a token' in figures


def test_texts_are_cut_between_words_to_what_a_row_holds():
  one, two = referee.documents_of(honest(max_tokens=22), ['', *TEXTS], most=2)
  for document, text in zip((one, two), TEXTS, strict=False):
    assert 16 < len(document.tokens) <= 22
    assert text.startswith(f'{document.text} ')
    assert document.tokens.tolist() == encode(document.text)
  assert (one.id, two.id) == ('text 1', 'text 2')


@pytest.mark.parametrize(
  ('model', 'texts', 'named'),
  [
    (5, TEXTS, 'model'),
    (lambda tokens: tokens, [referee.Document(np.arange(5))], 'model'),
    (lambda tokens: tokens, TEXTS, 'encode'),
    (honest(), ['a'], 'texts'),
  ],
)
def test_what_cannot_be_judged_is_named(model, texts, named):
  with pytest.raises(ValueError, match=f'^{named}'):
    referee.referee(model, texts)
