# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches with retrieval in the loop, and targets that the maskers choose."""

import dataclasses
import threading
import types

from hypothesis import given, strategies as st
import numpy as np
import pytest

from realm_jax.data import examples, pipeline, sources
from retrieval.text import salient, taggers
from tests import streams
from tests.retrieval.text import tiny_blocks

K = 4
LENGTHS = st.integers(1, 120)
SEEDS = st.integers(0, 2**32)


class Ring:
  """A snapshot that finds, for any query, blocks in a fixed rotation."""

  def __init__(self, step, num_blocks):
    self.step, self._num_blocks = step, num_blocks

  def retrieve(self, query_ids, query_mask, k):
    first = query_ids.sum(axis=1, where=query_mask)[:, None]
    return (first + np.arange(k)) % self._num_blocks


class Schedule:
  """Another snapshot every two batches; the third one is not there yet."""

  def __init__(self, num_blocks):
    self._num_blocks = num_blocks
    self.published = threading.Event()
    self.asked = []

  def serving(self, batch_index):
    self.asked.append(batch_index)
    period = 9 if batch_index is None else batch_index // 2
    if period == 2:
      assert self.published.wait(60)
    return Ring(2 * period, self._num_blocks)


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  made = tiny_blocks.make(root, np.random.default_rng(0), num_documents=40)
  made.spans = salient.build_salient_store(
    root / 'spans', made.blocks, taggers.TaggerConfig(kind='dates')
  )
  made.layout = examples.Layout(
    query_length=24,
    block_length=32,
    num_candidates=K,
    max_targets=3,
    **made.special_ids,
  )
  return made


def _source(data, masker='salient', **fields):
  config = sources.SourceConfig(masker=masker, split='all', **fields)
  spans = data.spans if masker == 'salient' else None
  return sources.MaskedSentences(data.blocks, data.layout, config, spans)


def _dataset(
  data, schedule=None, source=None, candidates='retrieved', **fields
):
  schedule = schedule or Schedule(data.blocks.num_blocks)
  schedule.published.set()
  retrieval = pipeline.Retrieval(data.blocks, data.layout, schedule, candidates)
  fields = {'batch_size': 4, 'train': True} | fields
  source = source or _source(data)
  return pipeline.make_dataset(source, retrieval, **fields)


@pytest.mark.parametrize('masker', ['salient', 'uniform', 'span'])
def test_an_example_is_one_sentence_of_its_block(data, masker):
  source = _source(data, masker)
  rng = np.random.default_rng(0)
  for i in range(len(source)):
    row = source.example(i, rng)
    count = int(row['sentence_count'])
    sentence = row['sentence'][:count].copy()
    at = row['mlm_positions'][row['mlm_mask']] - 1
    assert len(at) and (sentence[at] == data.layout.mask_id).all()
    if (sentence == data.layout.mask_id).sum() > len(at):
      continue  # more were masked than are predicted
    sentence[at] = row['mlm_targets'][row['mlm_mask']]
    ids = np.asarray(data.blocks.sentences(int(row['origin'])))
    tokens, counts = data.blocks.gather_sentences(ids, count)
    same = (tokens == sentence).all(axis=1) & (counts == count)
    assert same.any()


def test_salient_masks_are_whole_spans(data):
  source = _source(data)
  rng = np.random.default_rng(0)
  found = {
    data.tokenizer.decode(row['mlm_targets'][row['mlm_mask']])
    for row in (source.example(i, rng) for i in range(len(source)))
  }
  assert found == {'1066', '1999'}


def test_what_cannot_be_masked_is_counted(data):
  short = types.SimpleNamespace(**vars(data))
  short.layout = examples.Layout(query_length=6, block_length=32)
  source = _source(short)
  assert source.skipped['beyond the query length'] > 0
  spans = data.spans
  relative = (
    spans.token_limit[:] - data.blocks.sentence_tokens[spans.sentence[:]][:, 0]
  )
  assert source.skipped['beyond the query length'] == (relative > 4).sum()
  uniform = sources.MaskedSentences(
    data.blocks, data.layout, sources.SourceConfig(masker='uniform')
  )
  assert uniform.skipped == {'short sentence': 0}
  with pytest.raises(ValueError, match='nothing to mask'):
    config = sources.SourceConfig(masker='span', split='valid')
    sources.MaskedSentences(data.blocks, data.layout, config)


def test_batches_hold_the_best_blocks_after_null(data):
  n = data.blocks.num_blocks
  hashes = data.blocks.all_hashes()
  for batch in streams.take(_dataset(data), 6):
    ids = batch['candidate_block_ids']
    assert (ids[:, 0] == examples.NULL).all()
    first = batch['query_ids'].sum(axis=1, where=batch['query_mask'])
    for row, start, origin in zip(ids, first, batch['origin'], strict=True):
      order = [
        b for b in (start + np.arange(n)) % n if hashes[b] != hashes[origin]
      ]
      assert row[1:].tolist() == order[: K - 1]
    assert batch['candidate_valid'].all()
    at = batch['mlm_positions'][:, None].repeat(K, axis=1)
    masked = np.take_along_axis(batch['joint_ids'], at, axis=2)
    mask = batch['mlm_mask'][:, None].repeat(K, axis=1)
    assert (masked[mask] == data.layout.mask_id).all()


