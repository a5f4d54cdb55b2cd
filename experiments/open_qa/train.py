# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Train a reader of retrieved blocks, a classifier of claims, DPR or ColBERT.

  python -m experiments.open_qa.train --config=configs/open_qa_<name>.py[:arg] \
    --config.realm_from=REALM --config.questions.train="('webquestions:train',)" \
    --workdir=DIR

config.task says what is trained: 'open_qa', retriever and reader together (REALM,
ORQA); 'dpr', the retriever alone (config argument dpr); 'claims', a classifier of
claims (configs/claims_base.py). Prepares the data in <workdir>/data, unless
--config.data_dir names a data folder. Run again after a kill, it continues from the
last checkpoint bit for bit.
"""

import ml_collections

from experiments.engine import command
from experiments.open_qa import (
  colbert_task,
  dpr_task,
  settings as settings_lib,
  starts,
  task as qa_task,
)
from experiments.realm import (
  block_task,
  prepare as realm_prepare,
  train as realm_train,
)
from retrieval.store import locks


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Train until `config.num_steps`."""
  if config.task == 'dpr':
    block_task.run(dpr_task.make_task, config, workdir)
    return
  if config.task not in ('open_qa', 'colbert', 'claims'):
    raise ValueError(
      f'config.task {config.task!r}: expected open_qa, dpr, colbert or claims.'
    )
  qa_task.check_sets(config)
  if not config.data_dir:
    realm_prepare.run(config, workdir)
  if config.task == 'colbert':
    colbert_task.run(config, workdir)
    return
  realm_train.train(qa_task.make_task, starts.freeze(config), workdir)


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=locks.RUN)
