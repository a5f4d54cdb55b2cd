# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Run a model from text to its results in one command.

  python -m experiments.quickstart --config=configs/realm_pretrain_quickstart.py \
    --workdir=runs/quickstart/realm

A killed command continues when run again.
"""

from experiments.engine import command

if __name__ == '__main__':
  command.main('quickstart')
