# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables as files."""

import pathlib

import pyarrow as pa
from pyarrow import ipc, parquet


def write(path: pathlib.Path, rows: list[dict], step: int = 2) -> pathlib.Path:
  """Writes Parquet with groups of `step` rows, or a stream of Arrow batches."""
  path.parent.mkdir(parents=True, exist_ok=True)
  table = pa.Table.from_pylist(rows)
  if path.suffix == '.parquet':
    parquet.write_table(table, path, row_group_size=step)
  else:
    with ipc.new_stream(str(path), table.schema) as sink:
      sink.write_table(table, max_chunksize=step)
  return path
