# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Indexes of a trained retriever: one immutable folder for each version.

Guu et al. 2020, section 3.3. The folder <root>/<step>-<hash>/, whose hash is that of
parameters and blocks, holds embedder.safetensors (the snapshot of the embedder, which
embeds queries, too), vectors/ and index/. A builder writes shard by shard into
.building-<version>-<hash of settings>/, under the lock of all builders of the root, and
renames the whole folder. The next builder continues the draft of a killed one. A reader
holds a shared lock on the version's file `lease`: versions that are read are not removed.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import shutil
from typing import Any

from absl import logging
import numpy as np

from retrieval.index import published_index as index_lib, snapshots
from retrieval.searchers import joined as joined_lib
from retrieval.store import (
  array_store,
  checksums,
  drafts,
  executors,
  locks,
  manifests,
  sharded_array,
  shards,
)
from retrieval.text import blocks as blocks_lib

VECTORS_KIND = 'block_vectors'
_PARAMS = 'embedder.safetensors'
_LEASE = 'lease'
_BUILDING = '.building-'  # prefix of drafts
_NAME = re.compile(r'\d{10}-.{12}\Z')  # of a version's folder

# (ids of blocks [n], progress) -> vectors [n, d] float32
EmbedBlocks = Callable[[np.ndarray, shards.Progress | None], np.ndarray]


def version_name(step: int, params: Any, blocks: blocks_lib.BlockStore) -> str:
  """Return the name of a version's folder: its step and a hash of its sources."""
  return _name(step, snapshots.fingerprint(params), blocks.fingerprint)


def _name(step: int, *made_of: str) -> str:
  return f'{step:010d}-{manifests.fingerprint(list(made_of))[:12]}'


def step_of(name: str) -> int:
  """Return the step in a version's name."""
  return int(name.partition('-')[0])


@dataclasses.dataclass(frozen=True)
class Version:
  """An opened version, which stays until `close`."""

  path: pathlib.Path  # folder of the version
  index: index_lib.Index  # index of the blocks' vectors; row i is block i
  stored: array_store.Store  # the vectors, made of 'blocks' and 'params'
  lease: contextlib.ExitStack  # releases the lock of the version

  @property
  def name(self) -> str:
    """Name of the version's folder."""
    return self.path.name

  @property
  def step(self) -> int:
    """Step of the parameters."""
    return step_of(self.name)

  @functools.cached_property
  def params(self) -> dict:
    """The snapshot of the embedder: a tree of numpy arrays."""
    return read_snapshot(self.path)

  @property
  def vectors(self) -> sharded_array.ShardedArray:
    """Memory-mapped vectors of all blocks: [num_blocks, d]."""
    return self.stored.array('vectors')

  def close(self) -> None:
    """Release the lease, so that the version can be removed."""
    self.lease.close()


def joined(versions: Sequence[Version]) -> Version:
  """Return the versions of one embedder over several folders' blocks as one."""
  first, lease = versions[0], contextlib.ExitStack()
  for one in versions:
    lease.enter_context(one.lease)
  parts = [x.index.searcher for x in versions]
  searcher = joined_lib.JoinedSearcher(parts, [x.num_vectors for x in parts])
  index = dataclasses.replace(first.index, searcher=searcher)
  stored = array_store.JoinedStore([x.stored for x in versions])
  return Version(first.path, index, stored, lease)


def read_snapshot(
  version: pathlib.Path, blocks: blocks_lib.BlockStore | None = None
) -> dict:
  """Read the embedder's parameters from a version's folder; refuse damage.

  Args:
    blocks: blocks of the version, where its vectors may be damaged.

  Raises:
    FileNotFoundError: when there is no such version.
    ValueError: when it is damaged.
  """
  file = version / _PARAMS
  if not file.is_file():
    raise FileNotFoundError(
      f'{version}: no index version here ({_PARAMS} is missing).'
    )
  params = snapshots.read(file)
  if blocks is None and checksums.mode() == 'off':
    return params
  made_of = blocks.fingerprint if blocks else _vectors(version).fields['blocks']
  prints = snapshots.fingerprint(params), made_of
  if _name(step_of(version.name), *prints) != version.name:
    raise ValueError(
      f'{file}: damaged, or of another version; remove {version} and refresh the '
      'index.'
    )
  return params


