# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Train the model that config.task names.

  python -m experiments.train --config=configs/<name>.py[:arg] \
    --config.data_dir=DATA --workdir=DIR

A killed command continues from its last checkpoint, bit for bit, when run again.
"""

from experiments.engine import command
from retrieval.store import locks

if __name__ == '__main__':
  command.main('train', writes=locks.RUN)
