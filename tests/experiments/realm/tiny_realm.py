# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A REALM of one narrow layer on tiny blocks, and a script that trains it.

  python tiny_realm.py DATA WORKDIR [--field=value ...]

Fields override `get_config`; beside them --die_at=N (kill -9 right after step N's
save began), --first=N (only the first N devices train) and --pause_sec=X (a pause after
each step). --coordinator=ADDRESS --processes=N --process=I is one of several processes.
"""

import ast
import os
import pathlib
import signal
import sys
import time

from absl import logging
import jax
import numpy as np

from experiments.engine import checkpoint_writer, configs
from experiments.realm import config as config_lib, refresh, task as realm_task
from realm_jax.data import folder as realm_data
from retrieval.text import salient, taggers
from tests.retrieval.text import tiny_blocks


def make_data(root: pathlib.Path, metadata: str = '') -> pathlib.Path:
  """Writes a data folder: forty documents, their years as salient spans."""
  rng = np.random.default_rng(0)
  made = tiny_blocks.make(root, rng, num_documents=40, metadata=metadata)
  salient.build_salient_store(
    root / 'spans', made.blocks, taggers.TaggerConfig(kind='dates')
  )
  return root


def get_config(data_dir: str, **fields) -> config_lib.Config:
  """Eight steps of a tiny model; `fields` override, dots name sections."""
  c = configs.of(config_lib.Config, num_steps=8)
  config_lib.set_variant(c, 'test')
  tiny(c, data_dir)
  c.layout.query_length = 24
  c.ict.query_length = 24
  c.num_steps = 8
  c.refresh.every = 3
  c.checkpoint_every = 4
  c.eval_every = 4
  c.update(keep_checkpoints=4)
  c.optimizer.learning_rate = 1e-2
  config = configs.build(config_lib.Config, c)
  return configs.replaced(config, **fields)


def tiny(c, data_dir: str) -> None:
  """Sets data and models of any config of blocks."""
  root = pathlib.Path(data_dir)
  c.data_dir = str(data_dir)
  # What `make_data` has built, so that preparing finds it done.
  c.corpus.kind = 'jsonl'
  c.corpus.path = str(root / 'documents.jsonl')
  c.corpus.max_documents = 0
  c.tokens.documents_per_shard = 7
  c.tokenizer.path = str(root / 'tokenizer')
  c.blocks.max_length = 32
  for bert in (c.embedder, c.encoder):
    bert.update(num_layers=1, d_model=16, d_ff=32, max_length=64)
  c.model.update(
    pooling='mean',
    projection_size=8,
    projection_norm_scale=0.2,
    projection_dropout_rate=0.0,
  )


def data_of(config) -> realm_data.DataFolder:
  """The data folder of a config."""
  return realm_data.DataFolder(pathlib.Path(config.data_dir))


def _die_at(step_to_die_at: int) -> None:
  save = checkpoint_writer.Checkpoints.save

  def save_and_die(self, step, *arguments):
    save(self, step, *arguments)
    if step >= step_to_die_at:
      os.kill(os.getpid(), signal.SIGKILL)

  checkpoint_writer.Checkpoints.save = save_and_die


def _pause(seconds: float) -> None:
  after_step = refresh.Refresher.after_step

  def after_step_and_pause(self, step, params):
    after_step(self, step, params)
    time.sleep(seconds)

  refresh.Refresher.after_step = after_step_and_pause


def main() -> None:
  """Parses the arguments and trains."""
  data, workdir, *rest = sys.argv[1:]
  fields = dict(x.removeprefix('--').partition('=')[::2] for x in rest)
  if die_at := fields.pop('die_at', None):
    _die_at(int(die_at))
  if pause := fields.pop('pause_sec', None):
    _pause(float(pause))
  first = fields.pop('first', None)

  def parse(text):
    try:
      return ast.literal_eval(text)
    except (ValueError, SyntaxError):
      return text

  logging.set_verbosity(logging.INFO)
  jax.config.update('jax_platforms', 'cpu')
  if address := fields.pop('coordinator', None):
    count, index = int(fields.pop('processes')), int(fields.pop('process'))
    jax.distributed.initialize(address, count, index)
  if first:
    chosen = jax.devices()[: int(first)]
    jax.devices = jax.local_devices = lambda: chosen
  values = {name: parse(text) for name, text in fields.items()}
  realm_task.train(get_config(data, **values), workdir)
  if address:
    jax.distributed.shutdown()
    os._exit(0)  # as a command ends: a thread may still build


if __name__ == '__main__':
  main()
