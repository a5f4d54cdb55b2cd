# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A referee for language models with a memory: can their figures be believed?

A model shows what it predicts (`Scorer`), and `referee` says in a page of verdicts whether
these are probabilities, whether they depend on what they may depend on alone, what the
memory holds of the scored text, and what all of it costs. It samples places: a model that
passes may still be wrong in others, and weights that learned the text are not seen.

Dimension key: B rows, T tokens, P places of a row, V vocabulary.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import time
from typing import Any

from jaxtyping import Int
import numpy as np

from retrieval import arguments, settings, text_table
from retro_jax.evaluation import leakage, reached, referee_case

# tokens [B, T], places [B, P], ids of the documents [B] -> [B, P, V] log-probabilities
# in nats of the token after each place. T differs between calls; a row may end in
# tokens that are not asked about.
LogProbs = Callable[[np.ndarray, np.ndarray, Sequence[str]], Any]

_SUM = 1e-6  # most that a sum of probabilities may differ from 1
# Nats that a log-probability may change by. float32's rounding moves logits by some
# 1e-5 where rows are batched, padded or cached otherwise, and bits a byte of four digits
# feel nothing below 1e-3.
TOLERANCE = 1e-3
_FEW = 0.1  # share of 13-grams of a document that owes nothing to copies
_HELD = 0.5  # share of 13-grams from which on the memory holds a document
_SLACK = 1.01, 1 << 18  # bytes reached may exceed those stated by so much


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scorer:
  """Functions of a model for the referee; only `log_probs` is required."""

  log_probs: LogProbs
  # text -> token ids; the first one begins a document and is not scored
  encode: Callable[[str], Sequence[int]] | None = None
  # contexts, texts -> for each text its `nats` and `num_bytes`, as the model reports
  # them; as LanguageModel.loglikelihood
  score: Callable[[Sequence[str], Sequence[str]], Sequence[Any]] | None = None
  without: LogProbs | None = None  # `log_probs` without the memory
  cached: LogProbs | None = None  # `log_probs` of a decoder with a cache
  # tokens [T], place -> [T] how much the prediction there moves with each token
  gradient: Callable[[np.ndarray, int], Any] | None = None
  # document id -> tokens of all that may be read for it, less than 0 between texts
  memory: Callable[[str], Int[np.ndarray, ' _']] | None = None
  # bytes of 'weights', 'memory' and 'caches', once texts are scored
  num_bytes: Callable[[], Mapping[str, int]] = dict
  flops_per_token: float | None = None  # of a forward pass
  causal: bool = True  # False: later tokens may be read, as of a masked word
  max_tokens: int = 256  # T of the longest row
  batch_size: int = 4  # most rows of a call


@dataclasses.dataclass(frozen=True)
class Document:
  """A document to score."""

  tokens: Int[np.ndarray, ' T']
  text: str = ''  # '': its bytes are not known
  id: str = ''


@dataclasses.dataclass(frozen=True)
class Verdict:
  """A verdict; `passed` is None where a model shows nothing to judge."""

  name: str
  passed: bool | None
  figures: str


@dataclasses.dataclass(frozen=True, repr=False)
class Report(text_table.Short):
  """The verdicts on a model."""

  verdicts: tuple[Verdict, ...]

  @property
  def failed(self) -> list[str]:
    """Names of the verdicts that fail."""
    return [x.name for x in self.verdicts if x.passed is False]

  def __str__(self) -> str:
    words = {True: 'passes', False: 'FAILS', None: '-'}
    width = max(len(x.name) for x in self.verdicts)
    lines = [
      f'{x.name:{width}}  {words[x.passed]:6}  {x.figures}'
      for x in self.verdicts
    ]
    return '\n'.join([*lines, f'failed: {", ".join(self.failed) or "none"}'])


