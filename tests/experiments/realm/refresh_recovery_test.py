# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F811
"""Refreshes of continued runs: what a killed run left, and damaged versions."""

import pytest

from experiments.realm import refresh, refresh_worker
from realm_jax.trained import index_builder
from retrieval.index import index_versions
from tests.experiments.realm import refresh_test
from tests.experiments.realm.refresh_test import blocks, warnings  # noqa: F401


@pytest.mark.parametrize('schedule', ['async', 'sync'])
def test_what_a_killed_run_left_of_later_steps_is_forgotten(
  tmp_path, blocks, schedule
):
  builder = refresh_test.FakeBuilder(
    index_versions.VersionFolder(tmp_path), blocks
  )
  names = {x: builder.build(x, refresh_test.params(x)) for x in (0, 4, 8)}
  for step in (4, 8, 10):
    refresh_worker.write_snapshot(tmp_path, step, refresh_test.params(step))
  index_builder.write_failure(tmp_path, names[4], 'of before')
  settings = refresh.RefreshConfig(schedule=schedule, every=2)
  refresh_test.FakeProcess.started = []
  refresher = refresh.Refresher(settings, builder, refresh_test.FakeProcess)
  refresher.start(8, refresh_test.params(8), names[4])
  assert refresh_worker.newest_snapshot(tmp_path)[0] == 8
  assert not index_builder.read_failures(tmp_path)
  refresher.close()
  other = refresh.Refresher(settings, builder, refresh_test.FakeProcess)
  other.start(6, refresh_test.params(6), names[4])
  # The builder of the new run does not wait until step 8 has passed.
  assert refresh_worker.newest_snapshot(tmp_path) is None
  # A synchronous run would build the same version of step 8 again.
  assert refresh_test.steps(builder.folder) == (
    [0, 4] if schedule == 'async' else [0, 4, 8]
  )
  other.close()


@pytest.mark.parametrize(
  'damage', ['vectors', 'index', 'vectors/manifest.json']
)
def test_a_damaged_version_of_a_checkpoint_is_built_again(
  tmp_path, blocks, damage
):
  builder, first = refresh_test.opened(tmp_path, blocks, every=2)
  first.start(0, refresh_test.params(0), '')
  first.after_step(2, refresh_test.params(2))
  saved = first.version_to_save()
  first.close()
  _cut(tmp_path / saved / damage)
  _, second = refresh_test.opened(tmp_path, blocks, every=2)
  second.start(3, refresh_test.params(3), saved)
  assert second.index_version() == saved and builder.folder.is_whole(saved)
  second.close()


@pytest.mark.parametrize('schedule', ['sync', 'async'])
def test_a_version_without_its_parameters_cannot_be_built_again(
  tmp_path, blocks, schedule, warnings
):
  builder, first = refresh_test.opened(tmp_path, blocks, every=2)
  first.start(0, refresh_test.params(0), '')
  first.after_step(2, refresh_test.params(2))
  saved = first.version_to_save()
  first.close()
  _cut(tmp_path / saved / 'embedder.safetensors')
  _, second = refresh_test.opened(
    tmp_path, blocks, schedule=schedule, builder='external', every=2
  )
  if schedule == 'sync':
    with pytest.raises(FileNotFoundError, match='or is damaged; it cannot be'):
      second.start(3, refresh_test.params(3), saved)
  else:
    second.start(3, refresh_test.params(3), saved)
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
