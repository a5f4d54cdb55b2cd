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

from realm_jax.data import folder as data_folder
from realm_jax.nn import config as config_lib
from realm_jax.trained import embedders, model_configs
from retrieval.index import index_versions
from retrieval.store import executors, output_files

INDEX = 'index'  # folder of a run's versions, in its workdir
_WAIT_SEC = 1.0
_FAILURES = 'failures'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Builder:
  """Builds index versions of a run from snapshots of the embedder."""

  config: model_configs.RunConfig
  data: data_folder.DataFolder
  folder: index_versions.VersionFolder
  # the processes that embed the blocks; None is this one alone
  executor: executors.Executor | None = None

  @functools.cached_property
  def model(self) -> config_lib.RealmConfig:
    """Sizes of the embedder."""
    vocab_size = self.data.tokenizer.vocab_size
    return model_configs.realm_config(self.config, vocab_size)

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
    version = index_versions.version_name(step, params, self.data.blocks)
    try:
      with contextlib.ExitStack() as stack:
        known = self._known(params, stack)
        embed = (
          self.embedder(params)
          if known is None
          else lambda ids, _: np.asarray(known[ids])
        )
        # until the other processes have done their shares
        while not (name := self.publish(step, params, embed, progress)):
          failures = read_failures(self.folder.root)
          if version in failures:
            raise ValueError(failures[version])
          time.sleep(_WAIT_SEC)
        return name
    except Exception as error:
      with contextlib.suppress(OSError):  # a full disk
        write_failure(self.folder.root, version, ' '.join(str(error).split()))
      raise

  def publish(
    self,
    step: int,
    params: Any,
    embed: index_versions.EmbedBlocks,
    progress: Callable[[int, int], None] | None = None,
  ) -> str | None:
    """Build a version of the vectors of `embed`; as `VersionFolder.build`."""
    return self.folder.build(
      step,
      params,
      self.data.blocks,
      embed,
      self.config.index,
      settings=vector_settings(self.model),
      dtype=self.config.vectors.dtype,
      executor=self.executor,
      progress=progress,
    )

  def embedder(self, params: Any) -> index_versions.EmbedBlocks:
    """Return the embedder of blocks."""
    return embedders.BlockEmbedder(
      self.model,
      self.data.layout(self.config),
      self.data.blocks,
      params,
      batch_tokens=self.config.vectors.batch_tokens,
    )

  def _known(self, params: Any, stack: contextlib.ExitStack) -> Any:
    """Return vectors of the package, or of the run that this one starts from.

    The first version takes these if they are of the same parameters, blocks and
    settings; later versions have newer parameters.
    """
    from realm_jax.trained import packaged  # which only whole runs need

    vectors = packaged.vectors_of(params, self.data.blocks)
    config = self.config
    start = config.embedder_from or getattr(config, 'realm_from', '')
    if vectors is not None or not start or self.folder.names():
      return vectors
    known = index_versions.VersionFolder(
      pathlib.Path(start) / INDEX
    ).known_vectors(
      params,
      self.data.blocks,
      vector_settings(self.model),
      config.vectors.dtype,
      embedders.block_embedder_params,
    )
    return stack.enter_context(known)


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
  executor = None
  if jax.process_count() > 1:
    executor = executors.Share(jax.process_index(), jax.process_count())
  folder = index_versions.VersionFolder(index_folder(workdir))
  return Builder(config=config, data=data, folder=folder, executor=executor)


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
