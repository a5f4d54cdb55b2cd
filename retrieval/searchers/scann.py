# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ScaNN: partition, anisotropic hashing, rescoring (Guo et al. 2020).

ScaNN aborts, crashes or returns id 0 with score NaN on unexpected input. This
module refuses such input and masks missing rows.

ScaNN holds every vector in memory, three copies of them while it builds. Exact
search, which streams, serves a larger database.
"""

import dataclasses
import errno
import functools
import os
import pathlib
import sys
from typing import Any, Literal

from absl import logging
import numpy as np

from retrieval import settings
from retrieval.searchers import base, subset as subset_lib

MIN_ROWS = 4096  # Below, exact search is as fast and loses nothing.
_MIN_HASHED_ROWS = 16
_ANISOTROPIC_THRESHOLD = 0.2
_DIMENSIONS_PER_BLOCK = 2  # of one hash, as ScaNN advises
_TRAINING_ROWS = 250_000  # that train the partition, if it has fewer leaves


@dataclasses.dataclass(frozen=True)
class ScannConfig:
  """Settings of ScaNN; 0 chooses by the size of the data."""

  # number of partitions; 0 is the square root of the rows
  num_leaves: settings.SizeOrZero = 0
  # partitions searched for a query; 0 is a tenth, at least 40
  num_leaves_to_search: settings.SizeOrZero = 0
  # candidates to score again; 0 is 100. A search for more than half as many
  # rows rescores twice its k.
  num_to_rescore: settings.SizeOrZero = 0
  # type of the vectors for rescoring; none keeps the hashes alone, for callers
  # that rescore themselves
  rescore: Literal['float32', 'bfloat16', 'int8', 'none'] = 'float32'

  __post_init__ = settings.check

  def filled(self, num_rows: int) -> 'ScannConfig':
    """Choose the settings that are 0 and hold all to the size of the data.

    Raises:
      ValueError: for settings that crash ScaNN.
    """
    leaves = self.num_leaves or max(1, round(num_rows**0.5))
    searched = self.num_leaves_to_search or min(leaves, max(40, leaves // 10))
    rescored = self.num_to_rescore or min(num_rows, 100)
    for name, value, most in (
      ('num_leaves', leaves, num_rows),
      ('num_leaves_to_search', searched, leaves),
      ('num_to_rescore', rescored, num_rows),
    ):
      if value > most:
        raise ValueError(
          f'scann.{name}={value}: expected 1..{most} for {num_rows} rows.'
        )
    return dataclasses.replace(
      self,
      num_leaves=leaves,
      num_leaves_to_search=searched,
      num_to_rescore=rescored,
    )


class ScannUnavailableError(ImportError):
  """ScaNN is not installed here."""


def _import():
  # ScaNN imports TensorFlow for its ops alone and fails with some versions of it.
  hidden = 'scann' not in sys.modules and 'tensorflow' not in sys.modules
  if hidden:
    sys.modules['tensorflow'] = None
  try:
    from scann.scann_ops.py import scann_ops_pybind
  except ImportError as e:
    raise ScannUnavailableError(
      f'ScaNN cannot be imported ({e}); it has wheels for Linux with Python below '
      '3.14 alone; searcher exact works everywhere.'
    ) from None
  finally:
    if hidden:
      del sys.modules['tensorflow']
  return scann_ops_pybind


def available() -> bool:
  """Return whether ScaNN can be imported."""
  try:
    _import()
  except ScannUnavailableError as e:
    logging.warning('%s', e)
    return False
  return True


class ScannSearcher:
  """An index of ScaNN in memory, with the settings that built it."""

  name = 'scann'

  def __init__(
    self, searcher: Any, metric: str, shape: tuple[int, int], settings: dict
  ):
    self._searcher = searcher
    self.metric, self.unit = metric, base.UNITS[metric]
    self.num_vectors, self.dimension = shape
    self.settings = settings
    self._num_threads = os.cpu_count() or 1
    searcher.set_num_threads(self._num_threads)

  @classmethod
  def build(
    cls, vectors, metric: str, config: ScannConfig | None = None
  ) -> 'ScannSearcher':
    """Build an index of vectors [n, d]; two builds of a database differ.

    Raises:
      ValueError: for bad vectors or settings, and for a database too small.
      ScannUnavailableError: where ScaNN is not installed.
    """
    base.check_metric(metric)
    num_rows, dimension = base.check_vectors(vectors)
    if num_rows < _MIN_HASHED_ROWS:
      raise ValueError(
        f'ScaNN needs {_MIN_HASHED_ROWS} rows, the database has {num_rows}; '
        'index.searcher=exact serves any.'
      )
    config = (config or ScannConfig()).filled(num_rows)
    builder = _import().builder(
      np.asarray(vectors, np.float32), config.num_to_rescore, metric
    )
    builder = builder.tree(
      num_leaves=config.num_leaves,
      num_leaves_to_search=config.num_leaves_to_search,
      training_sample_size=max(
        config.num_leaves, min(num_rows, _TRAINING_ROWS)
      ),
    ).score_ah(
      _DIMENSIONS_PER_BLOCK,
      anisotropic_quantization_threshold=_ANISOTROPIC_THRESHOLD,
    )
    if config.rescore != 'none':
      from scann.scann_ops.py import scann_builder

      quantize = scann_builder.ReorderType[config.rescore.upper()]
      builder = builder.reorder(config.num_to_rescore, quantize=quantize)
    builder.set_n_training_threads(os.cpu_count() or 1)
    settings = dataclasses.asdict(config)
    return cls(builder.build(), metric, (num_rows, dimension), settings)

  def search(
    self,
    queries: np.ndarray,
    k: int,
    subset: subset_lib.Subset | None = None,
    *,
    num_leaves_to_search: int = 0,
  ) -> base.Hits:
    """Find the k best rows of each query; 0 leaves are as the index was built."""
    queries = base.check_queries(queries, self.dimension, k)
    if subset is not None:
      subset.check(self.num_vectors)
      search = functools.partial(
        self.search, num_leaves_to_search=num_leaves_to_search
      )
      return subset_lib.over_fetch(search, queries, k, subset)
    if not len(queries):
      return base.nothing(0, k)
    fetch = min(k, self.num_vectors)
    leaves = num_leaves_to_search or self.settings['num_leaves_to_search']
    most = self.settings['num_leaves']
    ids, scores = self._search(queries, fetch, min(leaves, most))
    short = np.flatnonzero((ids < 0).any(axis=1))
    if len(short) and leaves < most:
      # The leaves held too few rows: search all leaves.
      ids[short], scores[short] = self._search(queries[short], fetch, most)
    return base.pad(ids, scores, k)

  def _search(self, queries, k, leaves):
    """Call ScaNN, which marks a missing row by id 0 with score NaN."""
    share = -(-len(queries) // self._num_threads)
    rescore = max(self.settings['num_to_rescore'], 2 * k)
    ids, scores = self._searcher.search_batched_parallel(
      queries,
      final_num_neighbors=k,
      batch_size=min(max(share, 1), 256),
      pre_reorder_num_neighbors=min(rescore, self.num_vectors),
      leaves_to_search=leaves,
    )
    scores = np.asarray(scores, np.float32)
    if self.metric == 'squared_l2':
      scores = -scores
    missing = ~np.isfinite(scores)
    ids = np.where(missing, -1, np.asarray(ids, np.int64))
    return ids, np.where(missing, np.float32(-np.inf), scores)

  def save(self, path: str | os.PathLike) -> None:
    """Write ScaNN's files with relative paths, so that the folder can move."""
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    try:
      self._searcher.serialize(str(path), relative_path=True)
    except RuntimeError as e:
      raise OSError(errno.EIO, f'ScaNN: {e}', str(path)) from None
    files = [f for f in path.iterdir() if f.name != base.FIELDS]
    base.write_fields(
      path,
      name=self.name,
      metric=self.metric,
      shape=[self.num_vectors, self.dimension],
      settings=self.settings,
      files={f.name: f.stat().st_size for f in sorted(files)},
    )

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'ScannSearcher':
    """Load a saved searcher.

    Raises:
      ValueError: when files are missing or damaged.
    """
    path = pathlib.Path(path)
    fields = base.read_fields(path)
    base.check_files(path, fields.get('files', {}))
    try:
      searcher = _import().load_searcher(str(path))
    except (RuntimeError, ValueError, OSError, IndexError, MemoryError) as e:
      first = str(e).splitlines()[0] if str(e) else type(e).__name__
      raise ValueError(
        f'{path}: ScaNN cannot load this index ({first}); remove the folder '
        'and build it again.'
      ) from None
    shape = tuple(fields['shape'])
    return cls(searcher, fields['metric'], shape, fields['settings'])
