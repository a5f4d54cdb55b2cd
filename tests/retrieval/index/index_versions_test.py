# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Versions of an index: whole or not there, leased, resumed, removed."""

import concurrent.futures
import contextlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from retrieval.index import index_versions, published_index as index_lib
from retrieval.store import executors
from tests.retrieval.store import tiny_stores
from tests.retrieval.text import tiny_blocks

CONFIG = index_lib.IndexConfig(metric='dot_product', num_queries=5)
PARAMS = {'embedder': {'dense': {'kernel': np.eye(3, dtype=np.float32)}}}


def embed(ids, progress=None):
  """A vector for each block that depends on its id alone."""
  if progress:
    progress(len(ids), len(ids))
  angles = 1.0 + np.asarray(ids)[:, None] * np.asarray([1.0, 2.0, 3.0])
  return np.sin(angles).astype(np.float32)


@pytest.fixture(scope='module')
def blocks(tmp_path_factory):
  root = tmp_path_factory.mktemp('blocks')
  return tiny_blocks.make(root, np.random.default_rng(0)).blocks


def _params(value):
  return {'embedder': {'dense': {'kernel': value * np.eye(3)}}}


def test_a_version_answers_with_its_own_parameters(blocks, tmp_path):
  folder = index_versions.VersionFolder(tmp_path)
  assert folder.names() == [] and folder.latest() == ''
  seen = []
  name = folder.build(
    7,
    PARAMS,
    blocks,
    embed,
    CONFIG,
    progress=lambda done, total: seen.append((done, total)),
  )
  assert folder.names() == [name] and name.startswith('0000000007-')
  assert seen[-1] == (blocks.num_blocks, blocks.num_blocks)
  version = folder.open(name, blocks)
  assert version.step == index_versions.step_of(name) == 7
  np.testing.assert_array_equal(
    version.params['embedder']['dense']['kernel'], np.eye(3)
  )
  vectors = embed(np.arange(blocks.num_blocks))
  np.testing.assert_array_equal(version.vectors[:], vectors)
  ids, _ = version.index.searcher.search(vectors[4:5], 3)
  want = np.argsort(-(vectors @ vectors[4]), kind='stable')[:3]
  assert ids[0].tolist() == want.tolist()
  version.close()
  version.close()
  other = tiny_blocks.make(tmp_path / 'o', np.random.default_rng(3)).blocks
  with pytest.raises(ValueError, match='blocks of another version'):
    folder.open(name, other)


def test_leases_keep_versions(blocks, tmp_path):
  folder = index_versions.VersionFolder(tmp_path)
  names = [
    folder.build(step, _params(step), blocks, embed, CONFIG)
    for step in range(5)
  ]
  assert [index_versions.step_of(x) for x in folder.names()] == [*range(5)]
  latest = folder.latest(), folder.latest(at_most=3), folder.latest(at_most=-1)
  assert latest == (names[4], names[3], '')
  held = folder.open(names[0])
  folder.remove_old(keep=[names[2]], newest=1)
  assert folder.names() == [names[0], names[2], names[4]]
  held.close()
  folder.remove_old(newest=1)
  assert folder.names() == names[4:]
  left = {path.name for path in tmp_path.iterdir()}
  assert left <= {names[4], '.building.lock'}
  with pytest.raises(FileNotFoundError, match=names[0]):
    folder.open(names[0])


def test_processes_share_the_shards(blocks, tmp_path):
  folder = index_versions.VersionFolder(tmp_path / 'shared')
  share = [{'executor': executors.Share(i, 2)} for i in range(2)]
  done = []

  def counted(ids, progress=None):
    done.append(len(ids))
    return embed(ids)

  first = folder.build(1, PARAMS, blocks, counted, CONFIG, **share[0])
  assert first is None and sum(done) < blocks.num_blocks
  assert folder.build(1, PARAMS, blocks, counted, CONFIG, **share[1]) is None
  assert sum(done) == blocks.num_blocks
  name = folder.build(1, PARAMS, blocks, counted, CONFIG, **share[0])
  assert sum(done) == blocks.num_blocks
  alone = index_versions.VersionFolder(tmp_path / 'alone')
  assert alone.build(1, PARAMS, blocks, embed, CONFIG) == name
  for part in ('vectors', 'index'):
    have = tiny_stores.file_hashes(tmp_path / 'shared' / name / part)
    want = tiny_stores.file_hashes(tmp_path / 'alone' / name / part)
    # The report of the index holds its building time.
    have.pop('index.json', None), want.pop('index.json', None)
    assert have == want


