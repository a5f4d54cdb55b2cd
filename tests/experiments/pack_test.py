# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Packed readers and REALMs: written by the command, loaded, taken over documents."""

import json
import os
import types

from absl import logging
import jax
import numpy as np
import pytest

from experiments import pack
from experiments.engine import configs
from experiments.open_qa import evaluate, task as qa_task, trained_reader
from experiments.realm import starts
import realm_jax
from realm_jax.data import folder as realm_data
from realm_jax.nn import initialize
from realm_jax.trained import embedders, loading, packaged
from retrieval.nn import sharding
from retrieval.questions import abstention
from retrieval.store import checksums, hub as hub_lib, packed
from retrieval.text import corpus as corpus_lib
from retro_jax.trained import packaged as retro_packaged
from tests import hub_server
from tests.experiments.open_qa import tiny_open_qa
from tests.experiments.realm import tiny_realm
from tests.realm_jax.nn import tiny

ASKED = 'The mill of 1066 stood in the river?'
TEXT = 'The mill stood in [MASK].'


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  """A packed reader with the encoder of a REALM, and the runs of both."""
  root = tmp_path_factory.mktemp('pack')
  data = tiny_open_qa.make_data(root / 'data')
  fields = {'retriever': 'bm25', 'lookup.title_length': 2}
  config = tiny_open_qa.get_config(data, **fields)
  reader = tiny_open_qa.reader_of(config, realm_data.DataFolder(data))
  tiny_open_qa.save(root / 'reader', reader, config)
  folder = root / 'packed'
  pack.pack(str(root / 'reader'), str(folder))
  tokens = reader.data.blocks.tokens
  documents = [
    {
      'id': tokens.document_id(i),
      'title': tokens.title(i),
      'text': tokens.text_bytes(i).decode(),
    }
    for i in range(tokens.num_documents)
  ]
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(packaged, 'FOLDER', folder)
    patch.setattr(packaged, '_FEW', len(documents) - 1)
    run = packaged.take(root / 'words', documents=documents)
    assert json.loads((run / 'config.json').read_text())['retriever'] == 'bm25'
    pack.pack(str(run), str(folder), parts=['embedder'], vectors=True)
    # The embedder of the package, and other row lengths than the reader's.
    fields = {'layout.num_candidates': 4}
    realm_config = tiny_realm.get_config(str(run / 'data'), **fields)
    params = tiny.params(reader.model.config.realm, seed=1)
    params |= packed.load_params(packaged.FOLDER, ['embedder'])
    realm = loading.of_params(
      realm_config, realm_data.DataFolder(run / 'data'), params, 7
    )
    tiny_open_qa.save(root / 'realm', realm, realm_config)
    pack.pack(str(root / 'realm'), str(folder), parts=['encoder'])
  return types.SimpleNamespace(
    config=config,
    folder=folder,
    documents=documents,
    reader=root / 'reader',
    realm=root / 'realm',
  )


@pytest.fixture
def own(made, monkeypatch):
  """The same, in place of the package's model."""
  monkeypatch.setattr(packaged, 'FOLDER', made.folder)
  return made


def _is_close(found, wanted):
  """Whether most answers of another reader are there, with about their scores."""
  scores = {(a.block, a.start, a.width): a.score for a in wanted.answers}
  same = [a for a in found.answers if (a.block, a.start, a.width) in scores]
  assert len(same) >= 0.8 * len(scores)
  for a in same:
    assert a.score == pytest.approx(scores[a.block, a.start, a.width], abs=0.05)


def test_answers_are_those_of_the_run_but_for_rounding(own, tmp_path):
  reader = realm_jax.packaged(tmp_path, documents=own.documents)
  [wanted] = realm_jax.load(own.reader).answer(ASKED)
  _is_close(reader.with_retriever('bm25').answer(ASKED)[0], wanted)


def test_a_calibration_goes_with_the_packed_reader(own, tmp_path):
  run = packaged.take(tmp_path / 'run', documents=own.documents)
  made_of = realm_jax.load(run).made_of()
  made = abstention.calibrate([0.5], [True], ['custom:dev'], made_of)
  evaluate.write_calibration(made, run)
  pack.pack(str(run), str(own.folder), calibration=True)
  run = packaged.take(tmp_path / 'again', documents=own.documents)
  [found] = realm_jax.load(run).answer(ASKED)
  assert found.calibration.made_of == made_of
  run = packaged.take(tmp_path / 'other', documents=own.documents[1:])
  [found] = realm_jax.load(run).answer(ASKED)
  assert found.probability is None


