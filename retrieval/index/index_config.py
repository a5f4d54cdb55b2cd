# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings of an index, which configs hold without a search being imported."""

from collections.abc import Mapping
import dataclasses
from typing import Annotated, Any, Literal

from retrieval import settings


@dataclasses.dataclass(frozen=True)
class IndexConfig:
  """Settings and recall floor of an index."""

  # 'auto': exact for small databases; 'int8': codes on disk that stream
  searcher: Literal['auto', 'exact', 'scann', 'int8'] = 'auto'
  metric: Literal['dot_product', 'squared_l2'] = 'squared_l2'
  recall_floor: settings.Share = 0.95  # least agreement with exact search
  # k of that agreement; rows with equal scores count alike
  recall_at: Annotated[int, settings.Range(1, 2**16)] = 10
  num_queries: settings.Size = 500  # number of queries in the recall check
  # fields of ScannConfig
  scann: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  # parts with an index each, which bounds the memory of building and searching
  shards: Annotated[int, settings.Range(1, 2**16)] = 1
  # consecutive rows, or rows near one of k-means' centroids
  shard_by: Literal['rows', 'centroid'] = 'rows'
  # nearest shards that are asked for a query, by centroid; 0 is all
  shards_to_search: Annotated[int, settings.Range(0, 2**16)] = 0
  # shards held in memory at a time; 0 is all
  shards_in_memory: Annotated[int, settings.Range(0, 2**16)] = 1

  def __post_init__(self):
    """Check the fields, those of ScaNN too."""
    settings.check(self)
    if self.scann:
      from retrieval import searchers

      settings.check_section(searchers.ScannConfig, self.scann, 'scann')
    if self.shards_to_search > self.shards:
      raise settings.SettingsError(
        'shards_to_search',
        self.shards_to_search,
        f'at most shards={self.shards}',
      )
    if self.shards_to_search and self.shard_by != 'centroid':
      raise settings.SettingsError(
        'shard_by', self.shard_by, "'centroid' where shards_to_search is set"
      )

  @property
  def is_sharded(self) -> bool:
    """Whether the index is saved as shards."""
    return self.shards > 1 or self.searcher == 'int8'
