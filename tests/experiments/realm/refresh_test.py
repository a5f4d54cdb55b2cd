# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules of index refreshes, with a builder that needs no model."""

import concurrent.futures
import dataclasses

from absl import logging
import numpy as np
import pytest

from experiments.realm import refresh, refresh_worker
from realm_jax.nn import config as config_lib
from realm_jax.trained import index_builder
from retrieval.index import index_versions, snapshots
from retrieval.nn import bert
from tests.retrieval.index import index_versions_test

_BERT = bert.BertConfig(vocab_size=9, d_model=4, d_ff=4, num_heads=1)
MODEL = config_lib.RealmConfig(embedder=_BERT, encoder=_BERT)

blocks = index_versions_test.blocks


@dataclasses.dataclass
class FakeBuilder:
  """Publishes versions whose vectors depend on block ids alone."""

  folder: index_versions.VersionFolder
  blocks: object
  model: config_lib.RealmConfig = MODEL
  fail_at: tuple = ()

  @property
  def data(self):
    return self

  built: list = dataclasses.field(default_factory=list)

  def build(self, step, params, progress=None):
    if step in self.fail_at:
      raise ValueError('Database row 0 holds NaN or infinity.')
    self.built.append(step)
    return self.folder.build(
      step,
      params,
      self.blocks,
      index_versions_test.embed,
      index_versions_test.CONFIG,
    )


@pytest.fixture
def warnings(monkeypatch):
  lines = []
  monkeypatch.setattr(
    logging, 'warning', lambda text, *args: lines.append(text % args)
  )
  return lines


def params(step):
  return {'embedder': {'w': np.full(3, step, np.float32)}, 'encoder': {}}


def opened(tmp_path, blocks, **fields):
  builder = FakeBuilder(index_versions.VersionFolder(tmp_path), blocks)
  settings = refresh.RefreshConfig(**fields)
  return builder, refresh.Refresher(settings, builder)


def steps(folder):
  return [index_versions.step_of(name) for name in folder.names()]


def test_sync_serves_each_batch_by_its_number(tmp_path, blocks):
  builder, refresher = opened(tmp_path, blocks, schedule='sync', every=3)
  refresher.start(0, params(0), '')
  served = []
  for step in range(1, 10):
    served.append(refresher.serving(step - 1).step)
    refresher.after_step(step, params(step))
  assert served == [0, 0, 0, 3, 3, 3, 6, 6, 6] and builder.built == [0, 3, 6, 9]
  assert refresher.index_version().startswith('0000000009-')
  assert steps(builder.folder) == [6, 9]
  refresher.close()


def test_stale_and_frozen(tmp_path, blocks):
  stale, refresher = opened(tmp_path / 's', blocks, every=6)
  frozen, other = opened(tmp_path / 'f', blocks, schedule='frozen', every=2)
  for one in (refresher, other):
    one.start(0, params(0), '')
    for step in range(1, 8):
      one.after_step(step, params(step))
    one.close()
  assert stale.built == [0, 6] and frozen.built == [0]
  assert refresher.config.identity == 'sync 6'
  assert other.config.identity == 'frozen'


def test_a_batch_of_later_waits_for_its_index_or_the_end(tmp_path, blocks):
  _, refresher = opened(tmp_path, blocks, schedule='sync', every=2)
  refresher.start(0, params(0), '')
  with concurrent.futures.ThreadPoolExecutor() as threads:
    waiting, late = (threads.submit(refresher.serving, x) for x in (2, 99))
    with pytest.raises(TimeoutError):
      waiting.result(0.2)
    refresher.after_step(1, params(1))
    refresher.after_step(2, params(2))
    assert waiting.result(30).step == 2
    refresher.close()
    with pytest.raises(refresh.Closed):
      late.result(30)


def test_a_resumed_run_opens_the_version_it_saved(tmp_path, blocks):
  builder, first = opened(tmp_path, blocks, every=1)
  first.start(0, params(0), '')
  saved = {}
  for step in range(1, 9):
    first.after_step(step, params(step))
    if step % 3 == 0:
      saved[step] = first.version_to_save()
  first.close()
  # Indices that checkpoints name outlive newer ones.
  assert steps(builder.folder) == [3, 6, 7, 8]
  again, second = opened(tmp_path, blocks, every=1)
  second.start(3, params(-1), saved[3])
  assert again.built == [] and second.index_version() == saved[3]
  second.close()
  _, third = opened(tmp_path, blocks, every=1)
  with pytest.raises(FileNotFoundError, match='cannot be continued exactly'):
    third.start(2, params(2), '0000000002-' + '0' * 12)
  third.close()


def test_vectors_that_are_not_finite_leave_the_last_good_index(
  tmp_path, blocks, warnings
):
  builder, refresher = opened(tmp_path, blocks, every=2)
  builder.fail_at = (2,)
  refresher.start(0, params(0), '')
  for step in range(1, 5):
    refresher.after_step(step, params(step))
    assert refresher.serving(step).step == (0 if step < 4 else 4)
  metrics = refresher.metrics(5, {'index_step': np.asarray([4])})
  assert metrics.pop('index_wait_sec') > 0
  assert metrics == {'index_age_steps': 0.0, 'index_failures': 1.0}
  assert 'no new index (Database row 0 holds NaN' in warnings[0]
  refresher.close()


