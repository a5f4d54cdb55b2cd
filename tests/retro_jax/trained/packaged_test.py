# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A packed RETRO writes and scores as the model that it was made of."""

import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys

from flax import linen as nn
import jax
import numpy as np
import pytest

from experiments.engine import checkpoint_writer
import realm_jax
from retrieval import settings, tokenization
from retrieval.store import checksums, manifests, packed
from retrieval.text import corpus as corpus_lib, packed_runs
import retro_jax
from retro_jax.nn import initial, retro as retro_model
from retro_jax.trained import loading, packaged
from tests.experiments.retro import tiny_retro
from tests.retro_jax.data import tiny_data
from tests.retro_jax.nn import tiny

WORDS = 'river queen moon mill crown stone'.split()


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
  """A tiny RETRO whose corpus is a file of documents."""
  root = tiny_data.make(tmp_path_factory.mktemp('data'))
  found = tiny_retro.trained(root)
  rng = np.random.default_rng(0)
  rows = [
    {'id': f'{i}', 'title': f'T{i}', 'text': ' '.join(rng.choice(WORDS, 60))}
    for i in range(60)
  ]
  path = root / 'documents.jsonl'
  path.write_text('\n'.join(map(json.dumps, rows)))
  config = dataclasses.replace(
    found.config,
    corpus=corpus_lib.CorpusConfig(kind='jsonl', path=str(path)),
    valid_fraction=0.2,
    test_fraction=0.2,
  )
  made = loading.model_config(config, found.data.vocab_size)
  model = retro_model.Retro(made)
  return dataclasses.replace(
    found, config=config, model=model, params=tiny.params(made, 1)
  )


@pytest.fixture(scope='module')
def folder(trained, tmp_path_factory):
  path = tmp_path_factory.mktemp('packed') / 'new'
  packaged.pack(path, trained)
  return path


@pytest.fixture(scope='module')
def loaded(folder, tmp_path_factory):
  return retro_jax.load(
    packaged.take(tmp_path_factory.mktemp('unpacked'), folder)
  )


def test_parameters_are_those_of_the_model_at_8_bits(trained, loaded):
  want = packed.dequantize(packed.quantize(trained.params))
  jax.tree.map(np.testing.assert_array_equal, loaded.params, want)
  assert loaded.step == trained.step
  assert loaded.model.config == trained.model.config


def test_a_packed_run_retrieves_as_the_run_did(trained, tmp_path, caplog):
  neighbors = dataclasses.replace(
    trained.config.neighbors, source='tfidf', reranker='runs/cross'
  )
  config = dataclasses.replace(trained.config, neighbors=neighbors)
  packaged.pack(tmp_path, dataclasses.replace(trained, config=config))
  there = packed.read_config(tmp_path)['neighbors']
  assert (there['source'], there['reranker']) == ('tfidf', '')
  assert 'runs/cross' in caplog.text
  model = retro_jax.load(tmp_path, str(trained.data.root))
  assert model.data.source_name == 'tfidf'


def test_fields_of_another_version_are_refused_where_they_matter(
  trained, tmp_path, monkeypatch
):
  monkeypatch.setenv(checksums.VARIABLE, 'off')

  def load(params, **fields):
    path = tmp_path / str(len([*tmp_path.iterdir()]))
    packaged.pack(path, dataclasses.replace(trained, params=params))
    config = packed.read_config(path)
    config['model'] |= fields
    (path / packed.CONFIG).write_text(json.dumps(config))
    return retro_jax.load(path, str(trained.data.root))

  encoder = trained.params['encoder']
  layer = {'layer_2_ca': encoder['layer_1_ca']}
  more = trained.params | {'encoder': encoder | layer}
  load(trained.params, encoder_ca_layers=[1], encoder_dropout_rate=0.1)
  with pytest.raises(ValueError, match=r'encoder_ca_layers=\(1, 2\)'):
    load(more, encoder_ca_layers=[1, 2])
  with pytest.raises(ValueError, match=r"config\.model\.remat='dots'"):
    load(trained.params, remat='dots')


def test_a_folder_warns_of_other_settings_where_some_are_asked_for(
  folder, tmp_path, caplog
):
  def take(**settings):
    caplog.clear()
    packed_runs.take(
      folder,
      tmp_path,
      'retro_jax',
      lambda config, _: config,
      documents=[{'text': 'One.'}],
      settings=settings,
      compared=('neighbors',),
    )
    return caplog.text

  neighbors = packed.read_config(folder)['neighbors']
  take(neighbors={**neighbors, 'source': 'tfidf'})
  assert not take()
  assert 'neighbors.source' in take(neighbors=neighbors)


