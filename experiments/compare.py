# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compare trained models, with their seeds, on the same data.

  python -m experiments.compare --config=configs/<name>.py --workdir=DIR \
    --config.data_dir=DATA --config.compare.questions="('questions.jsonl',)" \
    --row=ict=RUN --row=ict=SECOND_SEED --row=realm=RUN,step=best

Intervals are those of a paired bootstrap against the first row. Writes DIR/compare.json,
which experiments.tables.claims reads.
"""

from experiments.engine import command, evaluations

if __name__ == '__main__':
  command.main(
    'compare', define_flags=evaluations.define_flag, writes='compare.json'
  )
