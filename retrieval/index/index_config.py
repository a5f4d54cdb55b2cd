# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings of an index; importing them imports no search."""

from collections.abc import Mapping
import dataclasses
from typing import Annotated, Any, Literal

from retrieval import settings


@dataclasses.dataclass(frozen=True)
class IndexConfig:
  """Settings and recall floor of an index."""

  # 'auto': exact for small databases, else ScaNN, or USearch where ScaNN has no wheel
  searcher: Literal['auto', 'exact', 'scann', 'usearch'] = 'auto'
  # 'auto': as the embedder's folder says, else squared_l2
  metric: Literal['auto', 'dot_product', 'squared_l2'] = 'auto'
  recall_floor: settings.Share = 0.95  # least agreement with exact search
  # k of that agreement; rows with equal scores count alike
  recall_at: Annotated[int, settings.Range(1, 2**16)] = 10
  num_queries: settings.Size = 500  # number of queries in the recall check
  # fields of ScannConfig
  scann: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  # parts with an index each, which bounds the memory of building and searching
  shards: Annotated[int, settings.Range(1, 2**16)] = 1
  # shards held in memory at a time; 0 is all
  shards_in_memory: Annotated[int, settings.Range(0, 2**16)] = 1

  def __post_init__(self):
    settings.check(self)
    if self.scann:
      from retrieval import searchers

      settings.build(searchers.ScannConfig, self.scann, 'scann')

  def with_metric(self, metric: str = 'squared_l2') -> 'IndexConfig':
    """Return the settings with `metric` in place of 'auto'."""
    if self.metric != 'auto':
      return self
    return dataclasses.replace(self, metric=metric)
