# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The published index: built once, measured, hashed, and the same for ever.

ScaNN does not build the same index twice, so what was built is saved, its files
are hashed, and everything downstream records the hash. Before it is published,
an index is held against exact search.
"""

from collections.abc import Mapping
import dataclasses
import json
import os
import pathlib
import shutil
import time
from typing import Any

from absl import logging
import numpy as np

from retrieval import metrics
from retrieval import searchers
from retrieval import store

_MANIFEST = 'index.json'


@dataclasses.dataclass(frozen=True)
class IndexConfig:
  """How an index is built and what it must reach.

  Attributes:
    searcher: 'exact', 'scann', or 'auto': exact for small databases.
    metric: 'dot_product' or 'squared_l2'.
    recall_floor: least agreement with exact search.
    recall_at: k of that agreement.
    num_queries: queries that measure it.
    scann: fields of ScannConfig.
  """

  searcher: str = 'auto'
  metric: str = 'squared_l2'
  recall_floor: float = 0.95
  recall_at: int = 10
  num_queries: int = 500
  scann: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Index:
  """An opened index.

  Attributes:
    path: its folder.
    searcher: what answers.
    fingerprint: hash of its files.
    vectors_fingerprint: of the vectors it was built from.
    report: what was measured when it was built.
  """

  path: pathlib.Path
  searcher: searchers.Searcher
  fingerprint: str
  vectors_fingerprint: str
  report: dict[str, Any]


def build_index(
  path: str | os.PathLike,
  vectors,
  vectors_fingerprint: str,
  config: IndexConfig,
  queries: np.ndarray | None = None,
) -> Index:
  """Builds, measures and publishes an index, or opens the one that stands.

  Args:
    path: where it will stand.
    vectors: [n, d] array, memory map or sharded array.
    vectors_fingerprint: identifies `vectors`.
    config: see IndexConfig.
    queries: [q, d] held-out queries; None takes rows of the database, slightly
      moved.

  Returns:
    The published index.

  Raises:
    ValueError: when it agrees too little with exact search, when another index
      stands at `path`, or for bad vectors or settings.
  """
  path = pathlib.Path(path)
  kind = _choose(config, int(vectors.shape[0]))
  fields = {
    'searcher': kind,
    'metric': config.metric,
    'vectors': vectors_fingerprint,
    'scann': dict(config.scann) if kind == 'scann' else {},
  }
  if path.exists():
    return _reuse(path, fields)
  exact = searchers.ExactSearcher(vectors, config.metric)
  start = time.monotonic()
  searcher = _build(kind, vectors, config) if kind == 'scann' else exact
  build_sec = time.monotonic() - start
  report = _measure(searcher, exact, config, queries, vectors)
  report['build_sec'] = round(build_sec, 3)
  _check_floor(report, config, kind)
  draft = path.with_name(f'{path.name}.partial-{os.getpid()}')
  shutil.rmtree(draft, ignore_errors=True)
  draft.mkdir(parents=True)
  searcher.save(draft)
  size = sum(f.stat().st_size for f in draft.rglob('*') if f.is_file())
  report['bytes_per_vector'] = round(size / max(searcher.num_vectors, 1), 1)
  manifest = {
    'fields': fields,
    'files': _hash_folder(draft),
    'report': report,
  }
  text = json.dumps(manifest, indent=1, sort_keys=True) + '\n'
  store.write_atomically(draft / _MANIFEST, text.encode())
  os.rename(draft, path)
  logging.info('Published %s: %s.', path, report)
  return open_index(path)


def open_index(path: str | os.PathLike, *, verify: bool = False) -> Index:
  """Opens a published index.

  Args:
    path: its folder.
    verify: read every byte and compare the hashes.

  Returns:
    The index.

  Raises:
    FileNotFoundError: when none stands there.
    ValueError: when it is damaged.
  """
  path = pathlib.Path(path)
  manifest = _read_manifest(path)
  if verify:
    found = _hash_folder(path)
    for name, digest in manifest['files'].items():
      if found.get(name) != digest:
        raise ValueError(
          f'{path / name}: damaged or missing (hash {found.get(name)}, the '
          f'manifest says {digest}).'
        )
  return Index(
    path,
    searchers.load(path),
    store.fingerprint(manifest['files']),
    manifest['fields']['vectors'],
    manifest['report'],
  )


def _read_manifest(path: pathlib.Path) -> dict[str, Any]:
  try:
    return json.loads((path / _MANIFEST).read_text())
  except FileNotFoundError:
    raise FileNotFoundError(
      f'{path}: no index here ({_MANIFEST} is missing); build it first.'
    ) from None


def _reuse(path: pathlib.Path, fields: dict[str, Any]) -> Index:
  have = _read_manifest(path)['fields']
  differs = [
    f'{key}: expected {fields[key]!r}, found {have.get(key)!r}'
    for key in fields
    if have.get(key) != fields[key]
  ]
  if differs:
    raise ValueError(
      f'{path}: the index that stands here is another one '
      f'({"; ".join(differs)}); choose another folder or remove it.'
    )
  return open_index(path)


def _choose(config: IndexConfig, num_rows: int) -> str:
  """The kind of searcher: what was asked for, or what the size allows."""
  kinds = ('auto', 'exact', 'scann')
  if config.searcher not in kinds:
    raise ValueError(
      f'index.searcher={config.searcher!r}: expected one of {kinds}.'
    )
  if not num_rows:
    raise ValueError('The database is empty: an index needs vectors.')
  if config.searcher == 'exact':
    return 'exact'
  if num_rows < searchers.SCANN_MIN_ROWS:
    logging.info(
      '%d vectors are too few for ScaNN (%d): exact search serves them.',
      *(num_rows, searchers.SCANN_MIN_ROWS),
    )
    return 'exact'
  if config.searcher == 'auto' and not searchers.scann_available():
    logging.warning('ScaNN is not installed here: exact search serves.')
    return 'exact'
  return 'scann'


def _build(kind: str, vectors, config: IndexConfig) -> searchers.Searcher:
  del kind
  try:
    settings = searchers.ScannConfig(**config.scann)
  except TypeError as e:
    raise ValueError(f'index.scann: {e}.') from None
  return searchers.ScannSearcher.build(vectors, config.metric, settings)


def _measure(searcher, exact, config, queries, vectors) -> dict[str, Any]:
  """Agreement with exact search, and queries a second of both."""
  if queries is None or not len(queries):
    queries = _moved_rows(vectors, config.num_queries)
  queries = np.asarray(queries[: config.num_queries], np.float32)
  k = min(config.recall_at, searcher.num_vectors)
  report = {'searcher': searcher.name, 'vectors': searcher.num_vectors}
  found, per_sec = _timed(searcher, queries, k)
  if searcher is exact:
    recall = 1.0
  else:
    wanted, exact_per_sec = _timed(exact, queries, k)
    recall = metrics.agreement_with_exact(found, wanted)
    report['exact_queries_per_sec'] = round(exact_per_sec, 1)
  report[f'recall@{config.recall_at}'] = round(recall, 4)
  report['queries_per_sec'] = round(per_sec, 1)
  return report


def _timed(searcher, queries, k) -> tuple[np.ndarray, float]:
  searcher.search(queries, k)  # compiles
  start = time.perf_counter()
  ids, _ = searcher.search(queries, k)
  return ids, len(queries) / max(time.perf_counter() - start, 1e-9)


def _moved_rows(vectors, count: int) -> np.ndarray:
  """Rows of the database, moved by a tenth of their distance to another."""
  rng = np.random.default_rng(0)
  num_rows = int(vectors.shape[0])
  rows, others = rng.integers(0, num_rows, (2, min(count, num_rows)))
  return 0.9 * np.asarray(vectors[rows]) + 0.1 * np.asarray(vectors[others])


def _check_floor(report, config: IndexConfig, kind: str) -> None:
  recall = report[f'recall@{config.recall_at}']
  if recall < config.recall_floor:
    raise ValueError(
      f'recall@{config.recall_at} of the {kind} index is {recall:.4f}, below '
      f'index.recall_floor={config.recall_floor}. Raise '
      'index.scann.num_leaves_to_search or index.scann.num_to_rescore, or set '
      'index.searcher=exact.'
    )


def _hash_folder(path: pathlib.Path) -> dict[str, str]:
  files = sorted(f for f in path.rglob('*') if f.is_file())
  return {
    str(f.relative_to(path)): store.hash_files([f])
    for f in files
    if f.name != _MANIFEST
  }
