# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Neighbors in a random part of the datastore, and names of parts of a neighbor."""

import pathlib

from experiments.engine import progress
from retrieval.index import datastore_subsets
from retrieval.store import store
from retro_jax.data import folder as retro_data

NAMES = {'neighbor': 'N', 'continuation': 'F', 'full': '[N, F]'}


def find_neighbors(
  data: retro_data.DataFolder,
  root: str | pathlib.Path,
  split: str,
  share: float,
  k: int,
  seed: int,
) -> pathlib.Path:
  """Find the k neighbors of the chunks of a split in a share of the datastore.

  Returns:
    The neighbor store, a folder below `root`. An existing store is used again.

  Raises:
    ValueError: for another source than dense, whose vectors are searched.
  """
  if data.source_name != 'dense':
    raise ValueError(
      f'A part of the datastore is searched by vectors, but the source of the '
      f'neighbors is {data.source_name}; expected dense.'
    )
  metric = data.datastore.index.searcher.metric
  stores = [
    open_store(x).fingerprint
    for open_store in (data.chunks, data.datastore.vectors)
    for x in (split, 'train')
  ]
  made_of = store.fingerprint([*stores, metric, k, seed])[:12]
  name = f'neighbors-{split}-{share:g}-{made_of}'
  path = pathlib.Path(root) / 'sweep_datastore' / name
  with progress.bar(f'neighbors in {100 * share:g} %', 'chunks') as update:
    datastore_subsets.build_part_neighbors(
      path,
      data.chunks(split),
      data.datastore.vectors(split),
      data.chunks('train'),
      data.datastore.vectors('train'),
      metric=metric,
      share=share,
      k=k,
      seed=seed,
      progress=update,
    )
  return path
