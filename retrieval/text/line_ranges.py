# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranges of files of JSON lines, which workers parse one by one.

A range owns the lines that begin in it. What a worker returns tells which lines
are documents, where they are, and a key of each id, but no text.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from retrieval.readers import base, files as files_lib
from retrieval.text import corpus as corpus_lib, seen_ids

RANGE_BYTES = 64 << 20  # of one task


class Range(NamedTuple):
  """The lines of a file that begin in a range of its bytes."""

  file: base.SourceFile
  start: int
  limit: int


def cut(files: Iterable[base.SourceFile]) -> list[Range]:
  """Cut files into ranges."""
  found = []
  for file in files:
    size = file.path.stat().st_size
    for start in range(0, size, RANGE_BYTES):
      found.append(Range(file, start, min(start + RANGE_BYTES, size)))
  return found


class Scan(NamedTuple):
  """The records of one range: [n], blank lines left out."""

  index: int  # of the range
  num_lines: int
  lines: np.ndarray  # [n] from 0 in this range
  spans: np.ndarray  # [n, 2] first and past-last byte in the file
  faults: dict[int, str]  # record -> reason
  keys: bytes  # of the ids; none where ids are made of file and line


def scanner(fields: base.Fields) -> Callable[[int, Range], Scan]:
  """Return the task that parses a range, given its index."""
  return lambda index, part: _scan(index, part, fields)


def _scan(index: int, part: Range, fields: base.Fields) -> Scan:
  """Parse the lines of a range."""
  lines, spans, faults, keys = [], [], {}, []
  count = 0
  for start, line in lines_of(part):
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
  return Scan(
    index,
    count,
    np.asarray(lines, np.int64),
    np.asarray(spans, np.int64).reshape(-1, 2),
    faults,
    b''.join(keys) if fields.id else b'',
  )


def lines_of(part: Range) -> Iterator[tuple[int, bytes]]:
  """Yield (first byte, line with its end) of the lines that begin in a range."""
  with base.open_file(part.file.path) as f:
    if part.start:
      f.seek(part.start - 1)
      f.readline()  # the end of the line that begins before the range
    start = f.tell()
    while start < part.limit and (line := f.readline()):
      yield start, line
      start += len(line)


def in_order(scans: Iterable[Scan]) -> Iterator[Scan]:
  """Yield scans by their index; those that come early wait."""
  early, index = {}, 0
  for scan in scans:
    early[scan.index] = scan
    while index in early:
      yield early.pop(index)
      index += 1
