# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Choose the weight of words in hybrid retrieval.

  python -m experiments.tune_hybrid --config=configs/<name>.py --workdir=DIR

Prints a table and writes DIR/tune_hybrid.json. See experiments/<room>/tune_hybrid.py.
"""

from experiments.engine import command

if __name__ == '__main__':
  command.main('tune_hybrid')
