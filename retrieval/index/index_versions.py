# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Indices of a retriever that learns: one immutable folder for each version.

Guu et al. 2020, section 3.3. A version is what one snapshot of the embedder makes
of all blocks: <root>/<step>-<hash>/ holds version.json (step, fingerprints of
parameters and blocks), embedder.safetensors (the snapshot: queries are embedded
with the very parameters that embedded the blocks), vectors/ and index/. It is built
under a hidden name, shard by shard, and published by one rename; a killed builder
goes on at its first missing shard. `version_copies` takes over what stands elsewhere.

Readers hold a lease (a shared lock on a file, which a killed reader gives back), and
versions nobody holds are removed.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import hashlib
import os
import pathlib
import shutil
from typing import Any

from absl import logging
from flax import traverse_util
import jax
import numpy as np
from safetensors import numpy as safetensors_numpy

from retrieval.index import index as index_lib
from retrieval.index import version_manifest
from retrieval.store import store
from retrieval.text import blocks as blocks_lib

try:
  import fcntl
except ImportError:  # Windows: nothing is removed there.
  fcntl = None

VECTORS_KIND = 'block_vectors'
_PARAMS = 'embedder.safetensors'

# (ids of blocks [n], progress) -> vectors [n, d] float32
EmbedBlocks = Callable[
  [np.ndarray, Callable[[int, int], None] | None], np.ndarray
]


def params_fingerprint(params: Any) -> str:
  """Hashes names, shapes and values of a tree of arrays."""
  digest = hashlib.sha256()
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    array = np.ascontiguousarray(leaf)
    name = f'{jax.tree_util.keystr(path)}{array.shape}{array.dtype}'
    digest.update(name.encode())
    digest.update(array)
  return digest.hexdigest()[:32]


def version_name(step: int, params: Any, blocks: blocks_lib.BlockStore) -> str:
  """The folder's name: versions sort by step, and differ in what made them."""
  made_from = [params_fingerprint(params), blocks.fingerprint]
  return f'{step:010d}-{store.fingerprint(made_from)[:12]}'


def step_of(name: str) -> int:
  """The step in a version's name."""
  return int(name.partition('-')[0])


@dataclasses.dataclass(frozen=True)
class Version:
  """One opened version; held until `close`.

  Attributes:
    path: its folder.
    step: of the parameters.
    params_fingerprint: of the parameters.
    blocks_fingerprint: of the blocks.
    index: searches the blocks' vectors; row i is block i.
    lease: file descriptor of its lock, or -1.
  """

  path: pathlib.Path
  step: int
  params_fingerprint: str
  blocks_fingerprint: str
  index: index_lib.Index
  lease: int

  @property
  def name(self) -> str:
    """The folder's name."""
    return self.path.name

  @functools.cached_property
  def params(self) -> dict:
    """The snapshot of the embedder: a tree of numpy arrays."""
    return read_params(self.path / _PARAMS)

  @property
  def vectors(self):
    """Vectors of all blocks: [num_blocks, d], memory-mapped."""
    return store.Store.open(self.path / 'vectors', VECTORS_KIND).array(
      'vectors'
    )

  def close(self) -> None:
    """Gives the lease back; the version may be removed from now on."""
    if self.lease >= 0:
      os.close(self.lease)
      object.__setattr__(self, 'lease', -1)


def write_params(path: pathlib.Path, params: Any) -> None:
  """Writes a tree of arrays as one safetensors file, whole or not at all."""
  flat = traverse_util.flatten_dict(params, sep='/')
  arrays = {k: np.ascontiguousarray(v) for k, v in flat.items()}
  store.write_atomically(path, safetensors_numpy.save(arrays))


def read_params(path: pathlib.Path) -> dict:
  """Reads what `write_params` wrote."""
  flat = safetensors_numpy.load_file(path)
  return traverse_util.unflatten_dict(flat, sep='/')


def read_snapshot(version: pathlib.Path) -> dict:
  """The parameters that a published version was built from.

  Args:
    version: its folder.

  Returns:
    The embedder's, a tree of numpy arrays.

  Raises:
    FileNotFoundError: if there is no such version.
  """
  if not (version / _PARAMS).is_file():
    raise FileNotFoundError(f'{version}: no such index version.')
  return read_params(version / _PARAMS)


