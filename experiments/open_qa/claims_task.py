# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Classes of claims as a Task, and trained models that classify."""

from collections.abc import Sequence
import functools
import os

import jax
import ml_collections

from experiments.engine import tasks
from experiments.open_qa import beam_task
from experiments.open_qa import task as qa_task
from experiments.realm import task as realm_task
from realm_jax.data import folder as realm_data
from realm_jax.objectives import claims
from realm_jax.serving import beams
from realm_jax.serving import claim_rows
from retrieval.questions import claims as claims_lib


def labels(config: ml_collections.ConfigDict) -> tuple[str, ...]:
  """The labels of the data set that `claims.train` is of.

  Raises:
    ValueError: if it names none, or sets of several data sets.
  """
  settings = config.claims
  if not settings.train:
    raise ValueError(
      "claims.train is empty: expected sets such as ('fever:train=train.jsonl',)."
    )
  names = set(map(claims_lib.dataset_of, (*settings.train, *settings.dev)))
  if len(names) > 1:
    raise ValueError(
      f'claims.train and claims.dev are of {sorted(names)}: expected one data '
      'set, whose labels are the classes.'
    )
  return claims_lib.check_labels(names.pop(), settings.labels)


def model_config(
  config: ml_collections.ConfigDict, data: realm_data.DataFolder
) -> claims.ClaimsConfig:
  """The model that a config names."""
  return claims.ClaimsConfig(
    realm=realm_task.model_config(config, data),
    num_classes=len(labels(config)),
  )


def init_params(
  key: jax.Array,
  *,
  config: ml_collections.ConfigDict,
  model_cfg: claims.ClaimsConfig,
) -> tasks.Params:
  """Initial parameters, boxed with their logical axes.

  Args:
    key: randomness of what no checkpoint gives.
    config: names the checkpoints, or runs of ICT, DPR, MLM or REALM.
    model_cfg: the model.

  Returns:
    The tree of `claims.Claims`.
  """
  found, folders = beam_task.start_sources(config)
  return claims.init_params(
    key,
    model_cfg,
    embedder=folders.get('embedder'),
    encoder=found.get('encoder', folders.get('encoder')),
    retriever=found.get('embedder'),
  )


def load_set(
  spec: str, classes: Sequence[str], most: int = 0
) -> claims_lib.ClaimSet:
  """A claim set with these labels, its first `most` claims; 0 for all."""
  form = claims_lib.DATASETS.get(claims_lib.dataset_of(spec))
  own = getattr(form, 'labels', ())
  found = claims_lib.load(spec, () if own else classes)
  if found.labels != tuple(classes):
    raise ValueError(
      f'{spec!r}: labels {found.labels}, but the classes are {tuple(classes)}.'
    )
  return found.first(most) if most else found


def read_source(
  config: ml_collections.ConfigDict, data: realm_data.DataFolder
) -> tuple[claim_rows.ClaimSource, dict[str, tuple[int, int]]]:
  """All claims of a run, and which of them are of which split."""
  classes, settings = labels(config), config.claims
  found = {}
  for split, most in (
    ('train', settings.max_train),
    ('dev', settings.max_dev),
  ):
    sets = [load_set(spec, classes) for spec in settings[split]]
    for spec, claim_set in zip(settings[split], sets, strict=True):
      if not claim_set.labelled:
        raise ValueError(f'claims.{split}: {spec!r} has no labels.')
    claims_found = [claim for x in sets for claim in x.claims]
    found[split] = claims_found[:most] if most else claims_found
  spans = beam_task.splits(config, 'claims', found['train'], found['dev'])
  source = claim_rows.ClaimSource(
    found['train'] + found['dev'],
    data.tokenizer,
    qa_task.reader_layout(config, data),
  )
  return source, spans


def make_lookup(
  config: ml_collections.ConfigDict,
  data: realm_data.DataFolder,
  retriever: beams.Retriever,
  *,
  retriever_beam: int = 0,
  reader_beam: int = 0,
  train_blocks: bool = False,
) -> claim_rows.ClaimLookup:
  """What completes batches of claims; beams of 0 are the config's."""
  settings = config.lookup
  return claim_rows.ClaimLookup(
    qa_task.reader_layout(config, data),
    data.blocks,
    retriever,
    retriever_beam=retriever_beam or settings.retriever_beam,
    reader_beam=reader_beam or settings.reader_beam,
    block_layout=data.layout(config) if train_blocks else None,
  )


def make_task(
  config: ml_collections.ConfigDict,
  data: realm_data.DataFolder,
  workdir: str | os.PathLike,
  *,
  devices: Sequence[jax.Device] | None = None,
  start_builder=None,
) -> tasks.Task:
  """Binds model, loss, claims and retrieval; see `qa_task.make_task`."""
  model_cfg = model_config(config, data)
  return beam_task.bind(
    config,
    data,
    workdir,
    devices=devices,
    start_builder=start_builder,
    init=functools.partial(init_params, config=config, model_cfg=model_cfg),
    loss=functools.partial(
      claims.loss, claims.Claims(model_cfg), **config.loss
    ),
    read_source=read_source,
    make_lookup=make_lookup,
  )


def load(workdir: str | os.PathLike, data_dir: str = '') -> qa_task.Trained:
  """Loads the newest checkpoint of a run of claims.

  Args:
    workdir: of the training run.
    data_dir: where the data lie now, if they have moved or changed.

  Returns:
    The trained model.

  Raises:
    FileNotFoundError: if there is no checkpoint.
    ValueError: if it is of another kind of run, or of another tokenizer.
  """
  return qa_task.load_as(
    workdir,
    data_dir,
    part='classifier',
    trained_by='claims_train',
    make_model=lambda *given: claims.Claims(model_config(*given)),
  )
