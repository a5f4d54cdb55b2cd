# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The ablations of RETRO's Table 13, each as one change of retro_pretrain_small.

The argument is the row; with _test behind it, at the size of a test. A row about layers
of the paper's 12 takes the corresponding layers of the small model: the top, the
middle, every third. The copying initialisation needs shared embeddings, so the two
rows about these start without it. Two CPU cores; figures: docs/lab-notes/retro.md.

  C=--config=configs/retro_ablations.py
  for row in retro no_query_conditioning cca_all no_retrieval; do
    python -m experiments.train $C:$row \
      --config.data_dir=runs/simplewiki/data --workdir=runs/ablations/$row
    python -m experiments.evaluate $C:$row --workdir=runs/ablations/$row
  done
  python -m experiments.tables.show --table=retro_13 --output=tables \
    --run=runs/ablations/retro --run=runs/ablations/no_query_conditioning ...
"""

from configs import retro_pretrain_small
from experiments.engine import configs

_LAYERS = 6  # of retro_pretrain_small

# Row -> changes of retro_pretrain_small.
ROWS = {
  'retro': {},
  'no_query_conditioning': {'model': {'query_conditioning': False}},
  'no_cca_positions': {'model': {'cca_positions': False}},
  'shared_embeddings': {'model': {'copy_init': False}},
  'separate_embeddings': {
    'model': {'copy_init': False, 'share_embeddings': False}
  },
  'encoder_6_layers': {'model': {'encoder_num_layers': 6}},
  'neighbors_only': {'neighbor_part': 'neighbor'},
  'continuations_only': {'neighbor_part': 'continuation'},
  'no_retrieval': {'retrieval': False},
  'train_1_neighbor': {'num_neighbors': 1},
  'train_4_neighbors': {'num_neighbors': 4},
  'cca_bottom': {'model': {'cca_layers': (1,)}},
  'cca_middle': {'model': {'cca_layers': (_LAYERS // 2,)}},
  'cca_top': {'model': {'cca_layers': (_LAYERS,)}},
  'cca_all': {'model': {'cca_layers': tuple(range(1, _LAYERS + 1))}},
  'cca_every_3_from_1': {
    'model': {'cca_layers': tuple(range(1, _LAYERS + 1, 3))}
  },
}
ARGS = (*ROWS, *(f'{row}_test' for row in ROWS))


def get_config(arg: str = 'retro') -> configs.Config:
  configs.check_arg(arg, ARGS)
  row = arg.removesuffix('_test')
  c = retro_pretrain_small.get_config('base' if arg == row else 'test')
  if arg != row:
    c.model.num_layers = _LAYERS
    c.model.cca_layers = (_LAYERS // 2, _LAYERS)
  c.update(ROWS[row])
  return c
