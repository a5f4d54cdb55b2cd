# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What a Task that reads retrieved blocks is made of: answers or classes alike."""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import os
import pathlib

from absl import logging
import jax
import ml_collections

from experiments.engine import command
from experiments.engine import tasks
from experiments.realm import refresh
from experiments.realm import task as realm_task
from realm_jax.data import folder as realm_data
from realm_jax.data import pipeline
from realm_jax.data import question_rows
from realm_jax.nn import config as config_lib
from realm_jax.nn import initialize
from realm_jax.serving import beams
from realm_jax.serving import index_folders
from realm_jax.serving import packaged_reader
from retrieval.index import bm25
from retrieval.index import index_versions
from retrieval.nn import sharding
from retrieval.store import checkpoints
from retrieval.store import store


def bind(
  config: ml_collections.ConfigDict,
  data: realm_data.DataFolder,
  workdir: str | os.PathLike,
  *,
  devices: Sequence[jax.Device] | None,
  start_builder,
  init: Callable[[jax.Array], tasks.Params],
  loss: Callable,
  read_source: Callable,
  make_lookup: Callable,
) -> tasks.Task:
  """Binds a model and its loss to what is asked and to what retrieves.

  Args:
    config: see `qa_task.make_task`.
    data: likewise.
    workdir: likewise.
    devices: likewise.
    start_builder: likewise.
    init: see `tasks.Task`.
    loss: likewise.
    read_source: as `qa_task.read_source`.
    make_lookup: as `qa_task.make_lookup`.

  Returns:
    What the loop trains.

  Raises:
    ValueError: for settings that do not fit each other, or nothing to ask.
  """
  check(config)
  index_refresher = None
  if config.retriever == 'dense':
    builder = realm_task.make_builder(config, data, workdir)
    settings = realm_task.refresh_config(config)
    first = functools.partial(kept_embedder, config, builder.model)
    index_refresher = refresh.Refresher(
      settings, builder, start_builder, first=first
    )
  retriever = make_retriever(config, data, index_refresher)
  lookup = make_lookup(
    config, data, retriever, train_blocks=config.train_blocks
  )
  source, splits = read_source(config, data)
  rows = padded_rows(config, _num_shards(config, devices))
  identity = [
    *(source.fingerprint, data.blocks.fingerprint, config.lookup.to_dict()),
    *(config.retriever, config.train_blocks, list(splits['train'])),
    realm_task.refresh_config(config).identity,
  ]
  return tasks.Task(
    init=init,
    init_on_host=True,
    loss=loss,
    dataset=functools.partial(_dataset, config, source, splits, rows),
    pipeline_fingerprint=store.fingerprint(identity),
    fingerprints=data.fingerprints(),
    index_refresher=index_refresher,
    lookup=lambda params, batch: lookup(params, batch, source),
    batch_rows=rows,
  )


def splits(
  config: ml_collections.ConfigDict, name: str, train: Sequence, dev: Sequence
) -> dict[str, tuple[int, int]]:
  """Which of what is asked, training first, is of which split.

  Args:
    config: of the experiment.
    name: its section that names the sets.
    train: to train on.
    dev: held out.

  Returns:
    Split -> first and past-last of both together.

  Raises:
    ValueError: if nothing is held out, but something is to be evaluated.
  """
  if not dev and config.eval_batches:
    raise ValueError(f'{name}.dev is empty: name a set, or set eval_batches=0.')
  logging.info('%d %s to train on, %d held out.', len(train), name, len(dev))
  count = len(train) + len(dev)
  return {'train': (0, len(train)), 'valid': (len(train), count)}


def _dataset(config, source, splits, rows: int, split: str):
  return question_rows.make_dataset(
    source,
    span=splits[split],
    batch_size=config.batch_size,
    train=split == 'train',
    seed=config.seed,
    process_index=jax.process_index(),
    process_count=jax.process_count(),
    padded_size=rows,
  )


