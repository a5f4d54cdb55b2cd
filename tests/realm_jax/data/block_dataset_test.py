# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of blocks, here of the inverse cloze task: splits, processes, resume."""

import grain
import numpy as np
import pytest

from realm_jax.data import block_dataset, examples
from realm_jax.objectives import ict
from tests import streams
from tests.retrieval.text import tiny_blocks

Q, T, VALID = 16, 32, 0.3


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  made = tiny_blocks.make(root, np.random.default_rng(0), num_documents=25)
  made.layout = examples.Layout(
    query_length=Q, block_length=T, **made.special_ids
  )
  hashes = made.blocks.all_hashes().tolist()
  assert len({*hashes}) == len(hashes) >= 30
  made.by_hash = {x: i for i, x in enumerate(hashes)}
  return made


def _dataset(data, mask_rate=ict.MASK_RATE, **fields):
  def read(ids, rng):
    return ict.read_rows(data.layout, data.blocks, ids, rng, mask_rate)

  fields = {'split': 'all', 'valid_fraction': VALID, 'batch_size': 4} | fields
  split = fields.pop('split')
  source = block_dataset.split_blocks(
    data.blocks, split, fields.pop('valid_fraction')
  )
  return block_dataset.make_dataset(
    read, source, endless=split == 'train', **fields
  )


def _blocks(data, batch):
  """Ids of the blocks of a batch."""
  hashes = np.ascontiguousarray(batch['block_hash']).view(np.uint64)
  return [data.by_hash[x] for x in hashes[:, 0].tolist()]


def test_splits_are_of_documents(data):
  train, valid, both = (
    block_dataset.split_blocks(data.blocks, split, VALID)
    for split in ('train', 'valid', 'all')
  )
  documents = [{*data.blocks.documents(x.numbers)} for x in (train, valid)]
  assert all(documents) and not documents[0] & documents[1]
  assert sorted([*train.numbers, *valid.numbers]) == both.numbers.tolist()
  assert both.numbers.tolist() == [*range(data.blocks.num_blocks)]
  assert [valid[i] for i in range(len(valid))] == valid.numbers.tolist()
  assert len({repr(x) for x in (train, valid, both)}) == 3


def test_one_pass_takes_every_block_once_and_the_other_has_no_end(data):
  n = data.blocks.num_blocks
  seen = [i for b in streams.take(_dataset(data)) for i in _blocks(data, b)]
  assert len(seen) == n // 4 * 4 == len({*seen}) and seen != sorted(seen)
  source = block_dataset.split_blocks(data.blocks, 'train', VALID)
  per_pass = len(source) // 2
  batches = streams.take(
    _dataset(data, split='train', batch_size=2), 2 * per_pass
  )
  passes = [
    [i for b in batches[at : at + per_pass] for i in _blocks(data, b)]
    for at in (0, per_pass)
  ]
  assert {*passes[0]} <= {*source.numbers} and passes[0] != passes[1]
  assert all(len({*x}) >= len(x) - 1 for x in passes)


def test_a_saved_position_continues_with_the_same_batches(data):
  grain.experimental.assert_equal_output_after_checkpoint(_dataset(data))
  streams.check_position(lambda: _dataset(data, split='train', seed=3), 9)
  (first,), (other,) = (
    streams.take(_dataset(data, seed=seed), 1) for seed in (0, 3)
  )
  assert (first['query_ids'] != other['query_ids']).any()


def _parts(data, **fields):
  """Batches of both of two processes."""
  return [
    streams.take(_dataset(data, process_index=i, process_count=2, **fields))
    for i in range(2)
  ]


def test_processes_share_a_batch(data):
  for batch, *halves in zip(
    streams.take(_dataset(data)), *_parts(data), strict=True
  ):
    found = [_blocks(data, half) for half in halves]
    assert [len(half) for half in found] == [2, 2]
    assert {*found[0], *found[1]} == {*_blocks(data, batch)}


@pytest.mark.parametrize('batch_size', [2, 4, 6, 10])
def test_processes_have_equally_many_batches(data, batch_size):
  """Else one would wait for ever for the others to validate."""
  for split in ('valid', 'all'):
    n = len(block_dataset.split_blocks(data.blocks, split, VALID))
    parts = _parts(data, split=split, batch_size=batch_size)
    assert [len(x) for x in parts] == [n // batch_size] * 2
