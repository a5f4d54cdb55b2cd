# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trained readers for commands: loaded, or taken from the package."""

import dataclasses
import os
from typing import Any

from experiments.engine import command, configs
from experiments.open_qa import config as config_lib
from experiments.realm import prepare
from realm_jax.trained import loading, packaged
from retrieval.store import checkpoints, packed
from retrieval.text import packed_runs

CONFIG = str(configs.FOLDER / 'open_qa_reader.py')
# sections that the packaged reader takes from a config
_TAKEN = 'blocks data_dir embedder encoder index lookup tokens vectors'


def open_reader(
  workdir: str | os.PathLike, data_dir: str = ''
) -> loading.TrainedReader:
  """Load the newest checkpoint of a reader, or of several as one.

  Args:
    workdir: folder of a run, or several with commas between.
    data_dir: data folder, or several; of one run or of as many.

  Raises:
    FileNotFoundError: without a trained model.
    ValueError: if the run has no reader.
  """
  runs, data = command.folders(str(workdir)), command.folders(data_dir)
  for run in runs:
    try:
      checkpoints.find(run)
    except FileNotFoundError:
      raise FileNotFoundError(
        f'{run}: no trained model here; train one: python -m '
        f'experiments.train --config={CONFIG} --workdir={run}; or take the '
        'packaged reader: --packaged'
      ) from None
  count = max(len(runs), len(data))
  if count == 1:
    return loading.load(runs[0], data[0], part='reader')
  runs, data = (x * count if len(x) == 1 else x for x in (runs, data))
  return loading.load(runs, data)


def take_packaged(config: config_lib.Config, workdir: str) -> None:
  """Take the packaged reader into a folder without a trained model.

  Raises:
    ValueError: if the folder holds another corpus than the config names, or for
      several folders.
  """
  if len(command.folders(workdir)) > 1:
    raise ValueError(f'--packaged: expected one --workdir, not {workdir}.')
  sections = dataclasses.asdict(config)
  del sections['lookup']['where']  # that of one call, not of the folder
  if checkpoints.folder_of(workdir).is_dir():
    saved = checkpoints.find(workdir).config
    packed_runs.check_corpus(
      workdir, saved.corpus.to_dict(), sections['corpus']
    )
    return
  if not (config.data_dir or packed.is_packed(workdir)):
    prepare.prepare(config, workdir, shown=False)
  packaged.take(
    workdir,
    corpus=config.corpus,
    settings={name: sections[name] for name in _TAKEN.split()},
  )


def with_config(
  trained: loading.TrainedReader, config: config_lib.Config, **changes: Any
) -> loading.TrainedReader:
  """Return a reader that retrieves as a command's config says, where it does.

  changes: further arguments of `TrainedReader.with_retriever`.
  """
  return trained.with_retriever(
    where=config.lookup.where,
    colbert_index=config.colbert_index if config.colbert_index.model else None,
    **{'reranker': config.reranker if config.reranker.path else None} | changes,
  )
