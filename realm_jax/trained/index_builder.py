# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Build index versions from snapshots of the embedder's parameters.

A version lies in <folder>/<step>-<hash>/; failures/<version>.txt says why a
version could not be built.
"""

from collections.abc import Callable
import contextlib
import dataclasses
import functools
import os
import pathlib
import time
from typing import Any

import jax
import numpy as np

from realm_jax.data import examples, folder as data_folder
from realm_jax.nn import config as config_lib
from realm_jax.trained import embedders, model_configs
from retrieval.index import index_config, index_versions
from retrieval.store import executors, output_files
from retrieval.text import blocks as blocks_lib

INDEX = 'index'  # folder of a run's versions, in its workdir
_WAIT_SEC = 1.0
_FAILURES = 'failures'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Builder:
  """Makes index versions from snapshots of the embedder."""

  model: config_lib.RealmConfig
  layout: examples.Layout
  blocks: blocks_lib.BlockStore
  folder: index_versions.VersionFolder
  index: index_config.IndexConfig
  batch_tokens: int = 0  # tokens in a batch of the embedder; 0 goes by device
  vectors_dtype: str = 'float32'  # on disk
  # the processes that embed the blocks; None is this one alone
  executor: executors.Executor | None = None
  # folder of another run's versions. The first version of `folder` takes its
  # vectors from there, if they are of the same parameters, blocks and settings.
  source: pathlib.Path | None = None

  def build(
    self,
    step: int,
    params: Any,
    progress: Callable[[int, int], None] | None = None,
  ) -> str:
    """Build the version of a snapshot, perhaps of known vectors; return its name.

    `params` are `embedders.embedder_params`, as host arrays.

    Raises:
      ValueError: for vectors that are not finite.
    """
    version = index_versions.version_name(step, params, self.blocks)
    with contextlib.ExitStack() as stack:
      embed = self._embed(params, stack)
      try:
        while True:  # until the other processes have done their shares
          name = self.folder.build(
            step,
            params,
            self.blocks,
            embed,
            self.index,
            settings=vector_settings(self.model),
            dtype=self.vectors_dtype,
            executor=self.executor,
            progress=progress,
          )
          if name:
            return name
          failures = read_failures(self.folder.root)
          if version in failures:
            raise ValueError(failures[version])
          time.sleep(_WAIT_SEC)
      except Exception as error:
        with contextlib.suppress(OSError):  # a full disk
          write_failure(self.folder.root, version, ' '.join(str(error).split()))
        raise

  def _embed(
    self, params: Any, stack: contextlib.ExitStack
  ) -> index_versions.EmbedBlocks:
    """Return the embedder of blocks, or vectors of the package or of `source`."""
    from realm_jax.trained import packaged  # which only whole runs need

    known = packaged.vectors_of(params, self.blocks)
    # Later versions have newer parameters.
    if known is None and self.source and not self.folder.names():
      vectors = index_versions.VersionFolder(self.source).known_vectors(
        params,
        self.blocks,
        vector_settings(self.model),
        self.vectors_dtype,
        embedders.block_embedder_params,
      )
      known = stack.enter_context(vectors)
    if known is not None:
      return functools.partial(_take, known)
    return embedders.BlockEmbedder(
      self.model,
      self.layout,
      self.blocks,
      params,
      batch_tokens=self.batch_tokens,
    )


def _take(known: Any, ids: np.ndarray, progress: Any) -> np.ndarray:
  """Return known vectors; an `index_versions.EmbedBlocks`."""
  del progress
  return np.asarray(known[ids])


def index_folder(
  workdir: str | os.PathLike, data_dir: str = ''
) -> pathlib.Path:
  """Return the index folder: that of updated data, else of the run."""
  beside = pathlib.Path(data_dir) / INDEX
  if data_dir and beside.is_dir():
    return beside
  return pathlib.Path(workdir) / INDEX


def make_builder(
  config: model_configs.RunConfig,
  data: data_folder.DataFolder,
  workdir: str | os.PathLike,
) -> Builder:
  """Return the builder of a run's index versions."""
  start = config.embedder_from or getattr(config, 'realm_from', '')
  model = model_configs.realm_config(config, data.tokenizer.vocab_size)
  executor = None
  if jax.process_count() > 1:
    executor = executors.Share(jax.process_index(), jax.process_count())
  return Builder(
    model=model,
    layout=data.layout(config),
    blocks=data.blocks,
    folder=index_versions.VersionFolder(index_folder(workdir)),
    index=config.index,
    batch_tokens=config.vectors.batch_tokens,
    vectors_dtype=config.vectors.dtype,
    executor=executor,
    source=pathlib.Path(start) / INDEX if start else None,
  )


def vector_settings(config: config_lib.RealmConfig) -> dict[str, Any]:
  """Settings that change the vectors but no parameter's shape."""
  bert = config.embedder
  return {
    'embedder.num_heads': bert.num_heads,
    'embedder.activation': bert.activation,
    'embedder.layer_norm_eps': bert.layer_norm_eps,
    'embedder.dtype': str(bert.dtype),
    'model.pooling': config.pooling,
    'model.projection_norm_eps': config.projection_norm_eps,
  }


def snapshot(params: Any) -> dict:
  """The embedder's parameters as host arrays, gathered from all devices.

  If they are sharded over several hosts, all processes must call this function.
  """
  params = embedders.embedder_params(params)
  leaves = jax.tree.leaves(params)
  if leaves and not getattr(leaves[0], 'is_fully_addressable', True):
    params = embedders.gather(leaves[0].sharding.mesh)(params)
  return jax.tree.map(np.asarray, jax.device_get(params))


def write_failure(root: pathlib.Path, name: str, message: str) -> None:
  """Write why a version could not be built."""
  file = root / _FAILURES / f'{name}.txt'
  file.parent.mkdir(parents=True, exist_ok=True)
  output_files.write(file, message.encode())


def remove_failures(root: pathlib.Path) -> None:
  """Remove all reports of versions that could not be built."""
  for file in (root / _FAILURES).glob('[0-9]*.txt'):
    file.unlink(missing_ok=True)


def read_failures(root: pathlib.Path) -> dict[str, str]:
  """Return version -> why it could not be built."""
  files = sorted((root / _FAILURES).glob('[0-9]*.txt'))
  return {file.stem: file.read_text(errors='replace') for file in files}
