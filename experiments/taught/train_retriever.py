# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Teach the embedder of chunks which neighbors help a language model to predict.

  python -m experiments.taught.train_retriever \
    --config=configs/retro_retriever_quickstart.py \
    --config.retriever.language_model=MODEL --workdir=DIR

MODEL is a workdir of experiments.retro.train, or a decoder that import_decoder wrote,
and stays as it is. A RETRO reads each of the nearest chunks alone; a baseline or an
imported decoder reads it before the chunk that asks. The embedder learns to give the
chunks that lower the loss of the following chunk the larger scores
(config.retriever.objective: replug_lsr, Shi et al. 2023; emdr2, Sachan et al. 2021;
pdist, Izacard et al. 2022). Data are those of that run, or of --config.data_dir, with
dense neighbors. With --config.retriever.refresh_every=N all chunks are embedded and
searched anew every N steps, in DIR/index. A killed command continues bit for bit when
run again.

The taught embedder is the folder DIR/embedder, for

  python -m experiments.retro.prepare --config=... \
    --config.embedder.path=DIR/embedder --config.data_dir=OTHER_DATA --workdir=...

and experiments.retro.compare compares RETRO's bits per byte with both data.
"""

import pathlib
import shutil

from absl import logging
import jax
import ml_collections
import numpy as np

from experiments.engine import command, loop
from experiments.retro import settings as settings_lib
from experiments.taught import task as taught_task
from retrieval.store import locks
from retro_jax.nn import candidates

EMBEDDER = 'embedder'


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Train until `config.num_steps`, then write the embedder."""
  teacher = taught_task.load_teacher(config)
  embedder = taught_task.load_embedder(config, teacher.data)
  task = taught_task.make_task(config, teacher, embedder, workdir)
  logging.info(
    'Taught by %s on %s, writing to %s.',
    config.retriever.language_model,
    teacher.data.root,
    workdir,
  )
  state = loop.train(task, config, workdir)
  path = pathlib.Path(workdir) / EMBEDDER
  shutil.rmtree(path, ignore_errors=True)  # of fewer steps
  taught = jax.tree.map(np.asarray, state.params[candidates.EMBEDDER])
  embedder.save(path, taught)
  logging.info('The embedder is %s, for --config.embedder.path.', path)


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=locks.RUN)
