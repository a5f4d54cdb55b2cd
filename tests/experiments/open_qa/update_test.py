# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A corpus that changes under a trained REALM, and what is found in it then."""

import dataclasses
import json
import pathlib
import types

import numpy as np
import pytest

from experiments.engine import changed_documents, configs
from experiments.open_qa import update as realm_update
from experiments.realm import starts
from realm_jax.data import folder as realm_data
from realm_jax.trained import embedders, index_builder, loading
from retrieval.index import index_versions, text_index
from retrieval.search import tfidf
from retrieval.text import corpus
from tests.experiments.open_qa import tiny_open_qa
from tests.experiments.realm import tiny_realm
from tests.retrieval.search import sparse_index_test

NEW = corpus.Document('new', 'Crown', 'The crown of Rome stood in the river.')
CHANGED = corpus.Document('d3', 'Mill 3', 'The mill of 1066 was a crown.')


@pytest.fixture(scope='module')
def before(tmp_path_factory):
  """A model with random parameters, its data and its index."""
  root = tmp_path_factory.mktemp('before')
  config = tiny_realm.get_config(str(tiny_realm.make_data(root)))
  data = tiny_realm.data_of(config)
  trained = starts.untrained(config, data, root / 'index')
  return types.SimpleNamespace(trained=trained, index=trained.index, root=root)


@pytest.fixture(scope='module')
def embedded():
  """Collects (title, text) of every block that is embedded."""
  texts = []
  call = embedders.BlockEmbedder.__call__

  def counted(self, ids, progress=None):
    blocks = self._blocks
    texts.extend(zip(blocks.titles(ids), blocks.texts(ids), strict=True))
    return call(self, ids, progress)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(embedders.BlockEmbedder, '__call__', counted)
    yield texts


def _update(trained, root, documents, delete):
  """Counts, and the model over the new folder."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(loading, 'load', lambda *_, **__: trained)
    counts = realm_update.change('', documents, delete, root)
  new = dataclasses.replace(
    trained,
    data=realm_data.DataFolder(root),
    index_folder=root / index_builder.INDEX,
  )
  return types.SimpleNamespace(trained=new, index=new.index, counts=counts)


@pytest.fixture(scope='module')
def after(before, embedded, tmp_path_factory):
  """d3 changed, d5 and d6 deleted, one document added."""
  embedded.clear()
  updated = _update(
    before.trained,
    tmp_path_factory.mktemp('after') / 'data',
    [NEW, CHANGED],
    ['d5', 'd6'],
  )
  return updated, list(embedded)


def _pairs(blocks):
  ids = range(blocks.num_blocks)
  return [*zip(blocks.titles(ids), blocks.texts(ids), strict=True)]


def test_only_new_text_is_embedded(before, after):
  updated, embedded = after
  assert embedded == [
    (CHANGED.title, CHANGED.text),
    (NEW.title, NEW.text),
  ]
  old = _pairs(before.trained.data.blocks)
  new = _pairs(updated.trained.data.blocks)
  gone = [pair for pair in old if pair[0] in ('Mill 3', 'Mill 5', 'Mill 6')]
  assert updated.counts == {
    'documents added': 1,
    'documents changed': 1,
    'documents deleted': 2,
    'blocks reused': len(new) - 2,
    'blocks embedded': 2,
    'blocks removed': len(gone),
  }
  assert len(new) == len(old) - len(gone) + 2 and len(gone) > 3


def test_reused_vectors_are_bit_identical_and_equal_embedding_all(
  before, after
):
  updated, _ = after
  trained, blocks = updated.trained, updated.trained.data.blocks
  rows = {pair: i for i, pair in enumerate(_pairs(before.trained.data.blocks))}
  have = updated.index.version.vectors[:]
  copied = [(i, rows[p]) for i, p in enumerate(_pairs(blocks)) if p in rows]
  new, old = np.asarray(copied).T
  np.testing.assert_array_equal(have[new], before.index.version.vectors[:][old])
  embed = embedders.BlockEmbedder(
    trained.model.config,
    trained.layout,
    blocks,
    index_builder.snapshot(trained.params),
  )
  whole = embed(np.arange(blocks.num_blocks))
  # Batches of other rows and lengths round otherwise.
  np.testing.assert_allclose(have, whole, rtol=1e-5, atol=1e-6)


def _indices(data):
  return text_index.TextIndices(data.root, data.blocks)


def test_words_follow_the_corpus(before, embedded, tmp_path):
  for name in ('tokenizer', 'tokens', 'blocks'):
    (tmp_path / name).symlink_to(before.root / name)
  old = realm_data.DataFolder(tmp_path)
  _indices(old).words('tfidf')
  trained = dataclasses.replace(before.trained, data=old)
  updated = _update(trained, tmp_path / 'new', [NEW, CHANGED], ['d5', 'd6'])
  data = updated.trained.data
  assert _indices(data).words_path('tfidf').is_dir()
  assert not _indices(data).words_path('bm25').is_dir()
  pairs = _pairs(data.blocks)
  texts = [text for _, text in pairs]
  whole = sparse_index_test.in_memory(
    tfidf.TfIdf, [f'{title}\n{text}' for title, text in pairs]
  )
  for have, want in zip(
    _indices(data).words('tfidf').search(texts, 4),
    whole.search(texts, 4),
    strict=True,
  ):
    np.testing.assert_array_equal(have, want)


def test_again_finds_what_stands(before, after, embedded):
  updated, _ = after
  embedded.clear()
  again = _update(
    before.trained,
    updated.trained.data.root,
    [NEW, CHANGED],
    ['d5', 'd6'],
  )
  assert not embedded and again.counts['blocks reused'] == 0
  assert again.index.version.name == updated.index.version.name


def test_another_masked_corpus_goes_along(before, tmp_path):
  data = before.root
  for name in ('tokenizer', 'tokens', 'blocks', 'spans'):
    (tmp_path / 'old' / 'masked').mkdir(parents=True, exist_ok=True)
    (tmp_path / 'old' / name).symlink_to(data / name)
    (tmp_path / 'old' / 'masked' / name).symlink_to(data / name)
  old = realm_data.DataFolder(tmp_path / 'old')
  config, index = before.trained.config, before.root / 'index'
  trained = starts.untrained(config, old, index)
  updated = _update(trained, tmp_path / 'new', [], ['d0'])
  new = updated.trained.data
  assert new.masked_blocks.fingerprint == old.blocks.fingerprint
  assert new.blocks.fingerprint != old.blocks.fingerprint
  assert new.spans.fingerprint == old.spans.fingerprint
  # Numbers have shifted; names lead to the same texts.
  texts = [
    dict(zip(x.names(range(n)), x.texts(range(n)), strict=True))
    for x, n in ((x.blocks, x.blocks.num_blocks) for x in (old, new))
  ]
  assert len(texts[1]) < len(texts[0]) and texts[1].items() < texts[0].items()
  assert new.blocks.texts([0]) != old.blocks.texts([0])


@pytest.fixture
def command(before, monkeypatch):
  """Runs the command's body over a run that is `before`, with some flags."""

  def load(workdir, data_dir, part):
    data = realm_data.DataFolder(pathlib.Path(data_dir))
    folder = index_builder.index_folder(before.root, data_dir)
    return dataclasses.replace(before.trained, data=data, index_folder=folder)

  monkeypatch.setattr(loading, 'load', load)

  def run(delete, output, documents='', data_dir=''):
    config = configs.replaced(
      before.trained.config, data_dir=data_dir or str(before.root)
    )
    values = {'documents': str(documents), 'output': str(output)}
    values = types.SimpleNamespace(**values, delete=delete)
    flags = types.SimpleNamespace(FLAGS=values)
    monkeypatch.setattr(changed_documents, 'flags', flags)
    realm_update.update(config, str(before.root))

  return run