def padded_rows(config: ml_collections.ConfigDict, devices: int) -> int:
  """Rows of a global batch, padded so that devices and microbatches divide them."""
  unit = devices * config.optimizer.accumulate_steps
  return -(-config.batch_size // unit) * unit


def _num_shards(config, devices) -> int:
  mesh = sharding.make_mesh(**config.mesh, devices=devices)
  return mesh.shape['data'] * mesh.shape['fsdp']


def check(config: ml_collections.ConfigDict) -> None:
  """Refuses settings that do not fit each other."""
  if config.train_blocks and config.retriever != 'dense':
    raise ValueError(
      f'train_blocks=True needs retriever=dense, not {config.retriever!r}.'
    )
  if not config.train_blocks and config.refresh.schedule != 'frozen':
    raise ValueError(
      f'refresh.schedule={config.refresh.schedule!r}: with train_blocks=False '
      "nothing changes the blocks' vectors; expected frozen."
    )


def starts(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
  """The config with `realm_from` as the start of what no other run starts."""
  if not config.realm_from:
    return config
  both = {
    name: config.realm_from
    for name in ('embedder_from', 'encoder_from')
    if config[name] in ('', packaged_reader.NAME)
  }
  return command.changed(config, **both)


def start_sources(
  config: ml_collections.ConfigDict,
) -> tuple[dict[str, tasks.Params], dict[str, pathlib.Path]]:
  """What 'embedder' and 'encoder' start from: runs' parameters, folders."""
  config = starts(config)
  found = {
    name: _trained(config[f'{name}_from'])
    for name in ('embedder', 'encoder')
    if config[f'{name}_from']
  }
  folders = {
    name: realm_data.checkpoint_path(config[name].checkpoint)
    for name in ('embedder', 'encoder')
    if config[name].checkpoint
  }
  return found, folders


def _trained(workdir: str) -> tasks.Params:
  if workdir == packaged_reader.NAME:
    return packaged_reader.load()
  return checkpoints.load_params(workdir)[0]


def kept_embedder(
  config: ml_collections.ConfigDict, model_cfg: config_lib.RealmConfig
) -> dict | None:
  """The embedder whose index a run keeps, where it is not its own.

  A model whose questions' side alone was trained retrieves from vectors of the
  embedder that it started from. A run that starts from it goes on with these,
  unless it trains the blocks' side.

  Args:
    config: of the run.
    model_cfg: of its retriever.

  Returns:
    Parameters of the embedders, or None: the index is of the run's own.

  Raises:
    FileNotFoundError: when that index is gone.
  """
  run = starts(config).embedder_from
  if not run or config.train_blocks:
    return None
  saved = checkpoints.find(run)
  if not saved.index_version or saved.config.get('train_blocks', True):
    return None
  folder = pathlib.Path(run) / index_folders.INDEX / saved.index_version
  logging.info('The index stays that of %s.', folder)
  params = index_versions.read_snapshot(folder)
  return initialize.trained_embedders(params, model_cfg)


def make_retriever(
  config: ml_collections.ConfigDict,
  data: realm_data.DataFolder,
  snapshots: pipeline.Snapshots | None,
) -> beams.Retriever:
  """What finds blocks: `config.retriever`; dense ones search `snapshots`."""
  kind = config.retriever
  if kind == 'dense':
    cfg = realm_task.model_config(config, data)
    return beams.DenseRetriever(cfg, snapshots)
  if kind == 'random':
    return beams.RandomRetriever(data.blocks.num_blocks)
  if kind != 'bm25':
    raise ValueError(f'retriever {kind!r}: expected one of {beams.KINDS}.')
  return beams.Bm25Retriever(bm25_index(data), config.lookup.bm25_scale)


def bm25_index(data: realm_data.DataFolder) -> bm25.Bm25:
  """BM25 over titles and texts of the blocks, built once for a data folder."""
  blocks = data.blocks
  path = data.root / f'bm25-{blocks.fingerprint[:12]}'
  if path.is_dir():
    return bm25.Bm25.load(path)
  logging.info('Building BM25 over %d blocks.', blocks.num_blocks)
  ids = range(blocks.num_blocks)
  index = bm25.Bm25.build(
    (text for i in ids for text in blocks.texts([i])),
    (title for i in ids for title in blocks.titles([i])),
  )
  index.save(path)
  return index
