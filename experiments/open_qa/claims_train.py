# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a classifier of claims with its retriever: FEVER, HoVer and the like.

  python -m experiments.open_qa.claims_train --config=configs/claims_base.py[:arg] \
    --config.corpus.path=documents.jsonl \
    --config.claims.train="('fever:train=train.jsonl',)" \
    --config.claims.dev="('fever:dev=shared_task_dev.jsonl',)" --workdir=DIR

Prepares the data in <workdir>/data, unless --config.data_dir names some. Run again
after a kill, it continues from the last checkpoint bit for bit.
"""

import ml_collections

from experiments.engine import command
from experiments.open_qa import claims_task
from experiments.open_qa import train as qa_train


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains until `config.num_steps`."""
  claims_task.labels(config)  # before the data are prepared
  qa_train.train(config, workdir, claims_task.make_task)


if __name__ == '__main__':
  command.main(run, computes=True)
