# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Indexes of a trained retriever: one immutable folder for each version.

Guu et al. 2020, section 3.3. A version indexes all blocks with one snapshot of the
embedder. Its folder <root>/<step>-<hash>/ holds version.json (step, fingerprints of
parameters and blocks), embedder.safetensors (the snapshot, which embeds queries,
too), vectors/ and index/. A builder writes shard by shard into a draft under a
hidden name and publishes it by one rename. It holds the draft's lock while it
lives; the next builder of the version takes over the draft of a killed one.

A reader holds a lease: a shared lock on a file, which the system releases when
the reader dies. A version without a lease can be removed.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
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

from retrieval.index import index as index_lib, snapshots, version_drafts
from retrieval.store import (
  checksums,
  drafts,
  executors,
  locks,
  manifests,
  shards,
  store,
  verification,
)
from retrieval.text import blocks as blocks_lib

VECTORS_KIND = 'block_vectors'
SCHEMA = 1
_PARAMS = 'embedder.safetensors'
_MANIFEST = 'version.json'
_NAME = re.compile(r'\d{10}-.{12}\Z')  # of a version's folder

# (ids of blocks [n], progress) -> vectors [n, d] float32
EmbedBlocks = Callable[[np.ndarray, shards.Progress | None], np.ndarray]


def version_name(step: int, params: Any, blocks: blocks_lib.BlockStore) -> str:
  """Return the name of a version's folder: its step and a hash of its sources."""
  return _name(step, snapshots.fingerprint(params), blocks.fingerprint)


def _name(step: int, params: str, blocks: str) -> str:
  return f'{step:010d}-{store.fingerprint([params, blocks])[:12]}'


def step_of(name: str) -> int:
  """Return the step in a version's name."""
  return int(name.partition('-')[0])


@dataclasses.dataclass(frozen=True)
class Version:
  """An opened version, which stays until `close`."""

  path: pathlib.Path  # folder of the version
  step: int
  params_fingerprint: str  # hash of the parameters
  blocks_fingerprint: str  # hash of the blocks
  index: index_lib.Index  # index of the blocks' vectors; row i is block i
  lease: contextlib.ExitStack  # releases the lock of the version

  @property
  def name(self) -> str:
    """Name of the version's folder."""
    return self.path.name

  @functools.cached_property
  def params(self) -> dict:
    """The snapshot of the embedder: a tree of numpy arrays."""
    return read_snapshot(self.path)

  @property
  def vectors(self):
    """Memory-mapped vectors of all blocks: [num_blocks, d]."""
    found = store.Store.open(self.path / 'vectors', VECTORS_KIND)
    index_lib.check_vectors(self.index, found)
    return found.array('vectors')

  def close(self) -> None:
    """Release the lease, so that the version can be removed."""
    self.lease.close()


def read_snapshot(version: pathlib.Path) -> dict:
  """Read the embedder's parameters from the folder of a published version.

  Raises:
    FileNotFoundError: when there is no such version.
    ValueError: when it is damaged.
  """
  file = version / _PARAMS
  if not file.is_file():
    raise FileNotFoundError(f'{version}: no such index version.')
  manifest = read_manifest(version)
  checksum = manifest.get('files', {}).get(_PARAMS)
  if checksum is not None:  # earlier versions have none
    again = f'remove {version} and refresh the index'
    verification.check(file, checksum, again, remember=False)
  params = snapshots.read(file)
  if checksum is None and snapshots.fingerprint(params) != manifest['params']:
    raise ValueError(f'{file}: damaged; remove {version}, refresh the index.')
  return params


def read_manifest(path: pathlib.Path) -> Mapping[str, Any]:
  """Read a version's step, and the fingerprints of its parameters and blocks.

  Raises:
    ValueError: when it is damaged.
  """
  file = path / _MANIFEST
  manifest = manifests.read_json(
    file, f'{path}: no index version here ({_MANIFEST} is missing).'
  )
  missing = {'schema', 'step', 'blocks', 'params'} - set(manifest)
  if missing or manifest['schema'] != SCHEMA:
    raise ValueError(
      f'{file}: not a version of schema {SCHEMA} (missing: {sorted(missing)}).'
    )
  return manifest


