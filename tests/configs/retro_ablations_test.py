# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Each ablation is one change, can be built, and is a row of Table 13."""

from configs import retro_ablations, retro_pretrain_small
from experiments.tables import paper_table

ROWS = list(retro_ablations.ROWS)


def _flat(tree, prefix=''):
  for name, value in tree.items():
    if isinstance(value, dict):
      yield from _flat(value, f'{prefix}{name}.')
    else:
      yield prefix + name, value


def _changed(row):
  """Fields in which a row differs from the first one."""
  base = dict(_flat(retro_pretrain_small.get_config().to_dict()))
  found = dict(_flat(retro_ablations.get_config(row).to_dict()))
  assert set(base) == set(found)
  return {name for name in base if base[name] != found[name]}


def test_rows_are_those_of_table_13():
  table = paper_table.load('retro_13')
  assert set(ROWS) == {row.ours[0].run for row in table.rows}


def test_each_row_changes_one_field():
  assert _changed('retro') == set()
  pair = {'model.copy_init'}, {'model.copy_init', 'model.share_embeddings'}
  assert _changed('shared_embeddings') == pair[0]
  assert _changed('separate_embeddings') == pair[1]
  for row in set(ROWS) - {'retro', 'shared_embeddings', 'separate_embeddings'}:
    assert len(_changed(row)) == 1, row