def as_scorer(model: Any) -> Scorer:
  """Return the Scorer of a model.

  Args:
    model: a Scorer; a loaded model with a method `scorer`; or a function of tokens
      [B, T] that returns log-probabilities [B, T, V], of token t + 1 in row t.

  Raises:
    ValueError: for anything else.
  """
  if isinstance(model, Scorer):
    return model
  if hasattr(model, 'scorer'):
    return model.scorer()
  if not callable(model):
    raise settings.SettingsError('model', model, 'a Scorer or a function')

  def log_probs(tokens, places, documents):
    del documents
    every = np.asarray(model(tokens))
    if every.ndim != 3 or every.shape[:2] != tokens.shape:
      raise ValueError(
        f'model: returned {every.shape} for tokens {tokens.shape}; '
        'expected [B, T, V].'
      )
    return np.take_along_axis(every, places[..., None], axis=1)

  return Scorer(log_probs=log_probs)


def documents_of(
  scorer: Scorer, texts: Iterable[str | Document], most: int
) -> list[Document]:
  """Encode texts, cut between words to the tokens that a row holds.

  Raises:
    ValueError: without `encode`, or where no text has three tokens.
  """
  taken = []
  if isinstance(texts, str):
    texts = arguments.listed(texts, 'texts')
  for i, text in enumerate(texts):
    if isinstance(text, str):
      text = _encode(scorer, text, f'text {i}')
    if len(text.tokens) > 2:
      taken.append(text)
    if len(taken) == most:
      break
  if not taken:
    raise settings.SettingsError('texts', [], 'texts of three tokens or more')
  return taken


