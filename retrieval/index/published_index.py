# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The published index: built once, measured, hashed and immutable.

Two builds of ScaNN differ, so an index is saved with the hashes of its files,
and later stages record its fingerprint. A recall check precedes publication.
"""

import dataclasses
import os
import pathlib
import time
from typing import Any

from absl import logging

from retrieval import searchers
from retrieval.index import index_config
from retrieval.searchers import base
from retrieval.store import (
  array_store,
  checksums,
  drafts,
  executors,
  locks,
  manifests,
  output_files,
  sharded_array,
)

MANIFEST = 'index.json'
IndexConfig = index_config.IndexConfig


@dataclasses.dataclass(frozen=True)
class Index:
  """An opened index."""

  path: pathlib.Path  # folder of the index
  searcher: searchers.Searcher
  fingerprint: str  # hash of the index's files
  vectors_fingerprint: str  # fingerprint of the vectors
  report: dict[str, Any]  # results of the recall check


def build_index(
  path: str | os.PathLike,
  vectors,
  vectors_fingerprint: str,
  config: IndexConfig,
  queries: sharded_array.Rows | None = None,
  num_rescored: int = 0,
  executor: executors.Executor | None = None,
) -> Index:
  """Build, measure and publish an index, or open the published one.

  Args:
    vectors: [n, d] array, memory map or sharded array.
    queries: [q, d] held-out queries; None takes database rows, each of which
      must find its neighbors other than itself.
    num_rescored: of the recall check; see `recall_check.measure`.
    executor: where shards of an index in shards are built, and a large one is
      measured; None is this process.

  Raises:
    ValueError: when it agrees too little with exact search, when `path` holds another index, or for bad vectors or settings.
  """
  path, config = pathlib.Path(path), config.with_metric()
  fields = _fields(path, vectors, vectors_fingerprint, config)
  if not path.exists():
    with locks.maker(path):
      drafts.remove_dead(path.parent, recursive=False)
      if not path.exists():
        _build(path, vectors, fields, config, queries, num_rescored, executor)
  have = _read_manifest(path)['fields']
  if have != fields:
    raise ValueError(
      f'{path}: this folder holds another index '
      f'({manifests.difference(fields, have)}); choose another folder or '
      'remove it.'
    )
  index = open_index(path, cluster='', shards_in_memory=config.shards_in_memory)
  exact = index.report['searcher'] == 'exact'
  recall = index.report.get(f'recall@{config.recall_at}', float(exact))
  if recall < config.recall_floor:
    raise ValueError(
      f'{path}: recall@{config.recall_at} of the published index is {recall} or '
      f'not measured, expected index.recall_floor={config.recall_floor} at least; '
      'remove it and build it again.'
    )
  return index


def _build(
  path, vectors, fields, config, queries, num_rescored, executor
) -> None:
  from retrieval.index import sharded_index
  from retrieval.searchers import recall_check

  logging.info(
    'Building: %s over %d vectors.', fields['searcher'], vectors.shape[0]
  )
  start = time.monotonic()
  if config.shards > 1:
    searcher = sharded_index.build(
      path, vectors, fields, config.shards_in_memory, executor
    )
    exact = searchers.exact_of(searcher, vectors)
  else:
    searcher = exact = searchers.ExactSearcher(vectors, config.metric)
    if fields['searcher'] == 'scann':
      settings = searchers.ScannConfig(**config.scann)
      searcher = searchers.ScannSearcher.build(vectors, config.metric, settings)
    elif fields['searcher'] == 'usearch':
      searcher = searchers.UsearchSearcher.build(vectors, config.metric)
  build_sec = time.monotonic() - start
  logging.info('Built in %.0f s; measuring it against exact search.', build_sec)
  report = recall_check.measure(
    searcher,
    exact,
    vectors,
    queries,
    num_queries=config.num_queries,
    k=config.recall_at,
    floor=config.recall_floor,
    num_rescored=num_rescored,
  )
  report['build_sec'] = round(build_sec, 3)
  if config.shards > 1:
    _seal(searcher.path, searcher, vectors, fields, report)
    searcher.path.rename(path)
  else:
    with drafts.folder(path) as draft:
      searcher.save(draft)
      _seal(draft, searcher, vectors, fields, report)
  logging.info('Published %s: %s.', path, report)


def _seal(draft: pathlib.Path, searcher, vectors, fields, report) -> None:
  """Write the manifest of a saved searcher."""
  manifest = draft / MANIFEST
  manifest.unlink(missing_ok=True)  # of a build that was killed here
  files = sorted(x for x in draft.rglob('*') if x.is_file())
  size = sum(x.stat().st_size for x in files) / searcher.num_vectors
  if 'store' in base.read_fields(draft):  # the vectors are in another folder
    size += vectors.dtype.itemsize * searcher.dimension
  report['bytes_per_vector'] = round(size, 1)
  content = {
    'fields': fields,
    'files': {str(x.relative_to(draft)): checksums.of_file(x) for x in files},
    'report': report,
  }
  output_files.write(manifest, manifests.sealed(content))


def open_index(
  path: str | os.PathLike,
  *,
  cluster: str | None = None,
  shards_in_memory: int | None = None,
) -> Index:
  """Open a published index; its files are verified as `checksums` says.

  Args:
    cluster: see `searchers.load`; for an index in shards.
    shards_in_memory: shards held at a time, 0 for all; None is as built.

  Raises:
    ValueError: when it is damaged.
  """
  path = pathlib.Path(path)
  manifest = _read_manifest(path)
  for name, checksum in manifest['files'].items():
    again = f'remove {path} and build it again'
    checksums.check(path / name, checksum, again)
  return Index(
    path,
    searchers.load(path, cluster=cluster, shards_in_memory=shards_in_memory),
    manifests.fingerprint(manifest['files']),
    manifest['fields']['vectors'],
    manifest['report'],
  )


def check_vectors(index: Index, vectors: array_store.Store) -> None:
  """Raise ValueError unless an index is one of some vectors."""
  if index.vectors_fingerprint != vectors.fingerprint:
    raise ValueError(
      f'{index.path}: of vectors {index.vectors_fingerprint}, but '
      f'{vectors.path} is {vectors.fingerprint}; remove the index and build it '
      'again.'
    )


def _fields(path, vectors, vectors_fingerprint, config) -> dict[str, Any]:
  """Return the fields that determine an index; 'auto' is the kind at `path`."""
  base.check_vectors(vectors, values=False)
  kind = _choose(config, int(vectors.shape[0]))
  if config.searcher == 'auto' and path.exists():
    kind = _read_manifest(path)['fields'].get('searcher', kind)
  defaults = dataclasses.asdict(searchers.ScannConfig())
  changed = {k: v for k, v in config.scann.items() if v != defaults[k]}
  return {
    'searcher': kind,
    'metric': config.metric,
    'vectors': vectors_fingerprint,
    'scann': changed if kind == 'scann' else {},
    'shards': config.shards,
  }


def _read_manifest(path: pathlib.Path) -> dict[str, Any]:
  advice = (
    'Build one: retrieval.build_index(folder, vectors, name), or python -m '
    'experiments.prepare --config=configs/retro_pretrain_quickstart.py --workdir=DIR, whose '
    'DIR/data is opened. A run that answers: realm_jax.load(folder).'
  )
  return manifests.read_json(
    path / MANIFEST,
    f'{path}: no index here ({MANIFEST} is missing). '
    f'{locks.unfinished(path) or advice}',
  )


def _choose(config: IndexConfig, num_rows: int) -> str:
  """Return the kind of searcher by the config and the size of the database."""
  if not num_rows:
    raise ValueError('The database is empty: an index needs vectors.')
  if num_rows < config.shards:
    raise ValueError(
      f'index.shards={config.shards}: expected at most {num_rows}, the rows of '
      'the database.'
    )
  if config.searcher == 'exact':
    return 'exact'
  num_rows //= config.shards
  if num_rows < searchers.SCANN_MIN_ROWS:
    logging.info(
      '%d vectors are too few for ScaNN (%d): exact search serves them.',
      num_rows,
      searchers.SCANN_MIN_ROWS,
    )
    return 'exact'
  if config.searcher == 'usearch':
    return 'usearch'
  if searchers.scann_available():
    return 'scann'
  usearch = searchers.usearch_available()
  name = 'USearch' if usearch else 'Exact search'
  logging.warning('%s serves instead of ScaNN.', name)
  return 'usearch' if usearch else 'exact'