def test_a_run_is_pushed_and_loaded_by_name(made, tmp_path, monkeypatch):
  output = tmp_path / 'made'
  pack.pack(str(made.reader), str(output))
  (output / 'unrelated.txt').write_text('not of the model')
  with hub_server.serve(monkeypatch, tmp_path / 'cache') as hub:
    monkeypatch.setenv('HF_TOKEN', hub_server.TOKEN)
    pack.push(str(output), 'you/reader', private=True)
    there = {x.name for x in hub.repos['you/reader'].iterdir()}
    files = {'weights.json', *packed.read_facts(output).files}
    assert there == files and hub.private['you/reader']
    data = str(realm_jax.load(made.reader).data.root)
    one, two = (realm_jax.load(x, data) for x in (output, 'hf://you/reader'))
    assert two.answer(ASKED)[0].answers == one.answer(ASKED)[0].answers
    # A card of one's own goes along, and files that the Hub has are not sent again.
    (output / 'README.md').write_text('---\nlicense: mit\n---\n')
    pack.push(str(output), 'you/reader')
    assert hub.commits[-1] == ['README.md']
    monkeypatch.setenv('HF_TOKEN', 'hf_may_read')
    with pytest.raises(OSError, match='you/reader: .*403'):
      hub_lib.push(output, 'you/reader', ['README.md'])


def test_at_32_bits_a_run_stays_as_it_is_and_its_index_s_embedder(tmp_path):
  run = tiny_open_qa.fine_tuned(tmp_path)
  pack.pack(str(run.workdir), str(tmp_path / 'made'), bits=32)
  one = realm_jax.load(run.workdir)
  two = realm_jax.load(tmp_path / 'made', str(run.data))
  for name in ('params', 'block_params'):
    pair = (getattr(x, name) for x in (one, two))
    jax.tree.map(np.testing.assert_array_equal, *pair)
  assert two.answer(ASKED)[0].answers == one.answer(ASKED)[0].answers


def test_vectors_of_the_package_are_found_without_embedding(
  own, tmp_path, monkeypatch
):
  with monkeypatch.context() as patch:
    patch.setattr(embedders, 'BlockEmbedder', None)
    reader = realm_jax.packaged(tmp_path / 'a', documents=own.documents)
    assert reader.config.retriever == 'dense'
    assert reader.answer(ASKED)[0].text
    model = realm_jax.packaged_realm(tmp_path / 'a', documents=own.documents)
    assert len(model.explain(TEXT).documents) > 1
  other = [{'title': 'T', 'text': 'The mill of 1066 stood in the river.'}]
  reader = realm_jax.packaged(tmp_path / 'b', documents=other)
  assert reader.config.retriever == 'weighted'
  assert reader.answer(ASKED)[0].answers
  _, *found = (
    realm_jax.load(tmp_path / 'b', part='realm').explain(TEXT).documents
  )
  assert [row['title'] for row in found] == ['T']


def test_a_realm_explains_as_the_model_that_was_packed(own, tmp_path):
  model = realm_jax.packaged_realm(tmp_path, documents=own.documents)
  packed_from = realm_jax.load(own.realm)
  assert model.layout == packed_from.layout
  one, other = (x.explain(TEXT, '1999') for x in (packed_from, model))
  assert other.log_prob == pytest.approx(one.log_prob, abs=0.2)
  assert [x['block'] for x in one.documents] == [
    x['block'] for x in other.documents
  ]


def test_a_folder_is_prepared_once_and_of_one_corpus(own, tmp_path):
  realm_jax.packaged(tmp_path, documents=own.documents)
  before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob('*')}
  realm_jax.packaged(tmp_path, documents=own.documents)
  assert before == {
    path: path.stat().st_mtime_ns for path in tmp_path.rglob('*')
  }
  other = corpus_lib.CorpusConfig(kind='jsonl', path='other')
  with pytest.raises(ValueError, match='other documents'):
    realm_jax.packaged(tmp_path, documents=own.documents[1:])
  with pytest.raises(ValueError, match='path'):
    realm_jax.packaged(tmp_path, corpus=other)
  with pytest.raises(ValueError, match='documents and corpus'):
    realm_jax.packaged(tmp_path, documents=own.documents, corpus=other)


def test_the_command_takes_it_over_the_corpus_of_a_config(
  own, tmp_path, monkeypatch
):
  file = tmp_path / 'mine.jsonl'
  file.write_text(''.join(json.dumps(row) + '\n' for row in own.documents))
  config = configs.replaced(
    own.config,
    data_dir='',
    **{
      'corpus.kind': 'jsonl',
      'corpus.path': str(file),
      'tokenizer.path': str(own.folder / 'tokenizer.json'),
      'index.shards': 3,
      'lookup.title_length': 0,
      'encoder.dtype': 'bfloat16',
      'encoder.d_ff': 0,  # all but the dtype is the package's
    },
  )
  run = str(tmp_path / 'run')
  told = []
  monkeypatch.setattr(logging, 'warning', lambda *line: told.append(line))
  os.utime(file, (1, 1))
  for _ in range(2):
    trained_reader.take_packaged(config, run)
  assert packed.read_config(run)['index']['shards'] == 3 and not told
  config = configs.replaced(config, **{'index.shards': 2})
  trained_reader.take_packaged(config, run)
  assert 'index.shards 3' in told.pop()[-1] and not told
  packaged.take(run, corpus=config.corpus)  # asks for no settings
  assert not told
  os.utime(f'{run}/data/tokens', (0, 0))  # the corpus is newer
  config = configs.replaced(config, **{'index.shards': 3})
  trained_reader.take_packaged(config, run)
  assert str(file) in told.pop()
  reader = trained_reader.open_reader(run)
  assert reader.model.config.realm.encoder.dtype == 'bfloat16'
  assert reader.model.config.realm.embedder.dtype == 'float32'
  [best, *_] = reader.answer(ASKED)[0].answers
  asked = len(reader.data.tokenizer.encode(ASKED).ids)
  assert best.reader_start == asked + 3 + 2  # a title of two tokens
  # A new folder takes its data from another one.
  config = configs.replaced(config, data_dir=f'{run}/data')
  trained_reader.take_packaged(config, str(tmp_path / 'new'))
  again = trained_reader.open_reader(tmp_path / 'new').answer(ASKED)[0]
  assert again.text == best.text