_KILLED = """
import time
import numpy as np
from retrieval.text import blocks as blocks_lib
from retrieval.index import index_versions
from tests.retrieval.index import index_versions_test as t

def slow(ids, progress=None):
  time.sleep(0.2)
  return t.embed(ids)

blocks = blocks_lib.BlockStore({blocks!r})
folder = index_versions.VersionFolder({out!r})
folder.build(1, t.PARAMS, blocks, slow, t.CONFIG)
"""


@pytest.mark.slow
def test_a_killed_builder_goes_on_where_it_was(blocks, tmp_path):
  out = tmp_path / 'killed'
  script = _KILLED.format(blocks=str(blocks.path), out=str(out))
  process = subprocess.Popen([sys.executable, '-c', script])
  deadline = time.monotonic() + 60
  while time.monotonic() < deadline and process.poll() is None:
    if len([*out.glob('.building-*/vectors.partial-*/shard-*.json')]) >= 2:
      break
    time.sleep(0.01)
  process.send_signal(signal.SIGKILL)
  assert process.wait() == -signal.SIGKILL
  folder = index_versions.VersionFolder(out)
  assert folder.names() == []
  counted = []

  def rest(ids, progress=None):
    counted.append(len(ids))
    return embed(ids)

  name = folder.build(1, PARAMS, blocks, rest, CONFIG)
  assert 0 < sum(counted) < blocks.num_blocks
  np.testing.assert_array_equal(
    folder.open(name).vectors[:], embed(np.arange(blocks.num_blocks))
  )


def test_dead_drafts_are_removed_once_they_are_old(blocks, tmp_path):
  folder = index_versions.VersionFolder(tmp_path)
  for step in (3, 9):
    (tmp_path / f'.building-{step:010d}-{"0" * 12}').mkdir()
  folder.build(5, PARAMS, blocks, embed, CONFIG)
  folder.remove_old()
  left = [p.name[10:20] for p in tmp_path.glob('.building-*')]
  assert left == ['0000000009']


def test_a_second_builder_of_a_version_waits_for_the_first(blocks, tmp_path):
  folder = index_versions.VersionFolder(tmp_path)
  pool, second, calls = concurrent.futures.ThreadPoolExecutor(1), [], []

  def meet(ids, progress=None):
    calls.append(len(ids))
    if not second:  # the first builder, while it lives
      given = 1, PARAMS, blocks, meet, CONFIG
      second.append(pool.submit(folder.build, *given))
      folder.remove_old()
      assert len(_drafts(tmp_path)) == 1 and not second[0].done()
    return embed(ids)

  folder.build(2, PARAMS, blocks, embed, CONFIG)
  name = folder.build(1, PARAMS, blocks, meet, CONFIG)
  assert second[0].result() == name and sum(calls) == blocks.num_blocks
  assert folder.is_whole(name) and not [*tmp_path.glob('.building-*')]


def test_vectors_by_other_settings_are_not_used(blocks, tmp_path):
  folder = index_versions.VersionFolder(tmp_path)

  def dies(ids, progress=None):
    raise OSError('the disk is gone')

  with pytest.raises(OSError, match='gone'):  # leaves a draft
    folder.build(1, PARAMS, blocks, dies, CONFIG, settings={'scale': 3})
  want = np.arange(blocks.num_blocks)
  for scale, dtype in ((1, 'float16'), (2, 'float32')):
    more = {'settings': {'scale': scale}, 'dtype': dtype}
    name = folder.build(1, PARAMS, blocks, _times(scale), CONFIG, **more)
    with contextlib.closing(folder.open(name)) as version:
      found = version.vectors[:]
    np.testing.assert_allclose(found, scale * embed(want), rtol=1e-3)
    folder.build(1, PARAMS, blocks, dies, CONFIG, **more)  # is there
    for wanted, known in (('float16', True), ('float32', scale == 2)):
      more['dtype'] = wanted
      assert (_known(folder, PARAMS, blocks, **more) is not None) is known
  folder.remove_old()
  assert not _drafts(tmp_path)


