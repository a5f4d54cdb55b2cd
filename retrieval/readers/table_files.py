# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Readers of tables: Parquet, and the Arrow files of `datasets.save_to_disk`.

A part of a table is held at a time: a row group's batch, or an Arrow batch.
"""

from collections.abc import Iterator, Sequence
import json
import os
import pathlib
from typing import Any

import pyarrow as pa
from pyarrow import ipc, parquet

from retrieval.readers import base, files

_ROWS = 1024  # read at once
_DICT, _STATE = 'dataset_dict.json', 'state.json'


def find_files(
  path: str | os.PathLike, split: str = 'train'
) -> list[base.SourceFile]:
  """Return the Arrow files of a folder that `datasets` saved, or [].

  `split` is that of a folder with several.
  """
  root = folder = pathlib.Path(path)
  try:
    if (root / _DICT).is_file():
      splits = json.loads((root / _DICT).read_bytes())['splits']
      if split not in splits:
        expected = f'expected one of {splits}' if splits else 'it has no splits'
        raise ValueError(f'{path}: split {split!r}; {expected}.')
      folder = root / split
    elif not (folder / _STATE).is_file():
      return []
    rows = json.loads((folder / _STATE).read_bytes())['_data_files']
    names = [folder / row['filename'] for row in rows]
  except (LookupError, TypeError, OSError, json.JSONDecodeError):
    raise ValueError(
      f'{folder}: damaged, or not written by save_to_disk.'
    ) from None
  for name in names:
    if not name.is_file():
      raise ValueError(f'{name}: missing; {_STATE} names it.')
  return [base.SourceFile(x, x.relative_to(root).as_posix()) for x in names]


def rows(
  path: str | os.PathLike, columns: Sequence[str] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
  """Yield (place, row) of a file; rows count from 1.

  Columns that are not there are left out; None reads all.
  """
  if not pathlib.Path(path).is_file():
    raise FileNotFoundError(f'{path}: expected a file to read.')
  number = 0
  try:
    for batch in _batches(path, columns):
      for row in batch.to_pylist():
        number += 1
        yield f'{path}, record {number}', row
  except (pa.ArrowException, OSError) as error:
    reason = ' '.join(str(error).split())
    raise ValueError(
      f'{path}: cannot be read to its end ({base.brief(reason)}).'
    ) from None


def _batches(
  path: str | os.PathLike, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
  if pathlib.Path(path).suffix.lower() == '.parquet':
    with parquet.ParquetFile(path) as file:
      there = _of(file.schema_arrow, columns)
      yield from file.iter_batches(_ROWS, columns=there)
    return
  with pa.memory_map(os.fspath(path)) as source:
    try:
      batches = ipc.open_stream(source)
      schema = batches.schema
    except pa.ArrowInvalid:  # not a stream but a file with an index (Feather)
      indexed = ipc.open_file(source)
      schema = indexed.schema
      batches = map(indexed.get_batch, range(indexed.num_record_batches))
    there = _of(schema, columns)
    for batch in batches:
      batch = batch.select(there)
      for low in range(0, batch.num_rows, _ROWS):
        yield batch.slice(low, _ROWS)


def _of(schema: pa.Schema, columns: Sequence[str] | None) -> list[str]:
  """Columns to read; all of them if one is missing, for the error message."""
  if columns is None or not {*columns} <= {*schema.names}:
    return schema.names
  return list(columns)


def read(
  file: base.SourceFile, fields: base.Fields, limit: int
) -> base.Records:
  """Read each row as a document."""
  columns = None
  if fields.metadata is not None:
    columns = [fields.id, fields.title, fields.text, *fields.metadata]
    columns = [x for x in dict.fromkeys(columns) if x]
  records = rows(file.path, columns)
  return files.documents(records, fields, file.name, limit=limit)
