# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Readers of the corpora that ORQA and REALM were published with.

ORQA's evidence (Lee et al. 2019): blocks.tfr and titles.tfr, raw UTF-8; the
i-th title belongs to the i-th block. REALM's two corpora (Guu et al. 2020),
shards of tf.train.Example: blocks to retrieve (title, body), and blocks to
train on (title, text) with the bytes of their sentences and salient spans.
"""

from collections.abc import Iterator, Sequence
import itertools
import pathlib
from typing import Any, NamedTuple

from google.protobuf import message
import numpy as np

from retrieval.formats import tfrecord
from retrieval.readers import base, files as readers

BLOCKS_FILE = 'blocks.tfr'
_SUFFIXES = ('', '.gz')
_SENTENCE = ('sentence_byte_start', 'sentence_byte_limit')
_SPAN = ('span_byte_start', 'span_byte_limit')


class Annotations(NamedTuple):
  """Annotations of one document of a pre-training corpus."""

  document_id: str  # as in the corpus of these files
  # [n, 2] int64 first and past-last byte in the text's UTF-8 form
  sentences: np.ndarray
  # [m, 2] int64 first and past-last byte of the salient spans
  spans: np.ndarray


def find_block_files(path: pathlib.Path) -> list[base.SourceFile]:
  """Find the file of blocks and the file of their titles.

  `path` is a folder with both, or the file of blocks: in its name 'titles' replaces
  'blocks' for the other file.
  """
  paths = [path]
  if path.is_dir():
    paths = [path / f'{BLOCKS_FILE}{suffix}' for suffix in _SUFFIXES]
  blocks = _first_file(paths)
  stem = blocks.name.removesuffix('.gz')
  if 'blocks' not in stem:
    raise FileNotFoundError(f'{blocks}: no name of titles beside it.')
  stem = stem.replace('blocks', 'titles')
  titles = _first_file([blocks.with_name(stem + x) for x in _SUFFIXES])
  return [base.SourceFile(file, file.name) for file in (blocks, titles)]


def _first_file(paths: Sequence[pathlib.Path]) -> pathlib.Path:
  for path in paths:
    if path.is_file():
      return path
  raise FileNotFoundError(
    f'corpus.path: expected {" or ".join(map(str, paths))}.'
  )


def read_blocks(files: Sequence[base.SourceFile]) -> base.Records:
  """Read a file of blocks with its file of titles; ids count from 0.

  ValueError where the two files hold different numbers of records.
  """
  texts, titles = (tfrecord.read(file.path) for file in files)
  pairs = itertools.zip_longest(texts, titles)
  for i, (text, title) in enumerate(pairs):
    if text is None or title is None:
      longer = files[0 if title is None else 1].path
      raise ValueError(
        f'{longer}: more than the {i} records of the other file; expected a '
        'title for each block.'
      )
    where = f'{files[0].path}: record {i}'
    try:
      title = base.decode(title, f'{files[1].path}: record {i}')
      yield where, base.Document(str(i), title, base.decode(text, where))
    except base.BadRecord as error:
      yield where, error


def read_examples(file: base.SourceFile, text_name: str) -> base.Records:
  """Read one of REALM's corpora by the name of the text, without annotations."""
  rows, fields = _examples(file, text_name), base.Fields('', text=text_name)
  return readers.documents(rows, fields, file.name, start=0)


def read_annotations(
  files: Sequence[base.SourceFile], on_error: str = 'raise'
) -> Iterator[Annotations]:
  """Read the annotations of shards of REALM's corpus of blocks to train on.

  `on_error` is 'raise', which names file and number of a bad record, or 'skip'.
  """
  for file in files:
    rows = enumerate(_examples(file, 'text', *_SENTENCE, *_SPAN))
    for i, (where, row) in rows:
      try:
        if isinstance(row, base.BadRecord):
          raise row
        document = base.Fields('').document(row, where, f'{file.name}:{i}')
        text = document.text.encode()
        spans = [_byte_spans(row, x, text, where) for x in (_SENTENCE, _SPAN)]
      except base.BadRecord as error:
        if on_error == 'raise':
          raise ValueError(str(error)) from None
        continue
      yield Annotations(document.id, *spans)


def _examples(
  file: base.SourceFile, *names: str
) -> Iterator[tuple[str, dict | base.BadRecord]]:
  """Yield place, and features or fault, of each record."""
  for i, data in enumerate(tfrecord.read(file.path)):
    where = f'{file.path}: record {i}'
    try:
      yield where, _decode(data, ('title', *names), where)
    except base.BadRecord as error:
      yield where, error


def _decode(data: bytes, names: Sequence[str], where: str) -> dict:
  """The named features of a tf.train.Example; all if it has no text."""
  # Imported on first use: TFDS takes half a second.
  from tensorflow_datasets.proto import tf_example_pb2

  try:
    features = tf_example_pb2.Example.FromString(data).features.feature
  except message.DecodeError as e:
    text = f'not a tf.train.Example: {e}'
    raise base.BadRecord('invalid tf.train.Example', where, text) from None
  chosen = {*names} & {*features} if names[1] in features else features
  return {name: _value(features[name]) for name in chosen}


def _value(feature: Any) -> Any:
  """Integers [n] int64, or a list; a list of one string becomes that string."""
  kind = feature.WhichOneof('kind')
  values = list(getattr(feature, kind).value) if kind else []
  if kind == 'int64_list':
    return np.asarray(values, np.int64)
  return values[0] if kind == 'bytes_list' and len(values) == 1 else values


def _byte_spans(
  features: dict, names: tuple[str, str], text: bytes, where: str
) -> np.ndarray:
  """Make spans of two features: [n, 2] int64, empty for missing features."""
  start, limit = pair = [features.get(name, []) for name in names]
  if any(len(x) and getattr(x, 'dtype', None) != np.int64 for x in pair):
    fault = 'expected integers.'
  elif len(start) != len(limit):
    fault = f'{len(start)} starts, {len(limit)} limits.'
  else:
    spans = np.stack([start, limit], axis=1).astype(np.int64)
    fault = span_fault(spans, text)
  if fault:
    raise base.BadRecord(
      f'invalid {names[0]}', where, f'{names[0]}, {names[1]}: {fault}'
    )
  return spans


def span_fault(spans: np.ndarray, text: bytes) -> str | None:
  """Describe the first span that is not in a text.

  Spans are [n, 2] first and past-last bytes of the text in UTF-8.
  """
  low, high = spans[:, 0], spans[:, 1]
  bad = (low < 0) | (low >= high) | (high > len(text))
  if not bad.any():
    # Bytes 0x80 to 0xbf continue a character.
    inside = np.frombuffer(text + b' ', np.uint8) & 0xC0 == 0x80
    bad = inside[spans].any(axis=1)
  if not bad.any():
    return None
  return (
    f'{spans[bad][0].tolist()} is not a span of whole characters in '
    f'{len(text)} bytes.'
  )
