# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A run of a tiny RETRO on the data of tests.retro_jax.tiny_data, not trained."""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp

from experiments.engine import checkpoint_writer, loop, metric_writer, program
from experiments.retro import task as retro_task
from retrieval.nn import sharding
from retro_jax.data import folder as retro_data
from tests.experiments.retro import tiny_config


def make_run(
  workdir: pathlib.Path, root: pathlib.Path, arg: str = 'test', **model
) -> pathlib.Path:
  """Saves step 1 of a run, with parameters at random.

  Args:
    workdir: of the run.
    root: data folder, see `tiny_data.make`.
    arg: 'test' for a RETRO, 'baseline_test' for its baseline.
    **model: fields of config.model.

  Returns:
    The workdir.
  """
  changes = {f'model.{name}': value for name, value in model.items()}
  config = tiny_config.tiny(arg=arg, data_dir=str(root), **changes)
  task = retro_task.make_task(config, retro_data.DataFolder(root))
  key = jax.random.key(0)
  params = jax.jit(lambda key: sharding.unbox(task.init(key)))(key)
  batches = iter(task.dataset('train'))
  with checkpoint_writer.Checkpoints(
    str(workdir),
    config=dataclasses.asdict(config),
    pipeline={},
    index_version=task.index_version,
    fingerprints=task.fingerprints,
  ) as saver:
    saver.save(1, program.TrainState(jnp.int32(1), params, {}, key), batches)
  batches.close()
  return workdir


def train(config, root: pathlib.Path, workdir: pathlib.Path, devices=None):
  """Train on a data folder, by default on one device; return state and metrics."""
  task = retro_task.make_task(config, retro_data.DataFolder(root))
  devices = devices or jax.devices()[:1]
  state = loop.train(task, config, str(workdir), devices=devices)
  return state, [x for x in metric_writer.read(workdir) if 'loss' in x]
