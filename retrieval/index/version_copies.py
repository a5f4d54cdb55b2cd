# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Index versions that stand in another folder already: linked, not built again.

A version's vectors follow from its blocks and from the parameters that embed
blocks. Where another run has the same of both, its files serve here, too.
"""

from collections.abc import Callable
from collections.abc import Mapping
import os
import pathlib
import shutil
from typing import Any

from absl import logging

from retrieval.index import index as index_lib
from retrieval.index import index_versions
from retrieval.index import version_manifest
from retrieval.store import store
from retrieval.text import blocks as blocks_lib

try:
  import fcntl
except ImportError:  # Windows: only one process adopts there.
  fcntl = None


def adopt(
  folder: index_versions.VersionFolder,
  step: int,
  params: Any,
  blocks: blocks_lib.BlockStore,
  source: str | os.PathLike,
  config: index_lib.IndexConfig,
  *,
  part: Callable[[Mapping[str, Any]], Any] | None = None,
) -> str | None:
  """Publishes a version that stands elsewhere already; nothing is embedded.

  Its files are linked, or copied where that fails, and published by one rename.
  The vectors are not read, unless `config` asks for another index than the one
  that was built of them.

  Args:
    folder: where it will stand.
    step: of the parameters, there.
    params: the embedder's, a tree of host arrays.
    blocks: what is retrieved.
    source: folder of versions, perhaps the same one.
    config: of the index.
    part: of the parameters: what embeds blocks; None is all of them.

  Returns:
    The version's name, or None where `source` has none of these parameters and
    blocks.

  Raises:
    ValueError: for an index below its floor.
  """
  name = index_versions.version_name(step, params, blocks)
  others = index_versions.VersionFolder(source)
  for found in reversed(others.names()):
    with others.held(found) as path:
      if path is not None and _is_same(path, params, blocks, part):
        _publish(folder.root / name, path, step, params, blocks, config)
        return name
  return None


def _is_same(path: pathlib.Path, params, blocks, part) -> bool:
  """Whether a version's vectors are those of some parameters and blocks."""
  fingerprint = index_versions.params_fingerprint
  try:
    manifest = version_manifest.read(path)
    if manifest['blocks'] != blocks.fingerprint:
      return False
    same = manifest['params'] == fingerprint(params)
    if same or part is None:
      return same
    theirs = part(index_versions.read_snapshot(path))
  except (FileNotFoundError, ValueError) as e:
    logging.warning('%s is not taken over (%s).', path, e)
    return False
  return fingerprint(theirs) == fingerprint(part(params))


def _publish(
  target: pathlib.Path, found: pathlib.Path, step: int, params, blocks, config
) -> None:
  """Publishes the vectors of `found`, and its index where that suits."""
  target.parent.mkdir(parents=True, exist_ok=True)
  # One at a time: who comes second finds the version, or a dead draft.
  with open(target.parent / '.adopting', 'w') as lock:
    if fcntl:
      fcntl.flock(lock, fcntl.LOCK_EX)
    if target.is_dir():
      return
    draft = target.with_name(f'.building-{target.name}.adopted')
    shutil.rmtree(draft, ignore_errors=True)
    _link(found / 'vectors', draft / 'vectors')
    stored = store.Store.open(draft / 'vectors', index_versions.VECTORS_KIND)
    vectors = stored.array('vectors')
    if index_lib.suits(found / 'index', vectors, stored.fingerprint, config):
      _link(found / 'index', draft / 'index')
    else:
      index_lib.build_index(
        draft / 'index', vectors, stored.fingerprint, config
      )
    index_versions.seal(draft, step, params, blocks)
    store.publish_folder(draft, target)
  logging.info('Index version %s: taken over from %s.', target.name, found)


def _link(source: pathlib.Path, target: pathlib.Path) -> None:
  """Makes a folder of the same files: hard links, or copies."""

  def place(old: str, new: str) -> None:
    old = os.path.realpath(old)
    try:
      os.link(old, new)
    except OSError:  # another file system, or one without links
      shutil.copyfile(old, new)

  shutil.copytree(source, target, copy_function=place)
