# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions asked of every block, and asked again of a changed corpus."""

import dataclasses

import pytest

from experiments.open_qa import trained_reader, update as realm_update
from realm_jax.trained import embedders, loading
from retrieval.index import index_versions
from retrieval.text import corpus
from tests.experiments.open_qa import tiny_open_qa

ASKED = 'The mill of 1066 stood in the river?'
NEW = corpus.Document('new', 'Zebra', 'The zebra was in the crown of Rome.')


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  return tiny_open_qa.fine_tuned(tmp_path_factory.mktemp('ask'))


@pytest.fixture(scope='module')
def by_words(made, tmp_path_factory):
  """A run that finds blocks by BM25."""
  workdir = tmp_path_factory.mktemp('bm25')
  trained = loading.load(made.workdir, part='reader')
  config = dataclasses.replace(made.config, retriever='bm25')
  tiny_open_qa.save(workdir, trained, config)
  return workdir


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
  counts = realm_update.update_run(made.workdir, new, [NEW], [source])
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


def test_words_find_a_new_document_and_nothing_is_embedded(
  by_words, embedded, tmp_path
):
  out = tmp_path / 'new'
  before = trained_reader.open_reader(by_words)
  [earlier] = before.answer('zebra')
  assert earlier.text == ''
  counts = realm_update.update_run(by_words, out, [NEW])
  assert not (out / 'index').exists() and not embedded
  assert counts == {
    'documents added': 1,
    'documents changed': 0,
    'documents deleted': 0,
    'blocks removed': 0,
  }
  [now] = trained_reader.open_reader(by_words, str(out)).answer('zebra')
  assert now.text in NEW.text and now.answers[0].rank == 0
  # Again: changed once more, from the changed data.
  realm_update.update_run(
    by_words, tmp_path / 'again', (), ['new'], data_dir=str(out)
  )
  again = trained_reader.open_reader(by_words, str(tmp_path / 'again'))
  assert again.answer(['zebra'])[0].text == ''
  assert not embedded