def test_it_retrieves_from_its_articles_without_vectors(loaded):
  model = loaded
  text = 'river queen moon ' * 12
  found = model.neighbors(text, 2)
  texts = [x.strip() for chunk in found for x in chunk.neighbors]
  articles = pathlib.Path(loaded.config.corpus.path).read_text()
  compared = [x for x in texts if x and '\n' not in x]
  assert compared and all(x in articles for x in compared)
  (scores,) = model.score(text, num_neighbors=2)
  assert sum(scores.on) != sum(scores.off)
  (sample,) = model.sample('river', max_new_tokens=20, seed=1)
  assert any(chunk.ids for chunk in sample.chunks)
  assert model.inspect(explain=False).on  # a held-out document
  assert not [*loaded.data.root.glob('vectors-*')]


def test_data_of_another_tokenizer_are_refused(loaded, folder, tmp_path):
  data = tmp_path / 'data'
  shutil.copytree(loaded.data.root, data)
  model = data / 'tokenizer' / 'model'
  tokenization.train_sentencepiece(
    [' '.join(WORDS) * 9], model.with_name('other'), 280
  )
  model.unlink()
  model.with_name('other').rename(model)
  with pytest.raises(ValueError, match='a model of tokenizer'):
    packaged.take(tmp_path, folder)


def test_the_packages_own_model_fits_its_config():
  facts = packed.read_facts(packaged.FOLDER)
  tokenizer = tokenization.load_tokenizer(packaged.FOLDER / 'model')
  assert tokenizer.fingerprint == facts.fingerprints['tokenizer']
  size = sum(x.stat().st_size for x in packaged.FOLDER.iterdir())
  assert size < 15e6
  params = packed.load_params(packaged.FOLDER)
  assert params['embedding'].shape[0] == tokenizer.vocab_size
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(params))


def test_the_packages_own_retrofit_holds_what_was_added():
  folder = packaged.FOLDER / 'smollm2'
  config = settings.build(
    loading.RunConfig, packed.read_config(folder), '', ignore_others=True
  )
  model = loading.model_config(config, 49_152)
  assert model.joint and config.neighbors.titled
  params = jax.eval_shape(lambda: initial.flat_params(jax.random.key(0), model))
  want = {k: x for k, x in nn.unbox(params).items() if initial.is_added(k)}
  found = packed.load_params(folder)
  assert jax.tree.map(np.shape, found) == jax.tree.map(np.shape, want)
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))


@pytest.mark.parametrize('count', [1, 2])
def test_one_or_two_documents_are_all_retrieved(tmp_path, count):
  texts = [f'The ship {x} was built in Lindby.' for x in ('Aldora', 'Berta')]
  documents = [{'title': f'T{i}', 'text': texts[i]} for i in range(count)]
  model = retro_jax.packaged('packaged', workdir=tmp_path, documents=documents)
  (chunk,) = model.neighbors(f'{texts[count - 1]} Lindby.', 3)
  assert sorted(chunk.titles) == [f'T{i}' for i in range(count)]
  (sample,) = model.sample(texts[0] * 5, max_new_tokens=2)
  assert sample.chunks[0].ids
  assert model.score(texts[0] * 20).bits_per_byte > 0


@pytest.mark.parametrize('library', [retro_jax, realm_jax])
def test_no_documents_are_refused(tmp_path, library):
  with pytest.raises(ValueError, match='documents: none given'):
    library.packaged(workdir=tmp_path / 'x', documents=iter(()))


def test_a_corpus_is_the_same_however_it_is_spelled(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'a.jsonl').touch()
  whole = str(tmp_path / 'a.jsonl')
  for a, b in (
    (('auto', ''), ('vital', '')),
    (('auto', 'a.jsonl'), ('jsonl', whole)),
    (('jsonl', 'a.jsonl'), ('auto', whole)),
  ):
    sections = [dict(zip(('kind', 'path'), x, strict=True)) for x in (a, b)]
    packed_runs.check_corpus(tmp_path, *sections)
  with pytest.raises(ValueError, match="'vital', not 'jsonl'"):
    packed_runs.check_corpus(
      tmp_path, {'kind': 'auto', 'path': ''}, sections[0]
    )


@pytest.mark.slow
def test_the_command_packs_a_run(trained, folder, tmp_path):
  run, made = tmp_path / 'run', tmp_path / 'made'
  checkpoint_writer.save_params(
    str(run), trained.params, config=dataclasses.asdict(trained.config)
  )
  done = subprocess.run(
    [
      *(sys.executable, '-m', 'experiments.pack'),
      *(f'--workdir={run}', f'--output={made}'),
      f'--data_dir={trained.data.root}',
    ],
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  for name in ('params.safetensors.gz', 'model'):
    assert (made / name).read_bytes() == (folder / name).read_bytes()


def test_a_folder_keeps_its_tokenizer(trained, folder, tmp_path):
  other = shutil.copytree(folder, tmp_path / 'other')
  facts = dataclasses.asdict(packed.read_facts(other))
  facts['fingerprints']['tokenizer'] = 'of another'
  (other / packed.WEIGHTS).write_text(manifests.sealed(facts))
  with pytest.raises(ValueError, match='another tokenizer'):
    packaged.pack(other, trained)