@pytest.mark.parametrize('name', ['reader.safetensors.gz', 'config.json'])
def test_a_flipped_bit_is_found(own, tmp_path, name):
  run = packaged.take(tmp_path, documents=own.documents)
  data = bytearray((run / name).read_bytes())
  data[-3] ^= 1
  (run / name).unlink()  # a hard link
  (run / name).write_bytes(data)
  with pytest.raises(ValueError, match=f'{name}: damaged'):
    realm_jax.load(run)


def test_what_does_not_fit_the_packed_model_is_refused(own, tmp_path):
  with pytest.raises(ValueError, match='expected some of'):
    pack.pack(str(own.realm), str(own.folder), parts=['reader'])
  realm = loading.load(own.realm)
  config = realm.config
  params = tiny.params(realm.model.config, seed=2)
  other = loading.of_params(config, realm.data, params, 1)
  tiny_open_qa.save(tmp_path / 'other', other, config)
  with pytest.raises(ValueError, match='another retriever'):
    pack.pack(str(tmp_path / 'other'), str(own.folder), parts=['encoder'])
  config = configs.replaced(config, **{'model.pooling': 'cls'})
  tiny_open_qa.save(tmp_path / 'cls', realm, config)
  with pytest.raises(ValueError, match=r"another \['model'\]"):
    pack.pack(str(tmp_path / 'cls'), str(own.folder), parts=['encoder'])


def test_training_starts_from_it(own):
  config = configs.replaced(
    own.config, encoder_from='packaged', embedder_from='packaged', seed=7
  )
  data = realm_data.DataFolder.of(config, own.reader)
  params = tiny_open_qa.reader_of(config, data).params
  wanted = packed.load_params(packaged.FOLDER, ['reader', 'embedder'])
  for name in wanted:
    jax.tree.map(np.testing.assert_array_equal, params[name], wanted[name])
  found = starts.start_sources(config)
  assert {*found['encoder']} == {'reader'}
  fields = {'encoder_from': 'packaged', 'realm_from': 'runs/realm'}
  found = qa_task.with_realm_from(configs.replaced(own.config, **fields))
  assert found.encoder_from == found.embedder_from == 'runs/realm'


@pytest.mark.slow
def test_the_packages_own_model_fits_its_config(tmp_path):
  documents = [
    {'title': 'Eiffel Tower', 'text': 'The Eiffel Tower stands in Paris.'},
    {'title': 'Llama', 'text': 'Llamas live in the mountains of Peru.'},
  ]
  model = realm_jax.packaged_realm(tmp_path, documents=documents)
  shapes = jax.eval_shape(
    lambda: sharding.unbox(
      initialize.random_params(jax.random.key(0), model.model.config)
    )
  )
  assert jax.tree.map(np.shape, model.params) == jax.tree.map(
    lambda x: x.shape, shapes
  )
  found = model.explain('The Eiffel Tower stands in [MASK].', 'Paris')
  best = max(found.documents, key=lambda row: row['posterior'])
  assert best['title'] == 'Eiffel Tower' and best['utility'] > 1
  reader = realm_jax.load(tmp_path)
  assert reader.answer('Where does the Eiffel Tower stand?')[0].text == 'Paris'


def test_what_comes_with_the_package_is_light():
  folders = packaged.FOLDER, retro_packaged.FOLDER
  files = [file for folder in folders for file in folder.rglob('*')]
  sizes = [file.stat().st_size for file in files if file.is_file()]
  assert sum(sizes) <= 64 << 20


def test_the_packages_own_calibration_is_of_its_reader_and_blocks():
  made = abstention.read(packaged.FOLDER / abstention.FILE)
  head = packed.load_params(packaged.FOLDER, ['reader'])['reader']['span_score']
  content = b''.join(np.asarray(x).tobytes() for x in jax.tree.leaves(head))
  assert made.made_of['reader'] == checksums.of_bytes(content)
  facts = json.loads((packaged.FOLDER / packed.WEIGHTS).read_text())
  assert made.made_of['blocks'] == facts['vectors']['blocks']
  config = packed.read_config(packaged.FOLDER)
  weight = config['reader']['coverage_weight']
  assert made.made_of['coverage_weight'] == weight == 4
  assert 0.5 < made.threshold(0.3) < 0.7
