# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders of the Hub by name, against a server on loopback."""

import json
import shutil

import huggingface_hub
from huggingface_hub import constants
import numpy as np
import pytest

from experiments.conversion import sources
from retrieval.nn import embedders
from retrieval.store import hub as hub_lib
from tests import hub_server
from tests.retrieval.nn import tiny_embedder


@pytest.fixture
def hub(monkeypatch, tmp_path):
  with hub_server.serve(monkeypatch, tmp_path / 'cache') as found:
    yield found


def _write(folder, **files):
  for name, data in files.items():
    path = folder / name.replace('__', '/')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
  return folder


def test_an_embedder_by_name_equals_its_folder(hub, tmp_path):
  folder = tiny_embedder.save(tmp_path / 'minilm', ['red', 'green', 'blue'])
  for name in ('tf_model.h5', 'onnx/model.onnx', 'pytorch_model.bin'):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b'not needed')
  hub.repos['sentence-transformers/all-MiniLM-L6-v2'] = folder
  name = 'hf://sentence-transformers/all-MiniLM-L6-v2@v1'
  found = embedders.Embedder.load(name, max_length=8).embed_texts(['red blue'])
  want = embedders.Embedder.load(folder, max_length=8).embed_texts(['red blue'])
  np.testing.assert_array_equal(found, want)
  assert {*hub.got} == {*('config.json', 'model.safetensors', 'tokenizer.json')}
  count = len(hub.got)
  hub_lib.local(name)
  assert len(hub.got) == count


def test_weights_of_torch_come_where_there_are_no_others(hub, tmp_path):
  files = {'config.json': b'{}', 'pytorch_model.bin': b'x', 'vocab.txt': b'a'}
  files |= {'block_records.npy': b'y', 'flax_model.msgpack': b'z'}
  hub.repos['qqaatw/realm-orqa-nq-openqa'] = _write(tmp_path / 'orqa', **files)
  found = hub_lib.local('hf://qqaatw/realm-orqa-nq-openqa')
  del files['flax_model.msgpack']
  assert {x.name for x in found.iterdir()} == {*files}


def test_one_file(hub, tmp_path):
  hub.repos['o/gguf'] = _write(
    tmp_path / 'g', **{'a.gguf': b'small', 'b.gguf': b'large'}
  )
  assert hub_lib.local('hf://o/gguf/a.gguf').read_bytes() == b'small'
  assert hub.got == ['a.gguf']


@pytest.mark.parametrize('revision', ['refs/pr/1', 'refs%2Fpr%2F1'])
def test_a_revision_may_have_slashes(hub, tmp_path, monkeypatch, revision):
  hub.repos['o/n'] = _write(tmp_path / 'n', **{'config.json': b'{}'})
  asked = []
  real = huggingface_hub.snapshot_download
  monkeypatch.setattr(
    huggingface_hub,
    'snapshot_download',
    lambda *args, **how: asked.append(how['revision']) or real(*args, **how),
  )
  assert (hub_lib.local(f'hf://o/n@{revision}') / 'config.json').exists()
  assert {*asked} == {revision.replace('%2F', '/')}
  name = f'hf://o/n@{revision}/config.json'
  assert hub_lib.local(name).read_bytes() == b'{}'


@pytest.mark.parametrize(
  ('name', 'error'),
  [
    ('hf://only_an_owner', ValueError),
    ('hf://o/gated', ValueError),
    ('hf://o/absent', FileNotFoundError),
    ('hf://o/n@no_such_revision', FileNotFoundError),
    ('hf://o/n/no_such_file.json', FileNotFoundError),
  ],
)
def test_errors_name_what_was_asked_for(hub, tmp_path, name, error):
  hub.repos |= {
    'o/gated': 'GatedRepo',
    'o/n': _write(tmp_path / 'n', **{'config.json': b'{}'}),
  }
  with pytest.raises(error, match=name) as caught:
    hub_lib.local(name)
  assert '\n' not in str(caught.value)


def test_without_the_hub_the_cache_serves(hub, tmp_path):
  hub.repos['o/n'] = _write(tmp_path / 'n', **{'config.json': b'{}'})
  there = hub_lib.local('hf://o/n')
  hub.close()
  assert hub_lib.local('hf://o/n') == there
  with pytest.raises(FileNotFoundError, match='hf://o/other'):
    hub_lib.local('hf://o/other')


def test_a_copy_of_some_files_is_completed_or_refused(
  hub, tmp_path, monkeypatch
):
  whole = tiny_embedder.save(tmp_path / 'whole', ['red', 'green', 'blue'])
  hub.repos['o/plain'] = whole
  hub.repos['o/n'] = hub.repos['o/m'] = shutil.copytree(whole, tmp_path / 'cls')
  (tmp_path / 'cls/1_Pooling').mkdir()
  pooling = {'pooling_mode_cls_token': True, 'word_embedding_dimension': 8}
  kinds = enumerate(('Transformer', 'Pooling'))
  modules = [
    {'type': f'a.{x}', 'path': f'{i}_{x}' if i else ''} for i, x in kinds
  ]
  for name, content in (('1_Pooling/config', pooling), ('modules', modules)):
    (tmp_path / f'cls/{name}.json').write_text(json.dumps(content))
  texts = ['red blue']

  def load(name):
    return embedders.Embedder.load(name, max_length=8)

  expected = load(tmp_path / 'cls').embed_texts(texts)
  names = 'config.json', 'tokenizer.json', 'model.safetensors'
  for repo in ('o/n', 'o/m'):  # as transformers leaves it
    for name in names:
      hub_lib.local(f'hf://{repo}/{name}')
  load('hf://o/plain')
  np.testing.assert_array_equal(load('hf://o/n').embed_texts(texts), expected)
  monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)
  np.testing.assert_array_equal(load('hf://o/n').embed_texts(texts), expected)
  assert load('hf://o/plain').embed_texts(texts).any()
  with pytest.raises(
    FileNotFoundError, match='hf://o/m.*partial.*modules.json'
  ):
    load('hf://o/m')


def test_a_checkpoint_to_convert_may_be_on_the_hub(hub, tmp_path):
  hub.repos['o/n'] = _write(tmp_path / 'n', **{'README.md': b''})
  with pytest.raises(FileNotFoundError, match=hub_server.SHA):
    sources.read(['hf://o/n'])


def test_what_cannot_be_pushed_is_told_before_the_work(hub, monkeypatch):
  with pytest.raises(ValueError, match='o/n: no token'):
    hub_lib.check_push('o/n')
  monkeypatch.setenv('HF_TOKEN', hub_server.TOKEN)
  hub_lib.check_push('o/n')
  with pytest.raises(ValueError, match='only_a_name'):
    hub_lib.check_push('only_a_name')
  hub.close()
  with pytest.raises(OSError, match='o/n'):
    hub_lib.push('.', 'o/n', ['README.md'])
