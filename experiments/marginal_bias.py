# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compare REALM's gradient over few documents with that over all of them.

  python -m experiments.marginal_bias --config=configs/<name>.py --workdir=DIR

--config.marginal_bias.* are its settings. Writes DIR/marginal_bias.json after each
checkpoint, and marginal_bias.png.
"""

from experiments.engine import command

if __name__ == '__main__':
  command.main('marginal_bias', writes='marginal_bias.json')
