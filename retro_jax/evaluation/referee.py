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
import inspect
import time
from typing import Any

from jaxtyping import Int
import numpy as np

from retrieval import settings, text_table
from retro_jax.evaluation import leakage, reached

# tokens [B, T], places [B, P], ids of the documents [B] -> [B, P, V] log-probabilities
# in nats of the token after each place. T differs between calls; a row may end in
# tokens that are not asked about.
LogProbs = Callable[[np.ndarray, np.ndarray, Sequence[str]], Any]

_SUM = 1e-6  # most that a sum of probabilities may differ from 1
# Nats that a log-probability may change by. float32's rounding moves logits by some
# 1e-5 where rows are batched, padded or cached otherwise, and bits a byte of four digits
# feel nothing below 1e-3.
TOLERANCE = 1e-3
_GRAM = 13  # tokens, as in GPT-3's appendix C
_CHUNK = 64  # tokens, of which r(C) is a share
_FEW = 0.1  # share of 13-grams of a document that owes nothing to copies
_HELD = 0.5  # share of 13-grams from which on the memory holds a document
_SLACK = 1.01, 1 << 18  # bytes reached may exceed those stated by so much


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scorer:
  """What a model shows to the referee. `log_probs` alone is required."""

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
  # weights, memory, caches -> arrays, other objects, paths, a list of these, or a
  # number
  num_bytes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
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
    rows = [(x.name, words[x.passed], x.figures) for x in self.verdicts]
    width = max(len(name) for name, _, _ in rows)
    lines = [f'{x:{width}}  {y:6}  {z}' for x, y, z in rows]
    failed = ', '.join(self.failed) or 'none'
    return '\n'.join([*lines, f'failed: {failed}'])


def as_scorer(model: Any) -> Scorer:
  """Return the Scorer of a model.

  Args:
    model: a Scorer; a loaded model with a method `scorer`; or a function of tokens
      [B, T] that returns log-probabilities [B, T, V], of token t + 1 in row t. If it
      takes `documents`, it gets the ids of the rows' documents.

  Raises:
    ValueError: for anything else.
  """
  if isinstance(model, Scorer):
    return model
  if hasattr(model, 'scorer'):
    return model.scorer()
  if not callable(model):
    raise settings.SettingsError('model', model, 'a Scorer or a function')
  names = inspect.signature(model).parameters

  def log_probs(tokens, places, documents):
    more = {'documents': documents} if 'documents' in names else {}
    every = np.asarray(model(tokens, **more))
    if every.ndim != 3 or every.shape[:2] != tokens.shape:
      raise ValueError(
        f'{model.__name__}: returned {every.shape} for tokens {tokens.shape}; '
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
  for i, text in enumerate(texts):
    if isinstance(text, str):
      if scorer.encode is None:
        raise settings.SettingsError('encode', None, 'a function for texts')
      text = _fitted(scorer, text, f'text {i}')
    if len(text.tokens) > 2:
      taken.append(text)
    if len(taken) == most:
      break
  if not taken:
    raise settings.SettingsError('texts', [], 'texts of three tokens or more')
  return taken


def _encoded(scorer: Scorer, text: str) -> np.ndarray:
  return np.asarray(scorer.encode(text), np.int64)


def _fitted(scorer: Scorer, text: str, name: str) -> Document:
  tokens = _encoded(scorer, text)
  while len(tokens) > scorer.max_tokens:
    share = scorer.max_tokens / len(tokens)
    cut = text[: int(len(text) * share)]
    text = cut[: max(cut.rfind(' '), 1)] if len(cut) > 1 else ''
    tokens = _encoded(scorer, text)
  return Document(tokens, text, name)


class _Case:
  """Documents in rows, and the places that are looked at."""

  def __init__(self, scorer, documents, num_places, rng):
    self.scorer, self.documents, self.rng = scorer, documents, rng
    self.lengths = np.array([len(x.tokens) for x in documents])
    self.tokens = np.zeros((len(documents), self.lengths.max()), np.int64)
    for row, document in zip(self.tokens, documents, strict=True):
      row[: len(document.tokens)] = document.tokens
    # One place of each equal part of a text.
    parts = rng.random((len(documents), num_places)) + np.arange(num_places)
    parts *= (self.lengths[:, None] - 1) / num_places
    self.places = parts.astype(np.int64)
    self.ids = [x.id for x in documents]
    self.rows = np.arange(len(documents))
    self.every = self.ask()
    # Nats of each document's tokens; of a masked model those at its places.
    self.alone = [*-self.targets(self.every)]
    if scorer.causal:
      self.alone = [self._nats(d) for d in self.rows]

  def ask(self, rows=None, tokens=None, places=None, ids=None, by=None):
    """Log-probabilities [B, P, V] float64 of rows, by default all as they are."""
    rows = self.rows if rows is None else rows
    tokens = self.tokens[rows] if tokens is None else tokens
    places = self.places[rows] if places is None else places
    ids = [self.ids[i] for i in rows] if ids is None else ids
    by, size, parts = by or self.scorer.log_probs, self.scorer.batch_size, []
    for i in range(0, len(rows), size):
      part = slice(i, i + size)
      parts.append(np.asarray(by(tokens[part], places[part], ids[part])))
    return np.concatenate(parts).astype(np.float64)

  def targets(self, log_probs):
    """Log-probabilities [B, P] of the tokens that follow `places`."""
    rows, shown = self.rows[:, None], np.arange(self.places.shape[1])
    return log_probs[rows, shown, self.tokens[rows, self.places + 1]]

  def _nats(self, d):
    """Nats [T - 1] of a document's tokens, alone in a batch."""
    # All of one shape: what is compiled for one serves the others.
    tokens = self.tokens[d : d + 1]
    places = np.arange(tokens.shape[1] - 1)
    of_all = self.ask([d], tokens, places[None])[0]
    return -of_all[places, tokens[0, 1:]][: self.lengths[d] - 1]


def _largest(one: np.ndarray, other: np.ndarray) -> float:
  """Largest difference of log-probabilities; inf where one is not a number."""
  with np.errstate(invalid='ignore'):
    difference = np.where(one == other, 0.0, np.abs(one - other))
  return float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0))


