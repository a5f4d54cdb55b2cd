# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Build the index versions of a running training from its snapshots.

  python -m experiments.refresh_worker --config=configs/<name>.py:async \
    --config.data_dir=DATA --workdir=DIR

The trainer runs with --config.refresh.schedule=async
--config.refresh.builder=external and the same workdir, which both hosts see.
The newest snapshot becomes an index version. The command ends with the training; a
killed one continues at the first missing shard when run again.
"""

from experiments.engine import command

if __name__ == '__main__':
  command.main('refresh_worker', writes='index')