def test_the_command_reads_json_lines(command, before, tmp_path, capsys):
  file = tmp_path / 'changes.jsonl'
  rows = [
    {'id': d.id, 'title': d.title, 'text': d.text} for d in (NEW, CHANGED)
  ]
  file.write_text('\n'.join(json.dumps(row) for row in rows))
  out = tmp_path / 'data'
  command(['d5', 'd6'], out, file)
  shown = capsys.readouterr().out
  assert 'blocks embedded' in shown and 'documents deleted' in shown
  blocks = realm_data.DataFolder(out).blocks
  assert (NEW.title, NEW.text) in _pairs(blocks)
  assert index_versions.VersionFolder(out / 'index').names()
  again = tmp_path / 'again'
  command(['new'], again, data_dir=str(out))
  pairs = _pairs(realm_data.DataFolder(again).blocks)
  assert (NEW.title, NEW.text) not in pairs
  assert (CHANGED.title, CHANGED.text) in pairs


def test_the_index_of_a_reader_follows_with_its_own_parameters(
  embedded, tmp_path
):
  """Parameters of the embedder that training began with, on the blocks' side."""
  made = tiny_open_qa.fine_tuned(tmp_path)
  asked, new = 'The mill of 1066 stood in the river?', tmp_path / 'new'
  [source, *_] = loading.load(made.workdir).answer([asked])
  gone = source.answers[0].record()['document']
  embedded.clear()
  counts = realm_update.change(made.workdir, [NEW], [gone], new)
  assert embedded == [(NEW.title, NEW.text)] and counts['blocks embedded'] == 1
  [version] = index_versions.VersionFolder(new / 'index').names()
  assert version.startswith('00000000')
  reader = loading.load(made.workdir, str(new))
  reader = reader.with_retriever(reader_beam=reader.data.blocks.num_blocks)
  [now] = reader.answer([asked])
  titles = reader.data.blocks.titles(now.beam)
  assert NEW.title in titles and gone.replace('d', 'Mill ') not in titles
