# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Indices of an embedder that is being taught, made by the stages of experiments.prepare.

A version is the folder <workdir>/index/<step>-<hash>/ with embedder/, vectors-*,
index/ and neighbors-*, of the chunks of one data folder. Training stops while a
version is made. The version of a batch depends on the batch's number alone, so runs
repeat and resume bit for bit; a killed stage goes on where it was.
"""

from collections.abc import Callable
import concurrent.futures
import dataclasses
import os
import pathlib
import shutil
from typing import Any

from absl import logging
import jax
import numpy as np

from experiments.retro import prepare
from experiments.taught.config import Config
from retrieval.index import snapshots
from retrieval.nn import embedders
from retro_jax.data import folder as retro_data
from retro_jax.nn import candidates

FIRST = 'data'  # the neighbors of the data folder itself
_SHARED = ('tokenizer', 'tokens', 'duplicates', 'chunks')


@dataclasses.dataclass(frozen=True)
class Version(retro_data.DataFolder):
  """A data folder that has vectors, index and neighbors, and another's chunks."""

  base: retro_data.DataFolder | None = None

  def path(self, name: str) -> pathlib.Path:
    """Path of one store, in the other folder if it does not depend on vectors."""
    shared = name.split('-')[0] in _SHARED
    return self.base.path(name) if shared else super().path(name)

  @property
  def tokenizer_path(self) -> pathlib.Path:
    """The tokenizer's folder."""
    return self.base.tokenizer_path


class Versions:
  """The versions of a run; a `tasks.IndexRefresher`.

  Attributes:
    data: data folder whose neighbors serve as candidates.
  """

  def __init__(
    self,
    config: Config,
    data: retro_data.DataFolder,
    embedder: embedders.Embedder,
    workdir: str | os.PathLike,
    serve: Callable[[retro_data.DataFolder], None],
  ):
    """Begin with the data folder of the first steps.

    Args:
      config: sections `retriever`, and those of `prepare`.
      embedder: of the data folder's vectors.
      serve: called with each data folder that begins to serve.
    """
    self._config, self._first = config, data
    self._embedder = embedder
    self._root = pathlib.Path(workdir) / 'index'
    self._serve = serve
    self._name, self._age = FIRST, 0
    self._saved: list[str] = []  # versions in the newest checkpoints
    # Its thread is outside the training mesh, which is set for one thread only.
    self._apart = concurrent.futures.ThreadPoolExecutor(1)

  def start(self, step: int, params: Any, saved: str) -> None:
    """Serve the version that a checkpoint names, or the data folder.

    Raises:
      FileNotFoundError: if that version no longer exists.
    """
    del params
    self._saved = [saved] if saved else []
    if saved in ('', FIRST):
      self._switch(FIRST, self._first)
      return
    if not self._embedder_path(saved).is_dir():
      raise FileNotFoundError(
        f'{self._root}: the checkpoint of step {step} retrieves from index '
        f'version {saved}, which does not exist; use a new --workdir.'
      )
    self._make(saved)

  def after_step(self, step: int, params: Any) -> None:
    """Make the next version where one is due."""
    made = 0 if self._name == FIRST else int(self._name.partition('-')[0])
    self._age = step - 1 - made  # of the index of this step's batch
    every = self._config.retriever.refresh_every
    if not every or step % every or step >= self._config.num_steps:
      return
    taught = jax.tree.map(np.asarray, params[candidates.EMBEDDER])
    name = f'{step:010d}-{snapshots.fingerprint(taught)[:12]}'
    if not self._embedder_path(name).is_dir():
      self._embedder.save(self._embedder_path(name), taught)
    self._make(name)
    self._remove_old()

  def metrics(self, step: int, batch: Any) -> dict[str, float]:
    """Return the age in steps of the index that the batch's candidates are from."""
    del step, batch
    return {'index_age_steps': float(self._age)}

  def version_to_save(self) -> str:
    """Return the version's name, and keep it on disk for two checkpoints."""
    self._saved = [*self._saved[-1:], self._name]
    return self._name

  def close(self) -> None:
    """End the thread that builds."""
    self._apart.shutdown()

  def _embedder_path(self, name: str) -> pathlib.Path:
    return self._root / name / 'embedder'

  def _make(self, name: str) -> None:
    """Run the stages of a version that are not done yet, and serve it."""
    path = str(self._embedder_path(name))
    embedder = dataclasses.replace(self._config.embedder, path=path)
    config = dataclasses.replace(self._config, embedder=embedder)
    version = Version(self._root / name, base=self._first)
    logging.info('Index version %s.', name)
    for stage in (prepare.embed, prepare.build_index, prepare.find_neighbors):
      self._apart.submit(stage, config, version).result()
    self._switch(name, version)

  def _switch(self, name: str, data: retro_data.DataFolder) -> None:
    self._serve(data)
    self._name = name

  def _remove_old(self) -> None:
    for path in self._root.iterdir():
      if path.name not in (*self._saved, self._name):
        shutil.rmtree(path, ignore_errors=True)
