# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of a corpus's documents, read by this process or by its workers.

One process that reads documents feeds only a few workers. Large files of JSON
lines are read by the workers instead, in two passes. The first parses ranges of
the files and returns a key of each id. This process finds the duplicates, counts
the documents and cuts the batches. The worker that gets a batch parses its lines
again. The documents and the errors are those of iteration over the corpus.
"""

from collections.abc import Iterable, Iterator, Sequence
import contextlib
import dataclasses
import functools
import itertools
import operator
from typing import NamedTuple

import numpy as np

from retrieval.readers import base, files as files_lib
from retrieval.store import executors
from retrieval.text import corpus as corpus_lib, line_ranges, seen_ids


def read(
  corpus: corpus_lib.Corpus, size: int, executor: executors.Executor
) -> Iterator[Sequence[corpus_lib.Document]] | list['LineBatch']:
  """Return the batches of `size` documents, of which the last may hold fewer.

  Workers read the documents of uncompressed JSON lines of more than one range. The
  list then holds some hundred bytes for each batch, and 8 for each line in it
  that is no document.

  Raises:
    ValueError: as iteration over the corpus does.
  """
  if isinstance(executor, executors.Remote) and _can_split(corpus):
    ranges = line_ranges.cut(corpus.files)
    if len(ranges) > 1:
      return list(_line_batches(corpus, ranges, size, executor))
  documents = iter(corpus)
  return iter(lambda: list(itertools.islice(documents, size)), [])


def _can_split(corpus: corpus_lib.Corpus) -> bool:
  return (
    isinstance(corpus, corpus_lib.Corpus)
    and corpus.config.kind == 'jsonl'
    and all(base.is_plain(file.path) for file in corpus.files)
  )


class _Line(NamedTuple):
  """A line with a record."""

  file: base.SourceFile
  number: int  # in the file, from 1
  start: int
  limit: int
  reason: str  # why it is no document; '' for a document
  first: str  # place of the first document of its id, for a duplicate


def _lines(
  ranges: Sequence[line_ranges.Range],
  scans: Iterable[line_ranges.Scan],
  seen: seen_ids.SeenIds,
) -> Iterator[_Line]:
  """Yield the line of each record, in the order of the corpus."""
  before, file = 0, None
  for scan in line_ranges.in_order(scans):
    if file != ranges[scan.index].file:
      before, file = 0, ranges[scan.index].file
    numbers = (scan.lines + before + 1).tolist()
    reasons = [''] * len(numbers)
    for i, reason in scan.faults.items():
      reasons[i] = reason
    firsts = [''] * len(numbers)
    for i, first in _duplicates(scan, file, numbers, seen):
      reasons[i], firsts[i] = seen_ids.DUPLICATE, first
    spans = scan.spans.T.tolist()
    yield from map(
      _Line, itertools.repeat(file), numbers, *spans, reasons, firsts
    )
    before += scan.num_lines


def _duplicates(
  scan: line_ranges.Scan,
  file: base.SourceFile,
  numbers: Sequence[int],
  seen: seen_ids.SeenIds,
) -> Iterator[tuple[int, str]]:
  """Yield each record whose id is used, and the place of its first document."""
  if not scan.keys:
    return
  keys = np.frombuffer(scan.keys, f'V{seen_ids.KEY_BYTES}').tolist()
  places = [f'{file.path}:{number}' for number in numbers]
  rows = zip(keys, places, strict=True)
  firsts = seen.add_all([x for i, x in enumerate(rows) if i not in scan.faults])
  for i, place in enumerate(places) if firsts else ():
    if place in firsts:
      yield i, firsts[place]


def _line_batches(
  corpus: corpus_lib.Corpus,
  ranges: Sequence[line_ranges.Range],
  size: int,
  executor: executors.Executor,
) -> Iterator['LineBatch']:
  """Yield the batches that the results of the first pass make."""
  set_up = functools.partial(line_ranges.scanner, corpus.fields)
  scans = executor.run('lines', set_up, enumerate(ranges))
  with contextlib.closing(scans), seen_ids.SeenIds() as seen:
    check = functools.partial(_check, corpus)
    kept = corpus.kept(_lines(ranges, scans, seen), check)
    while lines := list(itertools.islice(kept, size)):
      parts = itertools.groupby(lines, operator.attrgetter('file'))
      pieces = [_piece(list(part)) for _, part in parts]
      yield LineBatch(corpus.fields, pieces, len(lines))


def _check(corpus: corpus_lib.Corpus, line: _Line) -> _Line:
  """Return the line of a document, or raise BadRecord."""
  if not line.reason:
    return line
  where = f'{line.file.path}:{line.number}'
  if corpus.config.on_error == 'skip':  # only the reason counts
    raise base.BadRecord(line.reason, where, '')
  [(_, record)] = _parse(_piece([line]), corpus.fields)
  document = corpus_lib.checked(where, record)
  raise seen_ids.duplicate(document.id, where, line.first)


class _Piece(NamedTuple):
  """Consecutive lines of one file, some of which are left out."""

  file: base.SourceFile
  number: int  # of the first line
  start: int
  limit: int
  left_out: np.ndarray  # numbers of lines


def _piece(lines: Sequence[_Line]) -> _Piece:
  """Return the piece that holds some lines of a file and no others."""
  first, last = lines[0], lines[-1]
  numbers = [line.number for line in lines]
  left_out = np.setdiff1d(np.arange(first.number, last.number), numbers)
  return _Piece(first.file, first.number, first.start, last.limit, left_out)


def _parse(piece: _Piece, fields: base.Fields) -> base.Records:
  """Yield the records of a piece."""
  left_out = {*piece.left_out.tolist()}
  part = line_ranges.Range(piece.file, piece.start, piece.limit)
  lines = enumerate(line_ranges.lines_of(part), start=piece.number)
  for number, (_, line) in lines:
    if number not in left_out:
      found = files_lib.parse_line(piece.file, number, line, fields)
      if found:
        yield found


@dataclasses.dataclass(frozen=True)
class LineBatch:
  """Documents that are read from their files when they are asked for."""

  fields: base.Fields
  pieces: Sequence[_Piece]
  count: int

  def __len__(self) -> int:
    """Return the number of documents."""
    return self.count

  def __iter__(self) -> Iterator[corpus_lib.Document]:
    """Yield the documents.

    Raises:
      ValueError: when a file is no longer what it was.
    """
    found = [x for piece in self.pieces for x in _parse(piece, self.fields)]
    faults = sum(isinstance(x, base.BadRecord) for _, x in found)
    if faults or len(found) != self.count:
      paths = ', '.join(str(piece.file.path) for piece in self.pieces)
      raise ValueError(
        f'{paths}: {len(found) - faults} documents from line '
        f'{self.pieces[0].number} on where there were {self.count}: the file '
        'was changed while it was read.'
      )
    return iter([document for _, document in found])
