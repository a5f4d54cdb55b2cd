# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The cost model by hand, and how it grows."""

import dataclasses

import pytest

from experiments.scale import (
  cost_model,
  job as job_lib,
  limits,
  rates as rates_lib,
)

# Round rates, so that predictions can be computed in the head.
_VALUES = {
  'read': 100.0,
  'tokenize': 10.0,
  'count': 1e-2,
  'bytes_per_token': 4.0,
  'bytes_per_wordpiece': 4.0,
  'chunk': 50.0,
  'feed': 20.0,
  'embed': 1e9,
  'exact': 1e6,
  'int8': 5e5,
  'partition_product': 1e-3,
  'partition_choice': 1e-2,
  'place': 1e-4,
  'scann_hash': 1e-6,
  'scann_assign': 1e-9,
  'scann_train': 1e-8,
  'search_query': 1e-3,
  'search_leaf': 1e-7,
  'search_row': 1e-8,
  'disk_write': 1e12,
  'disk_read': 1e12,
  'wordpieces_minilm_v5e': 1000.0,
  'wordpieces_bert_base_v5e': 100.0,
  'search_passes': 3.0,
  'realm_step': 2.0,
}
RATES = {
  name: rates_lib.Rate(
    value=value, unit='', source='measured', machine='', command=''
  )
  for name, value in _VALUES.items()
}


def _job(**fields):
  return job_lib.Job(**{'chunks': 1e6, 'hosts': 2, 'cores': 4, **fields})


def _stages(job):
  return {x.name: x for x in cost_model.stages(job, RATES)}


def test_seconds_of_each_stage_by_hand():
  found = _stages(_job(accelerators=3, chip='v5e', codes='exact'))
  text = 1e6 * 64 * 4
  assert found['chunk'].times['cores'] == pytest.approx(1e6 / 50 / 8)
  pieces = 1e6 * (64 + 2)
  assert found['embed'].times['chips'] == pytest.approx(pieces / 1000 / 6)
  assert found['embed'].times['feeding cores'] == pytest.approx(text / 20 / 8)
  flops = 2 * 500 * 2 * 1e6 * 384  # exact search, and the shards
  assert found['index'].times['cores'] == pytest.approx(flops / 1e6 / 8)
  query = max(3 * 2e6 * 384 / 197e12, 1e6 * 768 / 0.82e12 / 1024)
  assert found['neighbors'].times['chips'] == pytest.approx(1e6 * query / 6)


def test_files_are_read_by_one_process_or_twice_by_the_workers():
  text, documents = 1e6 * 64 * 4, 64_000
  one, split = (
    _stages(_job(split_reading=x))['tokenize'] for x in (False, True)
  )
  assert one.times['cores'] == pytest.approx(text / 10 / 8)
  assert one.times['driver'] == pytest.approx(text / 100)
  work = text / 10 + 2 * text / 100
  assert split.times['cores'] == pytest.approx(work / 8)
  assert split.times['driver'] == pytest.approx(documents * 1e-2)
  assert one.network == split.network  # sent, or read a second time
  from_one, from_all = (
    _stages(_job(split_reading=x, hosts=8))['tokenize'] for x in (False, True)
  )
  assert from_one.times['network'] == text / (25e9 / 8)
  assert from_one.times['network'] > from_all.times['network']


def test_int8_codes_have_a_rate_of_their_own():
  exact, int8 = (
    _stages(_job(codes=x))['neighbors'].times['cores']
    for x in ('exact', 'int8')
  )
  assert int8 == pytest.approx(2 * exact)


def test_scann_is_built_and_searched_in_every_shard():
  job = _job(shards=4, leaves_searched=5)
  leaves, rows, d = 500, 250_000, 384
  build = rows * d * 1e-6 + rows * leaves * d * 1e-9 + rows * leaves * d * 1e-8
  checked = 500 * 2 * 1e6 * d / 1e6 / 8
  found = _stages(job)
  want = 2 * build / 4 + checked  # two turns on each host
  assert found['index'].times['cores'] == pytest.approx(want)
  query = 1e-3 + leaves * d * 1e-7 + rows * 5 / leaves * d / 2 * 1e-8
  assert found['neighbors'].times['cores'] == pytest.approx(1e6 * 4 * query / 8)
  assert found['index'].ram == 12 * rows * d + rows * d // 4


@pytest.mark.parametrize('codes', ['scann', 'exact'])
def test_queries_ask_the_nearest_shards_alone(codes):
  fields = {'shards': 8, 'hosts': 4, 'codes': codes}
  every, few, one = (
    _stages(_job(shards_to_search=x, **fields))['neighbors'] for x in (0, 2, 1)
  )
  assert every.times['cores'] == pytest.approx(4 * few.times['cores'])
  sent = 1e6 * (2 * 384 * 4 + 2 * 128 * 12)
  assert few.network - one.network == pytest.approx(sent / 2)
  assert every.network - few.network == pytest.approx(
    1e6 * (2 * 384 * 4 + 6 * 128 * 12)
  )
  assert _job(shards_to_search=9, **fields).shards_asked == 8


def test_all_cores_find_the_nearest_shards_and_one_places_the_rows():
  fields = {'shards': 8, 'hosts': 4, 'codes': 'exact'}
  job = _job(shards_to_search=2, **fields)
  every, few = _stages(_job(**fields))['index'], _stages(job)['index']
  assert 'driver' not in every.times
  nearest = 1e6 * (8 * 384 * 1e-3 + 8 * 1e-2)
  answers = 500 * 2 * 1e6 * 384 / 1e6  # of all shards
  for stage, work in (
    (every, 2 * answers),  # with exact search
    (few, 2 * answers + 2 * answers / 4 + nearest),
  ):
    assert stage.times['cores'] == pytest.approx(work / job.all_cores)
  assert few.times['driver'] == pytest.approx(1e6 * 1e-4)


