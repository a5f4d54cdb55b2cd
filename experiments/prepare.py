# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Prepare the data of the model that config.task names.

  python -m experiments.prepare --config=configs/<name>.py --workdir=DIR

Every unfinished stage runs; --config.prepare.stages=blocks,spans runs these stages
only. A killed command continues at the first missing shard when run again.
"""

from experiments.engine import command

if __name__ == '__main__':
  command.main('prepare')
