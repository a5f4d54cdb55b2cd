# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of a corpus's documents, read by this process or by its workers.

One process that reads documents feeds only a few workers. Large files of JSON
lines are read by the workers instead, in two passes. The first parses ranges of
the files and returns a key of each id. This process finds the duplicates, counts
the documents and cuts the batches. The worker that gets a batch parses its lines
again. The documents and the errors are those of iteration over the corpus.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
import contextlib
import dataclasses
import functools
import io
import itertools
from typing import NamedTuple

import numpy as np

from retrieval.readers import base, files as files_lib
from retrieval.store import executors
from retrieval.text import corpus as corpus_lib, seen_ids

RANGE_BYTES = 64 << 20  # of a task of the first pass


def read(
  corpus: corpus_lib.Corpus, size: int, executor: executors.Executor
) -> Iterator[Sequence[corpus_lib.Document]] | list['LineBatch']:
  """Return the batches of `size` documents, of which the last may hold fewer.

  Workers read the documents of uncompressed JSON lines beyond `RANGE_BYTES`. The
  list then holds some hundred bytes for each batch, and 8 for each line in it
  that is no document.

  Raises:
    ValueError: as iteration over the corpus does.
  """
  if isinstance(executor, executors.Remote) and _can_split(corpus):
    ranges = _ranges(corpus.files)
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


class _Range(NamedTuple):
  """The lines of a file that begin in a range of its bytes."""

  file: base.SourceFile
  start: int
  limit: int


def _ranges(files: Iterable[base.SourceFile]) -> list[_Range]:
  found = []
  for file in files:
    size = file.path.stat().st_size
    for start in range(0, size, RANGE_BYTES):
      found.append(_Range(file, start, min(start + RANGE_BYTES, size)))
  return found


class _Scan(NamedTuple):
  """The records of one range: [n], blank lines left out."""

  index: int  # of the range
  num_lines: int
  lines: np.ndarray  # [n] from 0 in this range
  spans: np.ndarray  # [n, 2] first and past-last byte in the file
  faults: dict[int, str]  # record -> reason
  keys: bytes  # of the ids; none where ids are made of file and line


def _scanner(fields: base.Fields) -> Callable[..., _Scan]:
  return lambda index, part: _scan(index, part, fields)


def _scan(index: int, part: _Range, fields: base.Fields) -> _Scan:
  """Parse the lines of a range."""
  lines, spans, faults, keys = [], [], {}, []
  count = 0
  for start, line in _lines_of(part):
    # Line 1 may begin with a mark; other numbers make no difference here.
    number = 1 if start == 0 else 2
    found = files_lib.parse_line(part.file, number, line, fields)
    count += 1
    if found is None:
      continue
    key = bytes(seen_ids.KEY_BYTES)
    try:
      document = corpus_lib.checked(*found)
      key = seen_ids.key_of(document.id)
    except base.BadRecord as error:
      faults[len(lines)] = error.reason
    lines.append(count - 1)
    spans.append((start, start + len(line)))
    keys.append(key)
  return _Scan(
    index,
    count,
    np.asarray(lines, np.int64),
    np.asarray(spans, np.int64).reshape(-1, 2),
    faults,
    b''.join(keys) if fields.id else b'',
  )


def _lines_of(part: _Range) -> Iterator[tuple[int, bytes]]:
  """Yield (first byte, line with its end) of the lines that begin in a range."""
  with base.open_file(part.file.path) as f:
    if part.start:
      f.seek(part.start - 1)
      f.readline()  # the end of the line that begins before the range
    start = f.tell()
    while start < part.limit and (line := f.readline()):
      yield start, line
      start += len(line)


class _Line(NamedTuple):
  """A line with a record."""

  file: base.SourceFile
  number: int  # in the file, from 1
  start: int
  limit: int
  reason: str  # why it is no document; '' for a document
  key: bytes


def _records(
  ranges: Sequence[_Range], scans: Iterable[_Scan]
) -> Iterator[tuple[str, _Line]]:
  """Yield place and line of each record, in the order of the corpus."""
  first, file = 1, None
  for scan in _in_order(scans):
    if file != ranges[scan.index].file:
      first, file = 1, ranges[scan.index].file
    size = seen_ids.KEY_BYTES
    rows = zip(scan.lines.tolist(), scan.spans.tolist(), strict=True)
    for i, (line, (start, limit)) in enumerate(rows):
      key = scan.keys[i * size : (i + 1) * size]
      reason = scan.faults.get(i, '')
      yield (
        f'{file.path}:{first + line}',
        _Line(file, first + line, start, limit, reason, key),
      )
    first += scan.num_lines


def _in_order(scans: Iterable[_Scan]) -> Iterator[_Scan]:
  """Yield scans by their index; those that come early wait."""
  early, index = {}, 0
  for scan in scans:
    early[scan.index] = scan
    while index in early:
      yield early.pop(index)
      index += 1


def _line_batches(
  corpus: corpus_lib.Corpus,
  ranges: Sequence[_Range],
  size: int,
  executor: executors.Executor,
) -> Iterator['LineBatch']:
  """Yield the batches that the results of the first pass make."""
  set_up = functools.partial(_scanner, corpus.fields)
  scans = executor.run('lines', set_up, enumerate(ranges))
  with contextlib.closing(scans), seen_ids.SeenIds() as seen:
    check = functools.partial(_check, corpus, seen)
    kept = corpus.kept(_records(ranges, scans), check)
    while lines := list(itertools.islice(kept, size)):
      parts = itertools.groupby(lines, lambda line: line.file.name)
      pieces = [_piece(list(part)) for _, part in parts]
      yield LineBatch(corpus.fields, pieces, len(lines))


def _check(
  corpus: corpus_lib.Corpus, seen: seen_ids.SeenIds, where: str, line: _Line
) -> _Line:
  """Return the line of a document, or raise BadRecord."""
  reason, first = line.reason, ''
  if not reason and line.key:
    first = seen.add(line.key, where)
    reason = first and seen_ids.DUPLICATE
  if not reason:
    return line
  if corpus.config.on_error == 'skip':  # only the reason counts
    raise base.BadRecord(reason, where, '')
  [(_, record)] = _parse(_piece([line]), corpus.fields)
  document = corpus_lib.checked(where, record)
  raise seen_ids.duplicate(document.id, where, first)


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
  with base.open_file(piece.file.path) as f:
    f.seek(piece.start)
    data = f.read(piece.limit - piece.start)
  left_out = {*piece.left_out.tolist()}
  for number, line in enumerate(io.BytesIO(data), start=piece.number):
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
