# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Blocks and vectors of other projects as data folder and index version.

Nothing is embedded: row i of the vectors belongs to block i. Both stream from
disk to disk, so that memory does not grow with the number of blocks.
"""

import os
import pathlib
from typing import Any

from absl import logging
import ml_collections
import numpy as np

from experiments.engine import progress
from experiments.realm import prepare as realm_prepare
from realm_jax.data import folder as realm_data
from realm_jax.serving import index_builder, index_folders
from retrieval.formats import block_records, tfrecord
from retrieval.index import index as index_lib, index_versions
from retrieval.text import blocks as blocks_lib

FOLDER = 'official'
_ROWS = 65_536
_PER_SHARD = 65_536  # blocks; 13 million blocks make about 200 files


def place_files(data: pathlib.Path, blocks: str, titles: str = '') -> None:
  """Link or write blocks and titles where the corpus reader finds both.

  Args:
    blocks: blocks.tfr, a folder with it, or block_records.npy.
    titles: titles.tfr; '' takes the file beside the blocks. Without any such
      file titles are empty.

  Raises:
    ValueError: if the data folder has other files already.
  """
  source = pathlib.Path(blocks)
  if source.is_dir():
    names = ('blocks.tfr', 'blocks.tfr.gz', 'block_records.npy')
    there = [source / n for n in names if (source / n).is_file()]
    if not there:
      raise FileNotFoundError(f'{source}: none of {", ".join(names)} there.')
    source = there[0]
  for file in (source, titles and pathlib.Path(titles)):
    if file and not file.is_file():
      raise FileNotFoundError(f'{file}: no such file.')
  folder = data / FOLDER
  folder.mkdir(parents=True, exist_ok=True)
  suffix = '.gz' if source.suffix == '.gz' else ''
  target = folder / f'blocks.tfr{suffix}'
  if source.suffix == '.npy':
    if not target.exists():
      tfrecord.write(target, block_records.read(source))
  else:
    _link(target, source)
  beside = source.with_name(source.name.replace('blocks', 'titles'))
  target = folder / f'titles.tfr{suffix}'
  if titles or (source.suffix != '.npy' and beside.is_file()):
    _link(target, pathlib.Path(titles) if titles else beside)
  elif not target.exists():
    logging.info('No titles: blocks get empty ones.')
    texts = tfrecord.read(folder / f'blocks.tfr{suffix}')
    tfrecord.write(target, (b'' for _ in texts))


def _link(link: pathlib.Path, target: pathlib.Path) -> None:
  target = target.resolve()
  if link.is_symlink() or link.exists():
    if link.resolve() != target:
      raise ValueError(
        f'{link}: links to {link.resolve()}, expected {target}; name another '
        'folder.'
      )
    return
  os.symlink(target, link)


def corpus_fields(data: pathlib.Path) -> dict[str, Any]:
  """Return the fields of the config that read those files back."""
  return {
    'corpus': {'kind': 'orqa_blocks', 'path': str(data / FOLDER)},
    # Each record is one block, so that its number is the number of its vector.
    'blocks': {'whole_documents': True, 'drop_titles': ()},
    'tokens': {'documents_per_shard': _PER_SHARD},
  }


def build_blocks(
  config: ml_collections.ConfigDict, data: realm_data.DataFolder
) -> blocks_lib.BlockStore:
  """Write tokens/ and blocks/ of a data folder, or open finished ones.

  Raises:
    ValueError: if the folder has other stores.
  """
  realm_prepare.write_tokens(config, data, data.root, config.corpus)
  return realm_prepare.write_blocks(config, data, data.root, config.corpus)


def check_sizes(
  vectors: np.ndarray, name: str, num_blocks: int, width: int
) -> None:
  """Refuse vectors that do not fit the blocks or the model.

  Args:
    vectors: [n, d] vectors of blocks.
    width: width of the model's vectors.

  Raises:
    ValueError: if a number differs.
  """
  rows, columns = vectors.shape
  if rows != num_blocks:
    raise ValueError(
      f'{name}: {rows:,} vectors, but there are {num_blocks:,} blocks; expected '
      'one for each.'
    )
  if columns != width:
    raise ValueError(
      f"{name}: vectors of width {columns}, but the model's are of width "
      f'{width}.'
    )


def build_index(
  vectors: np.ndarray,
  name: str,
  blocks: blocks_lib.BlockStore,
  params: Any,
  *,
  step: int,
  root: pathlib.Path,
  config: ml_collections.ConfigDict,
) -> str:
  """Publish vectors as the index version of some parameters.

  Args:
    vectors: [num_blocks, d], memory-mapped; row i belongs to block i.

  Returns:
    The version's name.

  Raises:
    ValueError: if `params` have no embedder, if the vectors do not fit the
      blocks or are not finite, or if a version of these parameters has other
      vectors.
  """
  embedder = index_builder.snapshot(params)
  if not embedder:
    raise ValueError(
      f'{name}: vectors of blocks, but parameters {sorted(params)}; expected an '
      'embedder, for the questions.'
    )
  folder = index_versions.VersionFolder(root)
  wanted = index_versions.version_name(step, embedder, blocks)
  existed = wanted in folder.names()

  def read(ids, update):
    if update:
      update(0, len(ids))
    return np.asarray(vectors[ids[0] : ids[-1] + 1], np.float32)

  settings = index_lib.IndexConfig(
    metric='dot_product', **config.index.to_dict()
  )
  with progress.bar('index', 'blocks') as update:
    folder.build(step, embedder, blocks, read, settings, progress=update)
  if existed:
    _check_same(folder, wanted, vectors, name)
  return wanted


def _check_same(folder, version_name, vectors, name) -> None:
  version = folder.open(version_name)
  try:
    stored = version.vectors
    if stored.shape != vectors.shape:
      raise ValueError(
        f'{version.path}: vectors {list(stored.shape)}, but {name} has '
        f'{list(vectors.shape)}.'
      )
    for low in range(0, len(stored), _ROWS):
      rows = slice(low, low + _ROWS)
      new = np.asarray(vectors[rows], np.float32)
      differs = (np.asarray(stored[rows]) != new).any(axis=1)
      if differs.any():
        row = low + int(differs.argmax())
        raise ValueError(
          f'{version.path}: made of other vectors than {name} (row {row} '
          f'begins {stored[row][0]} there and {vectors[row][0]} here); remove '
          'that version first.'
        )
  finally:
    version.close()


def find_version(
  workdir: str | os.PathLike, params: Any, name: str = ''
) -> index_versions.Version | None:
  """Open the index version that a checkpoint retrieves from.

  Args:
    name: name of the version; '' for the version of `params`. A fine-tuned
      checkpoint names its version, because fine-tuning changes the query
      embedder and the vectors come from the block embedder.

  Returns:
    The version; None if it does not exist.
  """
  folder = index_versions.VersionFolder(
    pathlib.Path(workdir) / index_folders.INDEX
  )
  if name:
    return folder.open(name) if name in folder.names() else None
  embedder = index_builder.snapshot(params)
  fingerprint = index_versions.params_fingerprint(embedder)
  for name in reversed(folder.names()):
    version = folder.open(name)
    if version.params_fingerprint == fingerprint:
      return version
    version.close()
  return None