def test_bytes_of_an_index_by_hand():
  fields = {'shards': 8, 'hosts': 4}
  vectors = 1e6 * 768
  every = _stages(_job(codes='exact', **fields))['index']
  # They are checked, searched exactly, and searched as shards.
  assert (every.network, every.disk) == (3 * vectors, 0)
  codes = 1e6 * (384 + 4)
  every = _stages(_job(codes='int8', **fields))['index']
  # Vectors make codes, too; these are written, answer, and are hashed.
  assert (every.network, every.disk) == (3 * vectors + 3 * codes, codes)
  few = _stages(_job(codes='int8', shards_to_search=2, **fields))['index']
  # The codes answer twice more. Each row has 8 nearest shards of 2 bytes, which are
  # written and read, and its own shard, which all 8 shards read.
  more = 2 * codes + 1e6 * (8 + 2 * 16 + 9 * 2)
  assert few.disk - every.disk == 1e6 * 8
  assert few.network - every.network == pytest.approx(more)


def test_features_count_rows_in_the_leaves_searched():
  assert cost_model.search_features(1000, 7, 10, 2) == [1, 70, 200 * 4]
  assert cost_model.build_features(1000, 7, 10, 50) == [7000, 70_000, 3500]


@pytest.mark.parametrize(
  ('codes', 'size'), [('exact', 768), ('int8', 388), ('scann', 96)]
)
def test_memory_and_disk_by_the_formats(codes, size):
  job = _job(codes=codes, tokens_per_document=64_000.0)
  found = _stages(job)
  counted = 1000 * cost_model.COUNTED_BYTES
  assert found['neighbors'].ram == pytest.approx(1e6 * size / 2 + counted)
  assert found['index'].disk == (0 if codes == 'exact' else 1e6 * size)
  assert found['tokenize'].disk == 64e6 * 4 + 1000 * 80
  assert found['chunk'].disk == 28e6
  assert found['embed'].disk == 1e6 * 384 * 2
  assert found['neighbors'].disk == 1e6 * 10 * 12


def test_hosts_beyond_the_shards_hold_copies():
  job = _job(shards=1, hosts=4, tokens_per_document=64e6)
  assert _stages(job)['neighbors'].ram == pytest.approx(96e6, rel=1e-6)


def test_vectors_beyond_memory_are_read_from_disk():
  assert cost_model.rescoring_bytes(_job()) == 0
  half = 1e6 * (96 + 384) / 2 / 2**30  # codes and half of the vectors
  read = cost_model.rescoring_bytes(_job(ram_gib=half))
  assert read == pytest.approx(0.5 * 1e6 * 256 * 4096)
  assert cost_model.rescoring_bytes(_job(ram_gib=half, codes='exact')) == 0


def test_one_host_has_no_network_and_more_hosts_are_faster():
  one, many = (_job(hosts=x, codes='exact') for x in (1, 10))
  for name, stage in _stages(one).items():
    assert stage.network == 0 and 'network' not in stage.times
    more = _stages(many)[name]
    assert more.times['cores'] == pytest.approx(stage.times['cores'] / 10)
    assert more.network > 0


def test_shards_fit_the_memory_that_builds_them():
  job = _job(chunks=1e9, hosts=3, ram_gib=64)
  assert job.num_shards % 3 == 0
  assert job.scann_bytes(1e9 / job.num_shards)[0] < job.ram
  fewer = 1e9 / (job.num_shards - 3)
  assert job.scann_bytes(fewer)[0] > job.ram
  assert dataclasses.replace(job, codes='int8').num_shards == 3


def test_what_breaks_stops_before_it_slows():
  job = _job(chunks=1e9, ram_gib=4, refresh_every=10)
  refreshed = cost_model.refresh(job, RATES)
  stages = cost_model.stages(job, RATES)
  found = limits.find(job, RATES, stages, refreshed)
  by_what = {x.what.split(':')[0]: x for x in found}
  codes = by_what['scann codes in the memory of all hosts']
  assert codes.stops and codes.ratio == pytest.approx(96e9 / (8 * 2**30))
  assert codes.change.startswith('23 hosts')
  assert by_what['REALM'].breaks and not by_what['REALM'].stops
  kinds = [(not x.breaks, not x.stops) for x in found]
  assert kinds == sorted(kinds) and len(set(kinds)) == 3
  lost = [x.needed - x.there for x in found if x.breaks and not x.stops]
  assert len(lost) > 1 and lost == sorted(lost, reverse=True)
  needed = by_what['files in the folder of the token store']
  assert needed.needed == 10 * 62_500


def test_a_slow_reader_is_named_with_the_readers_that_help():
  rates = RATES | {'read': dataclasses.replace(RATES['read'], value=8.0)}
  slow = _slow_reader(_job(split_reading=False), rates)
  assert slow.ratio == pytest.approx(10)
  assert 'uncompressed JSON lines' in slow.change
  assert '--readers=10,' in slow.change
  rates = RATES | {'count': dataclasses.replace(RATES['count'], value=120.0)}
  slow = _slow_reader(_job(), rates)
  assert slow.ratio == pytest.approx(2.0)
  assert slow.change.startswith('--readers=2,')


def _slow_reader(job, rates):
  found = limits.find(job, rates, cost_model.stages(job, rates), [])
  return next(x for x in found if x.what.startswith('tokenize: driver'))