def _encode(scorer: Scorer, text: str, name: str) -> Document:
  if scorer.encode is None:
    raise settings.SettingsError('encode', None, 'a function for texts')
  words = text.split(' ')
  while len(tokens := scorer.encode(text)) > scorer.max_tokens:
    words = words[: len(words) * scorer.max_tokens // len(tokens)]
    text = ' '.join(words)
  return Document(np.asarray(tokens, np.int64), text, name)


def _minus(one: np.ndarray, other: np.ndarray) -> np.ndarray:
  """Differences of log-probabilities; inf where one is not a number."""
  with np.errstate(invalid='ignore'):
    difference = np.where(one == other, 0.0, one - other)
  return np.nan_to_num(difference, nan=np.inf, posinf=np.inf, neginf=-np.inf)


def _largest(one: np.ndarray, other: np.ndarray) -> float:
  return float(np.abs(_minus(one, other)).max(initial=0.0))


def _same(name: str, pairs: Mapping[str, Any]) -> Verdict:
  """Return the verdict on log-probabilities that should be equal."""
  if not pairs:
    return Verdict(name, None, 'nothing to compare')
  changes = {what: _largest(*pair) for what, pair in pairs.items()}
  figures = ', '.join(f'{what} {x:.1e}' for what, x in changes.items())
  return Verdict(
    name,
    max(changes.values()) <= TOLERANCE,
    f'change in nats at most: {figures} (limit {TOLERANCE:g})',
  )


def _sums(case: referee_case.Case) -> Verdict:
  error = _largest(np.exp(case.every).sum(axis=-1), np.ones(()))
  text = f'differ from 1 by {error:.1e} at {case.places.size} places'
  if case.scorer.without:
    alone = case.ask(by=case.scorer.without)
    change = _largest(case.targets(case.every), case.targets(alone))
    speaks = (np.abs(np.exp(case.every) - np.exp(alone)) > _SUM).any(axis=-1)
    text += (
      f', at {speaks.sum()} of which the memory speaks (the token by up to '
      f'{change:.2f} nats)'
    )
  return Verdict('sums to 1', error <= _SUM, f'{text} (limit {_SUM:g})')


def _later(case: referee_case.Case) -> Verdict:
  """Change the tokens after a place, or the scored one alone of a masked model."""
  others, pairs = np.unique(case.tokens[:, 1:]), {}
  for column in {0, case.places.shape[1] // 2}:
    after = np.arange(case.tokens.shape[1]) - case.places[:, column, None]
    step = case.rng.integers(1, max(2, len(others)), case.tokens.shape)
    drawn = others[(np.searchsorted(others, case.tokens) + step) % len(others)]
    changed = after > 0 if case.scorer.causal else after == 1
    answer = case.ask(np.where(changed, drawn, case.tokens))[:, column]
    pairs[f'place {column + 1}'] = case.every[:, column], answer
  return _same('later tokens' if case.scorer.causal else 'scored token', pairs)


def _gradient(case: referee_case.Case) -> Verdict:
  show, place = case.scorer.gradient, case.places[0, -1]
  if show is None or not case.scorer.causal:
    return Verdict('gradient', None, 'nothing shown')
  size = np.abs(np.asarray(show(case.tokens[0], int(place))))
  later, earlier = size[place + 1 :].max(initial=0.0), size[: place + 1].max()
  return Verdict(
    'gradient',
    bool(later == 0 < earlier),
    f'of later tokens {later:g}, of earlier ones {earlier:.1e}',
  )


def _batch(case: referee_case.Case) -> Verdict:
  rows, count, pairs = (case.tokens, case.places, case.ids), len(case.ids), {}
  if count > 1:
    turned = case.ask(*(x[::-1] for x in rows))
    pairs['in another order'] = case.every[::-1], turned
  if case.scorer.causal:
    alone = [x[p] for x, p in zip(case.alone, case.places, strict=True)]
    pairs['alone'] = case.targets(case.every), -np.stack(alone)
  elif count > 1:
    repeated = case.ask(*(np.repeat(x[:1], count, axis=0) for x in rows))
    pairs['beside itself'] = case.every[:1], repeated
  return _same('batch and order', pairs)


def _padding(case: referee_case.Case) -> Verdict:
  """Cut rows in their middle; pad those of a masked model, which reads all of them."""
  count, tokens = case.places.shape[1], case.tokens
  if case.scorer.causal:
    count = (count + 1) // 2
    tokens = tokens[:, : case.places[:, :count].max() + 2]
  else:
    more = max(0, case.scorer.max_tokens - tokens.shape[1])
    tokens = np.pad(tokens, ((0, 0), (0, more)))
  if tokens.shape == case.tokens.shape:
    return _same('padding', {})
  places = case.places[:, :count]
  pair = case.every[:, :count], case.ask(tokens, places)
  return _same('padding', {f'rows of {tokens.shape[1]} tokens': pair})


def _cache(case: referee_case.Case, again: np.ndarray) -> Verdict:
  pairs = {'asked again': (case.every, again)}
  if case.scorer.cached:
    asked = case.tokens[:2], case.places[:2, -2:], case.ids[:2]
    decoded = case.ask(*asked, case.scorer.cached)
    pairs['decoded'] = case.every[:2, -2:], decoded
  return _same('cache', pairs)


def _reported(case: referee_case.Case) -> Verdict:
  """Compare reported nats and bytes with those of the text."""
  scorer, asked = case.scorer, []
  for document, nats in zip(case.documents, case.alone, strict=True):
    for cut in (0, document.text.find(' ', len(document.text) // 2)):
      if not (scorer.score and document.text) or cut < 0:
        continue
      context, text = document.text[:cut], document.text[cut:]
      before = np.asarray(scorer.encode(context))
      # A context that ends within a token is not asked.
      if not cut or np.array_equal(before, document.tokens[: len(before)]):
        asked.append((context, text, nats[len(before) - 1 if cut else 0 :]))
  figures = case.bits(slice(None))
  if not asked:
    return Verdict('reported', None, f'{figures} as the referee counts them')
  contexts, texts, nats = zip(*asked, strict=True)
  said = scorer.score(contexts, texts)
  pairs = [*zip(said, texts, nats, strict=True)]
  means = np.array([(x.nats / len(n), n.mean()) for x, _, n in pairs])
  worst = _largest(*means.T)
  wrong = [
    f'{x.num_bytes} for {len(text.encode())}'
    for x, text, _ in pairs
    if x.num_bytes != len(text.encode())
  ]
  return Verdict(
    'reported',
    worst <= TOLERANCE and not wrong,
    f'{figures}; nats of {len(asked)} texts, some after a prompt, differ from the '
    f'log-probabilities by {worst:.1e} a token; wrong bytes: {[*wrong, "none"][0]}',
  )


def _own_document(case: referee_case.Case) -> Verdict:
  unnamed = case.ask(ids=[''] * len(case.ids))
  gain = _minus(case.targets(case.every), case.targets(unnamed))
  figures = f'a token gains at most {gain.max():.1e} nats by its document id'
  return Verdict('own document', bool(gain.max() <= TOLERANCE), figures)


def _memory(case: referee_case.Case) -> Verdict:
  read = case.scorer.memory
  if read is None:
    passed = False if case.scorer.num_bytes().get('memory') else None
    return Verdict('memory', passed, 'no tokens of it are shown')
  shares, ratios = zip(
    *(leakage.share(x.tokens[1:], read(x.id)) for x in case.documents),
    strict=True,
  )
  shares, ratios = np.array(shares), np.concatenate(ratios)
  few, held = shares < _FEW, np.flatnonzero(shares >= _HELD)
  names = ': ' + ', '.join(case.ids[i] for i in held[:3]) if len(held) else ''
  return Verdict(
    'memory',
    not len(held),
    f'13-grams {100 * shares.mean():.1f} % (at most {100 * shares.max():.0f} %), '
    f'r(C) {ratios.mean():.2f} (at most {ratios.max():.2f}); holds {len(held)} of '
    f'{len(shares)} documents{names}; {case.bits(few)} of {few.sum()} below '
    f'{100 * _FEW:.0f} %',
  )


def _bytes(case: referee_case.Case) -> Verdict:
  there = reached.num_bytes(case.scorer.log_probs, case.scorer.score)
  stated = case.scorer.num_bytes()
  figures = ', '.join(f'{k} {x:,}' for k, x in stated.items())
  figures = f'{figures or "none stated"}; reached in this process {there:,}'
  passed = there <= sum(stated.values()) * _SLACK[0] + _SLACK[1]
  return Verdict('bytes', passed if stated else None, figures)


def _restart(case: referee_case.Case, again: LogProbs | None) -> Verdict:
  if again is None:
    return Verdict('restart', None, 'not loaded again')
  return _same('restart', {'loaded again': (case.every, case.ask(by=again))})


def referee(
  model: Any,
  texts: Iterable[str | Document],
  *,
  again: LogProbs | None = None,
  max_documents: settings.Size = 8,
  num_places: settings.Size = 8,
  seed: int = 0,
) -> Report:
  """Judge a model on documents that it has not seen.

  Args:
    model: as of `as_scorer`.
    texts: held-out documents; of each the beginning that a row holds is scored.
    again: `log_probs` of the same model loaded anew, best in another process.
    max_documents: the first so many.
    num_places: of each document whose distributions are looked at; two of them are
      scored again with other tokens after them.
    seed: of places and changes.

  Returns:
    A Report; its `failed` names the verdicts that fail.

  Raises:
    ValueError: for a model or texts that do not fit.
  """
  scorer = as_scorer(model)
  documents = documents_of(scorer, texts, max_documents)
  case = referee_case.Case(
    scorer, documents, num_places, np.random.default_rng(seed)
  )
  checks = _sums, _later, _gradient, _batch, _padding, _reported, _own_document
  verdicts = [check(case) for check in (*checks, _memory, _bytes)]
  verdicts.append(_restart(case, again))
  # Last: caches may have seen other rows, and all is compiled.
  start, flops = time.perf_counter(), scorer.flops_per_token
  asked_again = case.ask()
  seconds = (time.perf_counter() - start) / case.tokens.size
  verdicts.append(_cache(case, asked_again))
  told = 'not stated' if flops is None else f'{flops:.3g}'
  figures = f'{seconds:.1e} seconds and {told} FLOPs a token'
  return Report((*verdicts, Verdict('cost', None, figures)))
