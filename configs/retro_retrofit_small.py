# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETROfit of the baseline of retro_pretrain_small: 8.3 M frozen parameters, 1.9 M new.

Paper: Borgeaud et al. 2021, section 4.2 and appendix B.2: the decoder is frozen,
encoder and chunked cross-attention are new and trained alone, under the schedule
of pre-training, begun anew. There 3 % of the sequences of pre-training suffice.
After the commands of retro_pretrain_small:

  python -m experiments.retro.train --config=configs/retro_retrofit_small.py \
    --config.retrofit_from=runs/simplewiki/baseline \
    --config.data_dir=runs/simplewiki/data --workdir=runs/simplewiki/retrofit
  python -m experiments.retro.evaluate \
    --config=configs/retro_retrofit_small.py \
    --workdir=runs/simplewiki/retrofit \
    --config.evaluate.baseline_workdir=runs/simplewiki/baseline

RETRO[OFF] and the baseline are then one row, to the last digit. Beside RETRO from
scratch:

  python -m experiments.tables.retro_tables --table=retrofit --output=tables \
    --run=retrofit=runs/simplewiki/retrofit --run=scratch=runs/simplewiki/retro
"""

import ml_collections

from configs import retro_pretrain_small


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the configuration; see retro_base for `arg`."""
  return retro_pretrain_small.get_config(arg)
