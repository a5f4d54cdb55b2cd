# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Teach the embedder of chunks which neighbors help a language model to predict.

  python -m experiments.train --config=configs/retro_retriever_quickstart.py \
    --config.retriever.language_model=MODEL --workdir=DIR

MODEL is a run of RETRO, of its baseline, or a decoder that import_decoder wrote, and
stays as it is. A RETRO reads each of the nearest chunks alone; another model reads it
before the chunk that asks. The embedder learns to give the chunks that lower the loss
of the following chunk the larger scores (config.retriever.objective: replug_lsr, Shi
et al. 2023; emdr2, Sachan et al. 2021; pdist, Izacard et al. 2022). Data are those of
that run, or of --config.data_dir, with dense neighbors. With
--config.retriever.refresh_every=N all chunks are embedded and searched anew every N
steps, in DIR/index. A killed command continues bit for bit when run again.

The taught embedder is the folder DIR/embedder, for

  python -m experiments.prepare --config=... \
    --config.embedder.path=DIR/embedder --config.data_dir=OTHER_DATA --workdir=...

and experiments.evaluate and compare measure RETRO's bits per byte with both data.
"""

from collections.abc import Mapping
import functools
import os
import pathlib
import shutil
from typing import Any

from absl import logging
import jax
import numpy as np

from experiments.engine import loop, stages, tasks
from experiments.retro import task as retro_task
from experiments.taught import versions
from experiments.taught.config import Config
from retrieval.nn import embedders, objectives
from retrieval.store import manifests
from retro_jax.data import (
  candidate_rows,
  folder as retro_data,
  pipeline,
)
from retro_jax.nn import candidates, initial, stack
from retro_jax.trained import language_model, loading

EMBEDDER = 'embedder'


def train(config: Config, workdir: str) -> None:
  """Train until `config.num_steps`, then write the embedder."""
  stages.check_alone()
  run = config.retriever.language_model
  if not run:
    raise ValueError(
      "config.retriever.language_model='': expected the workdir of a RETRO or of "
      'its baseline.'
    )
  teacher = language_model.load(run, config.data_dir, source='dense')
  embedder = teacher.data.datastore.embedder(config)
  task = make_task(config, teacher, embedder, workdir)
  logging.info(
    'Taught by %s on %s, writing to %s.',
    run,
    teacher.data.root,
    workdir,
  )
  state = loop.train(task, config, workdir)
  path = pathlib.Path(workdir) / EMBEDDER
  shutil.rmtree(path, ignore_errors=True)  # of fewer steps
  taught = jax.tree.map(np.asarray, state.params[candidates.EMBEDDER])
  embedder.save(path, taught)
  logging.info('The embedder is %s, for --config.embedder.path.', path)


def _init(
  key: jax.Array, teacher: loading.TrainedRetro, embedder: embedders.Embedder
) -> tasks.Params:
  del key
  params = jax.tree.map(np.asarray, teacher.params)
  return {
    candidates.EMBEDDER: embedder.params,
    candidates.LANGUAGE_MODEL: stack.for_training(teacher.model.config, params),
  }


def _shapes(
  key: jax.Array, teacher: loading.TrainedRetro, embedder: embedders.Embedder
) -> tasks.Params:
  return {
    candidates.EMBEDDER: embedder.init(key),
    candidates.LANGUAGE_MODEL: initial.init_params(key, teacher.model.config),
  }


class _Candidates:
  """Completes batches with the candidates of the version that serves."""

  def __init__(
    self,
    config: Config,
    teacher: loading.TrainedRetro,
    embedder: embedders.Embedder,
  ):
    self._settings, self._teacher = config.retriever, teacher
    self._splits = retro_task.used_splits(config, teacher.data)
    self._embedder = embedder
    self._reader: candidate_rows.CandidateReader | None = None

  def serve(self, data: retro_data.DataFolder) -> None:
    """Read candidates from now on in a data folder; opens its stores."""
    self._reader = candidate_rows.CandidateReader(
      self.readers(data),
      self._embedder.token_ids,
      self._settings.max_length,
    )

  def readers(
    self, data: retro_data.DataFolder
  ) -> dict[str, pipeline.ChunkReader]:
    """Open the reader of each split; ValueError for fewer neighbors than asked."""
    config, k = self._teacher.config, self._settings.num_candidates
    readers = {
      split: loading.chunk_reader(config, data, split, k)
      for split in self._splits
    }
    for reader in readers.values():
      _ = reader.stores
    return readers

  def complete(
    self, params: tasks.Params, batch: Mapping[str, Any]
  ) -> dict[str, np.ndarray]:
    """See `tasks.Task.complete`."""
    del params
    return self._reader.complete(batch)


def make_task(
  config: Config,
  teacher: loading.TrainedRetro,
  embedder: embedders.Embedder,
  workdir: str | os.PathLike,
) -> tasks.Task:
  """Bind embedder, language model, loss, data and index."""
  settings, data = config.retriever, teacher.data
  temperatures = {  # scores come divided already; emdr2's likelihood has none
    'temperature_score': 1.0,
    'temperature_gold': settings.lm_temperature,
  }
  if settings.objective == 'emdr2':
    temperatures = {}
  completer = _Candidates(config, teacher, embedder)
  readers = completer.readers(data)

  def dataset(split):
    return candidate_rows.make_dataset(
      readers[split],
      split,
      queries=settings.queries,
      sequence_chunks=config.sequence_chunks,
      batch_size=config.batch_size,
      seed=config.seed,
    )

  return tasks.Task(
    init=functools.partial(_init, teacher=teacher, embedder=embedder),
    init_on_host=True,
    shapes=functools.partial(_shapes, teacher=teacher, embedder=embedder),
    loss=functools.partial(
      candidates.loss,
      teacher.model,
      embedder.encode,
      objectives.get(settings.objective, **temperatures),
      temperature=settings.temperature,
      lm_temperature=settings.lm_temperature,
    ),
    dataset=dataset,
    complete=completer.complete,
    frozen=lambda name: name == candidates.LANGUAGE_MODEL,
    index_refresher=versions.Versions(
      config, data, embedder, workdir, completer.serve
    ),
    pipeline_fingerprint=manifests.fingerprint(
      [
        readers['train'].fingerprint,
        embedder.fingerprint,
        config.sequence_chunks,
        [settings.queries, settings.max_length, settings.refresh_every],
      ]
    ),
    fingerprints=data.fingerprints(True),
    tokens_per_step=config.batch_size
    * config.sequence_chunks
    * teacher.config.model.chunk_length,
  )
