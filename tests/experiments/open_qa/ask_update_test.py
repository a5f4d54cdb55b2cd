# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions asked of every block, and asked again of a changed corpus."""

import pytest

from experiments.open_qa import trained_reader, update as realm_update
from realm_jax.trained import embedders
from retrieval.index import index_versions
from retrieval.text import corpus
from tests.experiments.open_qa import tiny_open_qa

ASKED = 'The mill of 1066 stood in the river?'
NEW = corpus.Document('new', 'Zebra', 'The zebra was in the crown of Rome.')


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  return tiny_open_qa.fine_tuned(tmp_path_factory.mktemp('ask'))


@pytest.fixture(scope='module')
def wide(made):
  """Reads every block."""
  reader = trained_reader.open_reader(made.workdir)
  return _read_all(reader)


def _read_all(reader):
  count = reader.data.blocks.num_blocks
  with pytest.raises(ValueError, match=f'expected at most {count}, all blocks'):
    reader.with_retriever(reader_beam=count + 1)
  return reader.with_retriever(reader_beam=count).open_answerer(answers=400)


@pytest.fixture
def embedded(monkeypatch):
  """Collects the titles of the blocks that are embedded."""
  titles = []
  call = embedders.BlockEmbedder.__call__

  def counted(self, ids, progress=None):
    titles.extend(self._blocks.titles(ids))
    return call(self, ids, progress)

  monkeypatch.setattr(embedders.BlockEmbedder, '__call__', counted)
  return titles


def test_the_answer_follows_the_corpus(made, wide, embedded, tmp_path):
  [earlier] = wide.answer([ASKED])
  blocks = wide.trained.data.blocks
  rows = [a.record() for a in earlier.answers]
  source = rows[0]['document']
  kept = next(row for row in rows if row['document'] != source)
  assert not embedded
  new = tmp_path / 'new'
  counts = realm_update.change(made.workdir, [NEW], [source], new)
  # By the parameters of the index, which are not those of the questions' side.
  assert embedded == ['Zebra']
  assert counts['blocks embedded'] == 1
  [version] = index_versions.VersionFolder(new / 'index').names()
  assert version.startswith('00000000')
  after = _read_all(trained_reader.open_reader(made.workdir, str(new)))
  assert embedded == ['Zebra']
  [now] = after.answer([ASKED])
  blocks = after.trained.data.blocks
  titles = blocks.titles(now.beam)
  assert 'Zebra' in titles and kept['title'] in titles
  assert source.replace('d', 'Mill ') not in titles
  rows = [a.record() for a in now.answers]
  [best, *_] = (row for row in rows if row['document'] != 'new')
  assert best.pop('score') == pytest.approx(kept.pop('score'), abs=1e-4)
  for row in (best, kept):
    del row['share'], row['block']  # its number; the document's id stays
  assert best == kept