class VersionFolder:
  """The folder `root` with the versions of one index."""

  def __init__(self, root: str | os.PathLike):
    self.root = pathlib.Path(root)

  def names(self) -> list[str]:
    """Return the names of the published versions, oldest first."""
    if not self.root.is_dir():
      return []
    return sorted(
      p.name for p in self.root.iterdir() if _NAME.match(p.name) and p.is_dir()
    )

  def latest(self, at_most: int | None = None) -> str:
    """Return the version of the newest parameters, or '' in an empty folder.

    Args:
      at_most: largest step that counts. A continued run has yet to reach the
        later steps of the killed run before it.
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
    dtype: str = 'float32',
    executor: executors.Executor | None = None,
    progress: shards.Progress | None = None,
  ) -> str | None:
    """Build and publish a version, unless it is published already.

    Args:
      params: the embedder's parameters, a tree of host arrays.
      config: index settings; the metric is the inner product.
      dtype: of the vectors on disk: float32, bfloat16 or float16.
      executor: where blocks are embedded and shards of the index built; None is
        this process. Of processes with an `executors.Share` each, the first one
        builds the index and publishes the version.

    Returns:
      The version's name, or None while other processes still have work.

    Raises:
      ValueError: for vectors that are not finite, or an index below its floor.
    """
    fingerprint = snapshots.fingerprint(params)
    name = _name(step, fingerprint, blocks.fingerprint)
    if self.is_whole(name):
      return name
    together = isinstance(executor, executors.Share)
    follows = together and not executor.leads
    if (self.root / name).is_dir():
      if follows:
        return None
      self._discard(name)
    self.root.mkdir(parents=True, exist_ok=True)
    with version_drafts.draft(self.root, name, together) as draft:
      vectors = _embed_all(
        draft / 'vectors',
        {'blocks': blocks.fingerprint, 'params': fingerprint},
        blocks.store.rows('document'),
        functools.partial(_embed, embed, dtype),
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
      seal(draft, step, params, blocks)
      store.publish_folder(draft, self.root / name)
    return name

  def is_whole(self, name: str) -> bool:
    """Return whether a version is there with all its files undamaged."""
    if not (self.root / name).is_dir():
      return False
    try:
      # Here: a cluster that is not there is no damage.
      with contextlib.closing(self.open(name, cluster='')) as version:
        _ = version.params, version.vectors
        store.Store.open(version.path / 'vectors', VECTORS_KIND).verify()
    except (OSError, ValueError) as error:
      logging.warning('Index version %s is damaged: %s', name, error)
      return False
    return True

  def recover_params(self, name: str, blocks: blocks_lib.BlockStore) -> dict:
    """Read the parameters of a damaged version, with which it can be rebuilt.

    Raises:
      FileNotFoundError: when they are gone.
      ValueError: when they are damaged, or the version has other blocks.
    """
    params = snapshots.read(self.root / name / _PARAMS)
    if version_name(step_of(name), params, blocks) != name:
      raise ValueError(f'{self.root / name / _PARAMS}: of another version.')
    return params

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
      if path is None:
        raise FileNotFoundError(f'{self.root / name}: is being removed.')
      manifest = read_manifest(path)
      if name != _name(
        manifest['step'], manifest['params'], manifest['blocks']
      ):
        raise ValueError(
          f'{path / _MANIFEST}: of another version (step {manifest["step"]}, '
          f'parameters {manifest["params"]}); remove {path} and refresh the '
          'index.'
        )
      if blocks is not None and manifest['blocks'] != blocks.fingerprint:
        raise ValueError(
          f'{path}: built from blocks {manifest["blocks"]}, but '
          f'{blocks.path} is {blocks.fingerprint}; refresh the index.'
        )
      index = index_lib.open_index(path / 'index', cluster=cluster)
      # Earlier versions do not name theirs.
      if manifest.get('index', index.fingerprint) != index.fingerprint:
        raise ValueError(
          f'{index.path}: of another version; remove {path} and refresh the '
          'index.'
        )
      return Version(
        path,
        manifest['step'],
        manifest['params'],
        manifest['blocks'],
        index,
        stack.pop_all(),
      )

  @contextlib.contextmanager
  def held(self, name: str) -> Iterator[pathlib.Path | None]:
    """Keep a version from being removed; None where it is being removed."""
    lease = locks.hold(self._lease_file(name), shared=True, wait=False)
    with contextlib.ExitStack() as stack:
      try:
        stack.enter_context(lease)
      except BlockingIOError:
        yield None
      else:
        yield self.root / name

  def remove_old(self, keep: Collection[str] = (), newest: int = 1) -> None:
    """Remove versions without a lease, and the drafts of dead builders.

    Args:
      keep: versions that stay.
      newest: number of the newest versions that stay.
    """
    if not locks.HAS_LOCKS or not self.root.is_dir():
      return
    names = self.names()
    for name in names[: max(0, len(names) - newest)]:
      if name not in keep:
        self._remove(name)
    if names:
      version_drafts.remove_dead(self.root, names[-1])
    drafts.remove_dead(self.root, recursive=False)

  def remove_later(self, step: int) -> None:
    """Remove versions of steps after `step`, unless they have a lease."""
    for name in self.names():
      if step_of(name) > step:
        self._remove(name)

  def _remove(self, name: str) -> None:
    lease = self._lease_file(name)
    # A reader may hold it.
    with contextlib.suppress(BlockingIOError), locks.hold(lease, wait=False):
      self._discard(name)
      lease.unlink(missing_ok=True)
      logging.info('Removed index version %s.', name)

  def _discard(self, name: str) -> None:
    hidden = drafts.beside(self.root / name)
    with contextlib.suppress(FileNotFoundError):  # another process was first
      os.rename(self.root / name, hidden)
    shutil.rmtree(hidden, ignore_errors=True)

  def _lease_file(self, name: str) -> pathlib.Path:
    return self.root / f'.lease-{name}'


def _embed(embed: EmbedBlocks, dtype: str, ids, progress) -> np.ndarray:
  return embed(ids, progress).astype(dtype)


def _embed_shard(embed: EmbedBlocks, bounds, shard, progress):
  ids = np.arange(bounds[shard], bounds[shard + 1])
  return {'vectors': embed(ids, progress)}


def _embed_all(
  path: pathlib.Path, fields, rows, embed: EmbedBlocks, **how
) -> store.Store | None:
  """Write the vectors; None while other processes have work left."""
  make = functools.partial(_embed_shard, embed, np.cumsum([0, *rows]))
  return shards.build_store(path, VECTORS_KIND, fields, rows, make, **how)


def seal(
  draft: pathlib.Path, step: int, params: Any, blocks: blocks_lib.BlockStore
) -> None:
  """Write the parameters and the manifest of a version into its draft."""
  snapshots.write(draft / _PARAMS, params)
  manifest = {
    'schema': SCHEMA,
    'step': step,
    'params': snapshots.fingerprint(params),
    'blocks': blocks.fingerprint,
    'files': {_PARAMS: checksums.of_file(draft / _PARAMS)},
    'index': index_lib.fingerprint_of(draft / 'index'),
  }
  store.write_atomically(draft / _MANIFEST, manifests.sealed(manifest))