def _same(name: str, pairs: Mapping[str, Any]) -> Verdict:
  """Return the verdict on log-probabilities that should be equal."""
  changes = {what: _largest(*pair) for what, pair in pairs.items()}
  figures = ', '.join(f'{what} {x:.1e}' for what, x in changes.items())
  return Verdict(
    name,
    max(changes.values()) <= TOLERANCE,
    f'change in nats at most: {figures} (limit {TOLERANCE:g})',
  )


def _sums(case: _Case) -> Verdict:
  error = _largest(np.exp(case.every).sum(axis=-1), np.ones(()))
  text = f'differ from 1 by {error:.1e} at {case.places.size} places'
  if case.scorer.without:
    alone = case.ask(by=case.scorer.without)
    change = np.abs(case.targets(case.every) - case.targets(alone))
    speaks = (np.abs(np.exp(case.every) - np.exp(alone)) > _SUM).any(axis=-1)
    text += (
      f', at {speaks.sum()} of which the memory speaks (the token by up to '
      f'{change.max():.2f} nats)'
    )
  return Verdict('sums to 1', error <= _SUM, f'{text} (limit {_SUM:g})')


def _changed(case: _Case, later: bool) -> Any:
  """Log-probabilities before and after a change of the tokens after places."""
  step = max(1, case.places.shape[1] // 2)
  columns = np.arange(case.places.shape[1])[::step]
  rows, columns = (
    np.repeat(case.rows, len(columns)),
    np.tile(columns, len(case.rows)),
  )
  tokens, others = case.tokens[rows], np.unique(case.tokens[:, 1:])
  where = np.arange(tokens.shape[1]) - case.places[rows, columns, None]
  drawn = case.rng.choice(others, tokens.shape)
  for other in others[[0, -1]]:
    drawn = np.where(drawn == tokens, other, drawn)
  changed = np.where(where > 0 if later else where == 1, drawn, tokens)
  after = case.ask(rows, changed)
  return case.every[rows, columns], after[np.arange(len(rows)), columns]


def _gradient(case: _Case) -> Verdict:
  show, later, earlier = case.scorer.gradient, [], []
  if show is None or not case.scorer.causal:
    return Verdict('gradient', None, 'nothing shown')
  for d in case.rows[:2]:
    place = int(case.places[d, -1])
    size = np.abs(np.asarray(show(case.tokens[d], place)))
    later.append(size[place + 1 :].max(initial=0.0))
    earlier.append(size[: place + 1].max())
  figures = (
    f'of later tokens {max(later):g}, of earlier ones {min(earlier):.1e}'
  )
  return Verdict('gradient', bool(max(later) == 0 < min(earlier)), figures)


def _batch(case: _Case) -> Verdict:
  turned = case.rows[::-1]
  pairs = {'in another order': (case.every[turned], case.ask(turned))}
  if case.scorer.causal:
    alone = (x[p] for x, p in zip(case.alone, case.places, strict=True))
    pairs['alone'] = case.targets(case.every), -np.stack([*alone])
  return _same('batch and order', pairs)


def _padding(case: _Case) -> Verdict:
  size = case.places.max() + 2 if case.scorer.causal else case.lengths.max()
  more = max(0, case.scorer.max_tokens - case.tokens.shape[1])
  longer = np.pad(case.tokens, ((0, 0), (0, more)))
  pairs = {
    'shorter rows': (case.every, case.ask(tokens=case.tokens[:, :size])),
    'longer rows': (case.every, case.ask(tokens=longer)),
  }
  return _same('padding', pairs)


def _cache(case: _Case) -> Verdict:
  """Judge caches, after all other verdicts have scored other rows."""
  pairs = {'asked again': (case.every, case.ask())}
  if case.scorer.cached:
    d, last = case.rows[:2], case.places[:2, -2:]
    pairs['decoded'] = (
      case.every[d, -2:],
      case.ask(d, places=last, by=case.scorer.cached),
    )
  return _same('cache', pairs)


def _reported(case: _Case) -> Verdict:
  """Compare reported nats and bytes with those of the text."""
  scorer, worst, wrong, count = case.scorer, 0.0, [], 0
  for document, own in zip(case.documents, case.alone, strict=True):
    if not (scorer.score and document.text):
      continue
    half = document.text.find(' ', len(document.text) // 2)
    for cut in (0, half):
      context, text = document.text[:cut], document.text[cut:]
      first = len(_encoded(scorer, context))
      if cut < 0 or (cut and not _is_prefix(scorer, context, document)):
        continue
      [said] = scorer.score([context], [text])
      expected = own[first - 1 :] if cut else own
      worst = max(worst, abs(said.nats - expected.sum()) / len(expected))
      count += 1
      if said.num_bytes != len(text.encode()):
        wrong.append(f'{said.num_bytes} bytes for {len(text.encode())}')
  size, unit = _sizes(case)
  bits = sum(x.sum() for x in case.alone) / np.log(2) / size.sum()
  figures = f'{bits:.3f} bits a {unit}'
  if not count:
    return Verdict('reported', None, f'{figures} as the referee counts them')
  figures += (
    f'; nats of {count} texts, half of them after a prompt, differ from the '
  )
  figures += f'log-probabilities by {worst:.1e} a token; wrong bytes: '
  passed = bool(worst <= TOLERANCE) and not wrong
  return Verdict(
    'reported', passed, f'{figures}{wrong[0] if wrong else "none"}'
  )


def _sizes(case: _Case) -> tuple[np.ndarray, str]:
  """Bytes of each document's text, or its scored tokens, and their unit."""
  sizes = np.array([len(x.text.encode()) for x in case.documents])
  if sizes.all():
    return sizes, 'byte'
  return np.array([len(x) for x in case.alone]), 'token'


def _is_prefix(scorer, context, document) -> bool:
  before = _encoded(scorer, context)
  return np.array_equal(before, document.tokens[: len(before)])


def _own_document(case: _Case) -> Verdict:
  unnamed = case.ask(ids=[''] * len(case.rows))
  gain = case.targets(case.every) - case.targets(unnamed)
  figures = f'a token gains at most {gain.max():.1e} nats by its document id'
  return Verdict('own document', bool(gain.max() <= TOLERANCE), figures)


def _overlap(runs: np.ndarray) -> tuple[float, np.ndarray]:
  """Share of 13-grams, and r(C) of each chunk, of a text's runs."""
  starts = np.arange(len(runs))
  ends = np.minimum(starts // _CHUNK * _CHUNK + _CHUNK, len(runs))
  within = np.minimum(runs, ends - starts)
  first = starts[::_CHUNK]
  first = first[
    ends[first] - first >= min(_GRAM, len(runs))
  ]  # no shorter rests
  within = within[: ends[first[-1]]]
  grams = runs[: max(len(runs) - _GRAM + 1, 1)] >= min(_GRAM, len(runs))
  sizes = ends[first] - first
  return float(grams.mean()), np.maximum.reduceat(within, first) / sizes


def _runs(case, memories) -> list[np.ndarray]:
  """`leakage.longest_runs` of each document; equal memories are read once."""
  runs = {}
  for memory in {id(x): x for x in memories}.values():
    who = [d for d in case.rows if memories[d] is memory]
    parts = [np.append(case.documents[d].tokens[1:], -1) for d in who]
    ends = np.cumsum([len(x) for x in parts])
    joined = leakage.longest_runs(np.concatenate(parts), memory)
    pieces = np.split(joined, ends[:-1])
    runs |= {d: x[:-1] for d, x in zip(who, pieces, strict=True)}
  return [runs[d] for d in case.rows]


def _memory(case: _Case, arrays: list[Any]) -> Verdict:
  read, stated = case.scorer.memory, ''
  if read is None:
    whole = reached.integers(arrays)
    if case.scorer.num_bytes.get('memory') or not whole:
      passed = None if not case.scorer.num_bytes.get('memory') else False
      return Verdict('memory', passed, 'no tokens of it are shown')
    flat = np.concatenate([np.append(x, -1) for x in whole])
    read, stated = lambda _: flat, 'of all arrays reached: '
  memories = [read(x.id) for x in case.documents]
  shares, longest = zip(*map(_overlap, _runs(case, memories)), strict=True)
  shares, ratios = np.array(shares), np.concatenate(longest)
  held = [
    document.id
    for document, share in zip(case.documents, shares, strict=True)
    if share >= _HELD
  ]
  figures = f'{stated}13-grams {100 * shares.mean():.1f} % (at most '
  figures += f'{100 * shares.max():.0f} %), r(C) {ratios.mean():.2f} (at most '
  figures += (
    f'{ratios.max():.2f}); holds {len(held)} of {len(shares)} documents'
  )
  figures += f': {held[0]}' if held else ''
  return Verdict('memory', not held, figures + _without_copies(case, shares))


def _without_copies(case, shares) -> str:
  """Bits a byte of documents with few shared 13-grams."""
  (sizes, unit), nats = _sizes(case), np.array([x.sum() for x in case.alone])
  [few] = leakage.curve(nats, sizes, case.rows, shares, (_FEW,))
  bits, count = few['bits_per_byte'], few['documents']
  return f'; {bits:.3f} bits a {unit} of {count} below {100 * _FEW:.0f} %'


def _bytes(case: _Case, there: int) -> Verdict:
  stated = {k: reached.count(x) for k, x in case.scorer.num_bytes.items()}
  total = sum(stated.values())
  figures = ', '.join(f'{k} {x:,}' for k, x in stated.items())
  figures = f'{figures or "none stated"}; reached in this process {there:,}'
  if not stated:
    return Verdict('bytes', None, figures)
  return Verdict('bytes', there <= total * _SLACK[0] + _SLACK[1], figures)


def _restart(case: _Case, again: LogProbs | None) -> Verdict:
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
  case = _Case(scorer, documents, num_places, np.random.default_rng(seed))
  verdicts = [_sums(case)]
  if scorer.causal:
    verdicts.append(
      _same('later tokens', {'all changed': _changed(case, True)})
    )
  verdicts.append(_same('scored token', {'changed': _changed(case, False)}))
  verdicts += [_gradient(case), _batch(case), _padding(case)]
  arrays, others = reached.reach(scorer.log_probs, scorer.score)
  verdicts += [
    _reported(case),
    _own_document(case),
    _memory(case, arrays),
    _bytes(case, reached.size_of(arrays) + others),
    _restart(case, again),
    _cache(case),
  ]
  return Report((*verdicts, _cost(case)))


def _cost(case: _Case) -> Verdict:
  """Time calls of shapes that were scored before."""
  start, flops = time.perf_counter(), case.scorer.flops_per_token
  case.ask()
  seconds = (time.perf_counter() - start) / case.tokens.size
  told = 'not stated' if flops is None else f'{flops:.3g}'
  figures = f'{seconds:.1e} seconds and {told} FLOPs a token, '
  return Verdict('cost', None, f'{figures}in rows of {case.tokens.shape[1]}')