def test_copies_of_the_origin_are_excluded_too(tmp_path):
  text = 'The mill stood in 1066.'
  rows = [{'id': str(i), 'title': 'T', 'text': text} for i in range(5)]
  rows += [
    {'id': f'x{i}', 'title': 'T', 'text': f'In {1500 + i} was Rome.'}
    for i in range(3)
  ]
  made = tiny_blocks.make(tmp_path, None, given=rows)
  made.spans = salient.build_salient_store(
    tmp_path / 'spans', made.blocks, taggers.TaggerConfig(kind='dates')
  )
  made.layout = examples.Layout(
    query_length=24, block_length=32, num_candidates=3
  )
  for batch in streams.take(_dataset(made, train=False), 2):
    for row, origin in zip(
      batch['candidate_block_ids'], batch['origin'], strict=True
    ):
      assert not (origin < 5 and (row[1:] < 5).any()) and (row[1:] >= 0).all()


def test_reading_ahead_waits_for_the_index(data):
  schedule = Schedule(data.blocks.num_blocks)
  dataset = _dataset(data, schedule)
  schedule.published.clear()
  iterator = iter(dataset)
  got = [next(iterator) for _ in range(4)]
  assert 4 in schedule.asked or not schedule.published.wait(0.5)
  schedule.published.set()
  got.append(next(iterator))
  assert [int(batch['index_step'][0]) for batch in got] == [0, 0, 2, 2, 4]
  iterator.close()


def _sources(data):
  """Sources of which one has an odd number of rows."""
  layout = dataclasses.replace(data.layout, query_length=12)
  short = types.SimpleNamespace(**vars(data) | {'layout': layout})
  found = [_source(data), _source(data, 'uniform'), _source(short)]
  assert any(len(source) % 2 for source in found)
  return found


@pytest.mark.parametrize('train', [False, True])
def test_processes_share_a_batch(data, train):
  """Masks and all; in training pass after pass, though the rows are odd."""
  source = next(source for source in _sources(data) if len(source) % 2)
  count = 2 * len(source) // 4 if train else 3
  fields = {'source': source, 'train': train, 'process_count': 2}
  whole = streams.take(_dataset(data, source=source, train=train), count)
  parts = [
    streams.take(_dataset(data, process_index=i, **fields), count)
    for i in range(2)
  ]
  for batch, *halves in zip(whole, *parts, strict=True):
    assert [len(half['origin']) for half in halves] == [2, 2]
    found = np.concatenate([half['query_ids'] for half in halves])
    assert sorted(found.tolist()) == sorted(batch['query_ids'].tolist())


def test_processes_have_equally_many_batches(data):
  """Else one would wait for ever for the others to validate."""
  for source in _sources(data):
    counts = []
    for i in range(2):
      fields = {'process_index': i, 'process_count': 2, 'batch_size': 2}
      batches = _dataset(data, source=source, train=False, **fields)
      counts.append(len([*iter(batches)]))
    assert counts == [len(source) // 2] * 2


def test_random_blocks_are_a_control(data):
  first, again = (
    streams.take(_dataset(data, candidates='random'), 3) for _ in '12'
  )
  for a, b in zip(first, again, strict=True):
    np.testing.assert_array_equal(
      a['candidate_block_ids'], b['candidate_block_ids']
    )
  ids = np.concatenate([batch['candidate_block_ids'][:, 1:] for batch in first])
  assert len(np.unique(ids)) > 12 and (ids >= 0).all()


@given(LENGTHS, SEEDS)
def test_uniform_takes_fifteen_percent(length, seed):
  chosen = sources.mask_uniformly(length, np.random.default_rng(seed))
  assert len(chosen) == max(1, round(0.15 * length))
  assert (np.diff(chosen) > 0).all() and 0 <= chosen[0] <= chosen[-1] < length


@given(LENGTHS, SEEDS)
def test_spans_are_whole_words_within_the_budget(length, seed):
  rng = np.random.default_rng(seed)
  continues = rng.random(length) < 0.3
  continues[0] = False
  chosen = sources.mask_spans(length, rng, continues)
  assert (np.diff(chosen) > 0).all() and 0 <= chosen[0] <= chosen[-1] < length
  taken = np.isin(np.arange(length), chosen)
  # No word is cut: a continuation is masked exactly when what it continues is.
  assert (taken[1:] == taken[:-1])[continues[1:]].all()
  words = ~continues & taken
  assert words.sum() <= sources.budget(length) <= len(chosen)