class VersionFolder:
  """The versions of one index.

  Attributes:
    root: the folder.
  """

  def __init__(self, root: str | os.PathLike):
    self.root = pathlib.Path(root)

  def names(self) -> list[str]:
    """Published versions, oldest first."""
    if not self.root.is_dir():
      return []
    return sorted(
      p.name for p in self.root.iterdir() if _is_version(p.name) and p.is_dir()
    )

  def latest(self, at_most: int | None = None) -> str:
    """The version of the newest parameters, '' if there is none.

    Args:
      at_most: steps after this one do not count: a run that was killed and
        continued has yet to come to them.
    """
    names = self.names()
    if at_most is not None:
      names = [name for name in names if step_of(name) <= at_most]
    return names[-1] if names else ''

  def build(
    self,
    step: int,
    params: Any,
    blocks: blocks_lib.BlockStore,
    embed: EmbedBlocks,
    config: index_lib.IndexConfig,
    *,
    process_index: int = 0,
    process_count: int = 1,
    progress: Callable[[int, int], None] | None = None,
  ) -> str | None:
    """Builds and publishes a version, or finds that it stands already.

    Each process embeds every `process_count`-th shard of the blocks; process 0
    publishes once all are there.

    Args:
      step: of the parameters.
      params: the embedder's, a tree of host arrays.
      blocks: what is retrieved.
      embed: with these parameters.
      config: of the index; its metric is the inner product.
      process_index: number of this process.
      process_count: how many share the work.
      progress: called with (blocks done, blocks in all).

    Returns:
      The version's name, or None while other processes still have work.

    Raises:
      ValueError: for vectors that are not finite, or an index below its floor.
    """
    fingerprint = params_fingerprint(params)
    name = version_name(step, params, blocks)
    if (self.root / name).is_dir():
      return name
    self.root.mkdir(parents=True, exist_ok=True)
    draft = self.root / f'.building-{name}'
    fields = {'blocks': blocks.fingerprint, 'params': fingerprint}
    share = (process_index, process_count)
    if not _embed_shards(draft, fields, blocks, embed, share, progress):
      return None
    if process_index:
      return None
    vectors = store.Store.open(draft / 'vectors', VECTORS_KIND, fields)
    index_lib.build_index(
      draft / 'index', vectors.array('vectors'), vectors.fingerprint, config
    )
    seal(draft, step, params, blocks)
    store.publish_folder(draft, self.root / name)
    return name

  def open(
    self, name: str, blocks: blocks_lib.BlockStore | None = None
  ) -> Version:
    """Opens a version and takes a lease on it.

    Args:
      name: from `names`.
      blocks: what it must have been built from.

    Returns:
      The version.

    Raises:
      FileNotFoundError: when there is no such version.
      ValueError: when it is damaged, or of other blocks.
    """
    path = self.root / name
    try:
      lease = self._lock(name, shared=True)
    except BlockingIOError:
      raise FileNotFoundError(f'{path}: is being removed.') from None
    try:
      manifest = version_manifest.read(path)
      if blocks is not None and manifest['blocks'] != blocks.fingerprint:
        raise ValueError(
          f'{path}: built from blocks {manifest["blocks"]}, but '
          f'{blocks.path} is {blocks.fingerprint}; refresh the index.'
        )
      index = index_lib.open_index(path / 'index', verify=False)
    except BaseException:
      if lease >= 0:
        os.close(lease)
      raise
    return Version(
      path,
      manifest['step'],
      manifest['params'],
      manifest['blocks'],
      index,
      lease,
    )

  @contextlib.contextmanager
  def held(self, name: str) -> Iterator[pathlib.Path | None]:
    """Keeps a version from being removed; None where one is already."""
    try:
      lease = self._lock(name, shared=True)
    except BlockingIOError:
      yield None
      return
    try:
      yield self.root / name
    finally:
      if lease >= 0:
        os.close(lease)

  def remove_old(self, keep: Collection[str] = (), newest: int = 1) -> None:
    """Removes versions that nobody holds, and drafts left behind.

    Args:
      keep: names that stay in any case.
      newest: how many of the newest stay.
    """
    if fcntl is None or not self.root.is_dir():
      return
    names = self.names()
    for name in names[: max(0, len(names) - newest)]:
      if name not in keep:
        self._remove(name)
    latest = names[-1] if names else ''
    for draft in self.root.glob('.building-*'):
      if draft.name.removeprefix('.building-') <= latest:
        shutil.rmtree(draft, ignore_errors=True)
    for rest in self.root.glob('.removed-*'):
      shutil.rmtree(rest, ignore_errors=True)

  def _remove(self, name: str) -> None:
    try:
      lock = self._lock(name, shared=False)
    except BlockingIOError:
      return  # somebody reads it
    try:
      hidden = self.root / f'.removed-{name}'
      os.rename(self.root / name, hidden)
      shutil.rmtree(hidden, ignore_errors=True)
      self._lease_file(name).unlink(missing_ok=True)
      logging.info('Removed index version %s.', name)
    finally:
      if lock >= 0:
        os.close(lock)

  def _lease_file(self, name: str) -> pathlib.Path:
    return self.root / f'.lease-{name}'

  def _lock(self, name: str, *, shared: bool) -> int:
    """Locks a version.

    Returns:
      The file descriptor, or -1 where there are no locks to be had.

    Raises:
      BlockingIOError: when it is locked otherwise.
    """
    if fcntl is None or not os.access(self.root, os.W_OK):
      return -1
    flags = os.O_RDWR | os.O_CREAT
    descriptor = os.open(self._lease_file(name), flags, 0o666)
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
      fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BaseException:
      os.close(descriptor)
      raise
    return descriptor


def _is_version(name: str) -> bool:
  step, _, digest = name.partition('-')
  return len(step) == 10 and step.isdigit() and len(digest) == 12


def _embed_shards(draft, fields, blocks, embed, share, progress) -> bool:
  """Embeds this process's shards; returns whether all are written."""
  writer = store.StoreWriter(draft / 'vectors', VECTORS_KIND, fields)
  if writer.published:
    return True
  index, count = share
  rows = blocks.store.rows('document')
  ends = np.cumsum(rows)
  mine = [i for i in writer.missing(len(rows)) if i % count == index]
  total, done = sum(rows[i] for i in mine), 0
  for i in mine:
    shard_progress = progress and functools.partial(
      _shift, progress, done, total
    )
    vectors = embed(np.arange(ends[i] - rows[i], ends[i]), shard_progress)
    writer.write(i, {'vectors': vectors.astype(np.float32)})
    done += rows[i]
  if writer.missing(len(rows)):
    return False
  writer.publish(len(rows))
  return True


def _shift(progress, base: int, total: int, done: int, _: int) -> None:
  progress(base + done, total)


def seal(
  draft: pathlib.Path, step: int, params: Any, blocks: blocks_lib.BlockStore
) -> None:
  """Writes what vectors and index were made from beside them."""
  write_params(draft / _PARAMS, params)
  version_manifest.write(
    draft,
    step=step,
    params=params_fingerprint(params),
    blocks=blocks.fingerprint,
  )