def _vectors(version: pathlib.Path) -> array_store.Store:
  return array_store.Store.open(version / 'vectors', VECTORS_KIND)


class VersionFolder:
  """The folder `root` with the versions of one index."""

  def __init__(self, root: str | os.PathLike):
    self.root = pathlib.Path(root)

  def names(self) -> list[str]:
    """Return the names of the published versions, oldest first."""
    folders = self.root.glob('*/')
    return sorted(x.name for x in folders if _NAME.match(x.name))

  def latest(self, at_most: int | float = np.inf) -> str:
    """Return the version of the newest parameters, of a step at most, or ''."""
    names = (name for name in self.names() if step_of(name) <= at_most)
    return max(names, default='')

  def build(
    self,
    step: int,
    params: Any,
    blocks: blocks_lib.BlockStore,
    embed: EmbedBlocks,
    config: index_lib.IndexConfig,
    *,
    settings: Mapping[str, Any] | None = None,
    dtype: str = 'float32',
    executor: executors.Executor | None = None,
    progress: shards.Progress | None = None,
  ) -> str | None:
    """Build and publish a version, unless it is published already.

    Args:
      params: the embedder's parameters, a tree of host arrays.
      settings: JSON values on which the vectors depend, too; stored beside them.
      dtype: of the vectors on disk.
      executor: where blocks are embedded and shards of the index built; None is
        this process. Of processes with an `executors.Share` each, the first one
        builds the index and publishes the version.

    Returns:
      The version's name, or None while other processes still have work.

    Raises:
      ValueError: for vectors that are not finite, or an index below its floor.
    """
    made_of = {
      'blocks': blocks.fingerprint,
      'params': snapshots.fingerprint(params),
    }
    name = _name(step, made_of['params'], made_of['blocks'])
    settings = dict(settings or {})
    if self.is_whole(name, settings):
      return name
    together = isinstance(executor, executors.Share)
    follows = together and not executor.leads
    with self._building(shared=together):
      if (self.root / name).is_dir():
        if follows:
          return None
        if self.is_whole(name, settings):  # another builder was first
          return name
        self._discard(name)
      # The draft of a killed builder of other settings has other vectors.
      made_by = manifests.fingerprint([settings, dtype])[:8]
      draft = self.root / f'{_BUILDING}{name}-{made_by}'
      draft.mkdir(exist_ok=True)
      rows = blocks.store.rows('document')
      vectors = shards.build_store(
        draft / 'vectors',
        VECTORS_KIND,
        made_of | {'settings': settings},
        rows,
        functools.partial(_embed_shard, embed, dtype, np.cumsum([0, *rows])),
        executor=executor,
        progress=progress,
      )
      if vectors is None or follows:
        return None
      index_lib.build_index(
        draft / 'index',
        vectors.array('vectors'),
        vectors.fingerprint,
        config,
        executor=executor,
      )
      snapshots.write(draft / _PARAMS, params)
      draft.rename(self.root / name)
    return name

  @contextlib.contextmanager
  def known_vectors(
    self,
    params: Any,
    blocks: blocks_lib.BlockStore,
    settings: Mapping[str, Any] | None = None,
    dtype: str = 'float32',
    part: Callable[[Any], Any] = lambda params: params,
  ) -> Iterator[sharded_array.ShardedArray | None]:
    """Yield the vectors of blocks under some parameters; None without a whole version.

    The version is not removed meanwhile.

    Args:
      settings: as of `build`.
      dtype: of the vectors on disk; those with fewer bits do not count.
      part: parameters -> parameters that embed blocks.
    """
    print_of_part = snapshots.fingerprint(part(params))
    made_of = {'blocks': blocks.fingerprint, 'settings': dict(settings or {})}
    for name in reversed(self.names()):
      with contextlib.ExitStack() as stack:
        try:
          fields = _vectors(self.root / name).fields
          have = {field: fields.get(field) for field in made_of}
          if have != made_of:
            raise ValueError(manifests.difference(made_of, have))
          version = self.open(name, cluster='')
          stack.callback(version.close)
          if snapshots.fingerprint(part(version.params)) != print_of_part:
            continue
          if version.vectors.dtype.itemsize < np.dtype(dtype).itemsize:
            raise ValueError(f'its vectors are {version.vectors.dtype}')
          version.stored.verify()
        except (OSError, ValueError) as error:
          logging.warning('%s is not taken over: %s', self.root / name, error)
          continue
        logging.info('The vectors are those of %s.', version.path)
        yield version.vectors
        return
    yield None

  def _building(self, **how: bool) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of builders, as `locks.hold` does."""
    self.root.mkdir(parents=True, exist_ok=True)
    return locks.hold(self.root / '.building.lock', **how)

  def is_whole(
    self, name: str, settings: Mapping[str, Any] | None = None
  ) -> bool:
    """Return whether a version is there with all its files undamaged.

    Args:
      settings: as of `build`; None accepts vectors of any.
    """
    if not (self.root / name).is_dir():
      return False
    try:
      # Here: a cluster that is not there is no damage.
      with contextlib.closing(self.open(name, cluster='')) as version:
        made_by = version.stored.fields.get('settings', settings)
        if settings is not None and made_by != settings:
          what = manifests.difference(settings, made_by)
          raise ValueError(f'made by other settings ({what})')
        _ = version.params
        version.stored.verify()
    except (OSError, ValueError) as error:
      logging.warning('Index version %s is not used: %s', name, error)
      return False
    return True

  def open(
    self,
    name: str,
    blocks: blocks_lib.BlockStore | None = None,
    *,
    cluster: str | None = None,
  ) -> Version:
    """Open a version and take a lease on it.

    Args:
      blocks: blocks that the version must index; None for any.
      cluster: see `searchers.load`.

    Raises:
      ValueError: when it is damaged, or indexes other blocks.
    """
    with contextlib.ExitStack() as stack:
      path = stack.enter_context(self.held(name))
      index = index_lib.open_index(path / 'index', cluster=cluster)
      stored = _vectors(path)
      made_of = stored.fields['blocks']
      expected = blocks.fingerprint if blocks else made_of
      right = _name(step_of(name), stored.fields['params'], made_of)
      for what, have, want in (
        ('vectors', right, name),
        ('blocks', made_of, expected),
      ):
        if have != want:
          raise ValueError(
            f'{path}: {what} of another version ({have}, expected {want}); '
            f'remove {path} and refresh the index.'
          )
      index_lib.check_vectors(index, stored)
      return Version(path, index, stored, stack.pop_all())

  @contextlib.contextmanager
  def held(self, name: str) -> Iterator[pathlib.Path]:
    """Keep a version from being removed; BlockingIOError if it just is."""
    with locks.hold(self.root / name / _LEASE, shared=True, wait=False):
      yield self.root / name

  def remove_old(self, keep: Collection[str] = (), newest: int = 1) -> None:
    """Remove versions without a lease but the newest, and drafts of dead builders."""
    if not locks.HAS_LOCKS or not self.root.is_dir():
      return
    names = self.names()
    for name in names[: max(0, len(names) - newest)]:
      if name not in keep:
        self._remove(name)
    with contextlib.suppress(BlockingIOError), self._building(wait=False):
      for draft in self.root.glob(f'{_BUILDING}*/') if names else ():
        version = draft.name.removeprefix(_BUILDING)[: len(names[-1])]
        if version <= names[-1]:
          shutil.rmtree(draft, ignore_errors=True)

  def remove_later(self, step: int) -> None:
    """Remove versions of steps after `step`, unless they have a lease."""
    for name in self.names():
      if step_of(name) > step:
        self._remove(name)

  def _remove(self, name: str) -> None:
    """Remove a version, unless a reader holds its lease."""
    lease = self.root / name / _LEASE
    with contextlib.suppress(BlockingIOError), locks.hold(lease, wait=False):
      self._discard(name)
      logging.info('Removed index version %s.', name)

  def _discard(self, name: str) -> None:
    hidden = drafts.beside(self.root / name)
    with contextlib.suppress(FileNotFoundError):  # another process was first
      os.rename(self.root / name, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def _embed_shard(embed, dtype: str, bounds: np.ndarray, i: int, progress):
  vectors = embed(np.arange(bounds[i], bounds[i + 1]), progress)
  return {'vectors': vectors.astype(dtype)}