def test_async_picks_up_what_a_worker_has_built(tmp_path, blocks, warnings):
  builder, refresher = opened(
    tmp_path, blocks, schedule='async', builder='external', every=2
  )
  refresher.start(0, params(0), '')
  for step in range(1, 10):
    refresher.after_step(step, params(step))
    assert refresher.serving(step).step == 0  # training goes on meanwhile
  assert 'index is 7 steps old, refresh.every is 2' in warnings[0]
  newest = refresh_worker.newest_snapshot(tmp_path)
  assert int(newest.stem) == 8
  builder.build(8, snapshots.read(newest))
  builder.build(90, params(90))  # of a killed run, which never came back to it
  refresher.after_step(10, params(10))
  assert refresher.serving(None).step == 8
  refresher.close()


class FakeProcess:
  """A child whose life the test decides about."""

  started: list = []

  def __init__(self):
    self.exitcode = None
    self.started.append(self)

  def is_alive(self):
    return self.exitcode is None

  def terminate(self):
    self.exitcode = -15

  def join(self, timeout):
    pass


def test_a_builder_that_dies_is_reported_and_started_again(
  tmp_path, blocks, warnings
):
  FakeProcess.started = []
  builder = FakeBuilder(index_versions.VersionFolder(tmp_path), blocks)
  settings = refresh.RefreshConfig(schedule='async', every=2)
  refresher = refresh.Refresher(settings, builder, FakeProcess)
  refresher.start(0, params(0), '')
  for step in range(1, 6):
    refresher.after_step(step, params(step))
  newest = refresh_worker.newest_snapshot(tmp_path)
  found = snapshots.read(newest)
  assert int(newest.stem) == 4 and found['embedder']['w'].tolist() == [4.0] * 3
  assert 'encoder' not in found
  FakeProcess.started[0].exitcode = -9
  refresher.after_step(6, params(6))
  assert 'the builder died, exit code -9' in warnings[0]
  assert [x.exitcode for x in FakeProcess.started] == [-9]
  refresher.after_step(8, params(8))
  assert [x.exitcode for x in FakeProcess.started] == [-9, None]
  name = index_versions.version_name(4, params(4), blocks)
  index_builder.write_failure(tmp_path, name, 'not finite')
  refresher.after_step(9, params(9))
  refresher.after_step(10, params(10))
  assert ['not finite' in line for line in warnings].count(True) == 1
  refresher.close()
  assert FakeProcess.started[1].exitcode == -15


@pytest.mark.parametrize('schedule', ['async', 'sync'])
def test_what_a_killed_run_left_of_later_steps_is_forgotten(
  tmp_path, blocks, schedule
):
  builder = FakeBuilder(index_versions.VersionFolder(tmp_path), blocks)
  names = {x: builder.build(x, params(x)) for x in (0, 4, 8)}
  for step in (4, 8, 10):
    refresh_worker.write_snapshot(tmp_path, step, params(step))
  index_builder.write_failure(tmp_path, names[4], 'of before')
  settings = refresh.RefreshConfig(schedule=schedule, every=2)
  refresher = refresh.Refresher(settings, builder, FakeProcess)
  refresher.start(8, params(8), names[4])
  assert refresh_worker.newest_snapshot(tmp_path).stem == f'{8:010d}'
  assert not index_builder.read_failures(tmp_path)
  refresher.close()
  other = refresh.Refresher(settings, builder, FakeProcess)
  other.start(6, params(6), names[4])
  # The builder of the new run does not wait until step 8 has passed.
  assert refresh_worker.newest_snapshot(tmp_path) is None
  # A synchronous run would build the same version of step 8 again.
  assert steps(builder.folder) == ([0, 4] if schedule == 'async' else [0, 4, 8])
  other.close()


@pytest.mark.parametrize(
  'damage, schedule',
  [
    ('vectors', 'sync'),
    ('index', 'sync'),
    ('vectors/manifest.json', 'sync'),
    ('embedder.safetensors', 'sync'),
    ('embedder.safetensors', 'async'),
  ],
)
def test_a_damaged_version_of_a_checkpoint_is_built_again(
  tmp_path, blocks, damage, schedule, warnings
):
  """From its parameters; without them a run cannot be continued exactly."""
  builder, first = opened(tmp_path, blocks, every=2)
  first.start(0, params(0), '')
  first.after_step(2, params(2))
  saved = first.version_to_save()
  first.close()
  _cut(tmp_path / saved / damage)
  _, second = opened(
    tmp_path, blocks, schedule=schedule, builder='external', every=2
  )
  if damage != 'embedder.safetensors':
    second.start(3, params(3), saved)
    assert second.index_version() == saved and builder.folder.is_whole(saved)
  elif schedule == 'sync':
    with pytest.raises(FileNotFoundError, match='or is damaged; it cannot be'):
      second.start(3, params(3), saved)
  else:
    second.start(3, params(3), saved)
    assert second.serving(None).step == 0 and saved in warnings[-1]
  second.close()


def _cut(path):
  """Halve a file, or the largest file of a folder."""
  if path.is_dir():
    files = (x for x in path.rglob('*') if x.is_file())
    path = max(files, key=lambda x: x.stat().st_size)
  data = path.read_bytes()
  path.unlink()
  path.write_bytes(data[: len(data) // 2])