def _drafts(root):
  return [x.name for x in root.glob('.building-*') if x.is_dir()]


@pytest.mark.parametrize('part', ['vectors', 'index'])
def test_a_damaged_version_is_built_again(blocks, tmp_path, part):
  folder = index_versions.VersionFolder(tmp_path)
  name = folder.build(1, PARAMS, blocks, embed, CONFIG)
  files = [x for x in (tmp_path / name / part).rglob('*') if x.is_file()]
  file = max(files, key=lambda x: x.stat().st_size)
  tiny_stores.flip(file)
  assert not folder.is_whole(name)
  assert folder.build(1, PARAMS, blocks, embed, CONFIG) == name
  assert folder.is_whole(name)
  assert [x.name for x in tmp_path.iterdir() if 'draft' in x.name] == []


@pytest.mark.parametrize(
  ('parts', 'said'),
  [
    ('.', 'vectors of another version'),
    ('vectors index', 'vectors of another version'),
    ('index', 'changed after this searcher|of vectors'),
    ('embedder.safetensors', r'embedder\.safetensors: damaged, or of another'),
    ('vectors', r'index: .*changed after this searcher was built'),
  ],
)
def test_parts_of_another_version_are_refused(blocks, tmp_path, parts, said):
  folder = index_versions.VersionFolder(tmp_path)
  other, name = (
    folder.build(step, _params(1.0 + step), blocks, _times(step), CONFIG)
    for step in (1, 2)
  )
  for part in parts.split():
    source, target = tmp_path / other / part, tmp_path / name / part
    if source.is_dir():
      shutil.rmtree(target)
      shutil.copytree(source, target)
    else:
      shutil.copyfile(source, target)
  with pytest.raises(ValueError, match=said):
    _ = folder.open(name, blocks).params


def _times(factor):
  return lambda ids, progress=None: factor * embed(ids, progress)


def _known(folder, params, blocks, **more):
  with folder.known_vectors(params, blocks, **more) as found:
    return found if found is None else np.asarray(found[:])


def test_vectors_of_a_whole_version_are_known(blocks, tmp_path):
  folder = index_versions.VersionFolder(tmp_path / 'index')
  assert _known(folder, PARAMS, blocks) is None
  name = folder.build(300, PARAMS, blocks, embed, CONFIG)
  folder.build(400, _params(2.0), blocks, embed, CONFIG)
  want = embed(np.arange(blocks.num_blocks))
  np.testing.assert_array_equal(_known(folder, PARAMS, blocks), want)
  other = tiny_blocks.make(tmp_path / 'o', np.random.default_rng(3)).blocks
  assert _known(folder, _params(3.0), blocks) is None
  assert _known(folder, PARAMS, other) is None
  assert _known(folder, PARAMS, blocks, settings={'pooling': 'cls'}) is None
  # What embeds blocks decides.
  more = PARAMS | {'query_embedder': np.ones(2, np.float32)}
  assert _known(folder, more, blocks) is None
  found = _known(folder, more, blocks, part=lambda tree: tree['embedder'])
  np.testing.assert_array_equal(found, want)
  file = max((tmp_path / 'index' / name / 'vectors').glob('*.npy'))
  file.write_bytes(file.read_bytes()[:-1] + b'x')
  assert _known(folder, PARAMS, blocks) is None


def test_a_version_stays_while_its_vectors_are_used(blocks, tmp_path):
  folder = index_versions.VersionFolder(tmp_path)
  name = folder.build(300, PARAMS, blocks, embed, CONFIG)
  with folder.known_vectors(PARAMS, blocks) as found:
    folder.remove_old(newest=0)
    assert folder.names() == [name] and len(found) == blocks.num_blocks
  folder.remove_old(newest=0)
  assert folder.names() == []
