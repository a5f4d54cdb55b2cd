# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""experiments.convert: checkpoints from elsewhere and their blocks."""

import contextlib
import functools
import json
import pathlib
import shutil

from flax import traverse_util
import numpy as np
import pytest

from configs import open_qa_released
from experiments import convert
from experiments.conversion import block_data, sources
from experiments.engine import configs
from experiments.open_qa import config as config_lib
from realm_jax.checkpoints import config as checkpoint_config, names
from realm_jax.trained import embedders, loading
from retrieval.formats import block_records, tensor_bundle, tfrecord
from retrieval.index import index_versions
from retrieval.store import checkpoints
from retrieval.text import blocks as blocks_lib
from tests.realm_jax.trained import index_builder_test
from tests.retrieval.text import tiny_blocks

DATA = pathlib.Path(__file__).parents[2] / 'data' / 'realm'
HF, BUNDLES = DATA / 'hf_openqa', DATA / 'bundles'
TEXTS = (
  'The mill stood.',
  'A river in Rome.',
  'Crown 1066.',
  'Was',
  'In Paris',
)


def _config():
  c = open_qa_released.get_config()
  c.tokens.num_processes = 1
  return configs.build(config_lib.Config, c)


def _run(workdir, *paths, **options):
  return convert.convert(
    _config(), str(workdir), [str(p) for p in paths], **options
  )


@pytest.fixture(scope='module')
def converted(tmp_path_factory):
  """The oracle's checkpoint, converted."""
  workdir = tmp_path_factory.mktemp('converted')
  _run(workdir, HF)
  return workdir


def _copy(tmp_path, name='copy'):
  return pathlib.Path(shutil.copytree(HF, tmp_path / name))


def _check_parameters(params):
  """Against the oracle's tensors, by the table of names."""
  fields = checkpoint_config.read(HF / 'config.json')
  layout = names.layout('RealmForOpenQA', checkpoint_config.sizes(fields))
  flat = traverse_util.flatten_dict(params, sep='/')
  with np.load(DATA / 'openqa.npz') as z:
    for tensor in layout:
      if tensor.role == names.PARAMETER:
        array = z[f'w/{tensor.name}']
        array = array.T if tensor.path.endswith('/kernel') else array
        np.testing.assert_array_equal(flat.pop(tensor.path), array)
  assert not flat


def test_a_hugging_face_folder_becomes_a_trained_reader(converted, monkeypatch):
  trained = loading.load(converted, part='reader')
  assert trained.model.config.span_hidden_size == 24
  assert trained.config.lookup.reader_beam == 2
  monkeypatch.setattr(embedders, 'BlockEmbedder', index_builder_test.NoEmbedder)
  index = trained.as_realm().open_index(converted / 'index')
  with np.load(DATA / 'openqa.npz') as z:
    np.testing.assert_array_equal(index.version.vectors[:], z['w/block_emb'])
    question = z['in/question_ids'].astype(np.int32)
    found = index.retrieve(question, question > 0, 4)
    np.testing.assert_array_equal(found, z['out/train_retrieved_ids'])
  _check_parameters(trained.params)
  texts = trained.data.blocks.texts(range(8))
  assert [t.encode() for t in texts] == list(
    block_records.read(HF / 'block_records.npy')
  )
  index.version.close()


def test_a_folder_that_holds_a_checkpoint_is_left_alone(converted):
  with pytest.raises(ValueError, match='expected a new --workdir'):
    _run(converted, HF)


def test_bundles_beneath_a_folder_become_a_realm(tmp_path):
  folder = tmp_path / 'cc_news'
  for name in ('bert', 'embedder'):
    shutil.copytree(BUNDLES / name, folder / name)
  rows = _run(tmp_path / 'w', folder, num_heads=2)
  assert rows['vectors without blocks'].startswith('5 ')
  params, saved = checkpoints.load_params(str(tmp_path / 'w'))
  assert sorted(params) == ['embedder', 'encoder']
  assert saved.config.embedder.num_heads == 2
  bundle = tensor_bundle.Bundle(BUNDLES / 'bert/variables/variables')
  np.testing.assert_array_equal(
    params['encoder']['bert']['layer_1']['output']['kernel'],
    bundle.tensor('bert/encoder/layer_1/output/dense/kernel'),
  )


@pytest.fixture
def official(tmp_path):
  """blocks.tfr of five blocks, and the words they are made of."""
  folder = tmp_path / 'official'
  folder.mkdir()
  tfrecord.write(folder / 'blocks.tfr', [t.encode() for t in TEXTS])
  tfrecord.write(folder / 'titles.tfr', [b'List of mills', *[b''] * 4])
  words = [*tiny_blocks.SPECIALS, *'a b c d e in of rome the mill'.split()]
  pieces = words + [f'##{i}' for i in range(24 - len(words))]
  (folder / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  return folder


def _official(workdir, folder, **options):
  options = {
    'num_heads': 2,
    'vocab': str(folder / 'vocab.txt'),
    'blocks': str(folder / 'blocks.tfr'),
    'block_emb': str(BUNDLES / 'embedder/encoded/encoded.ckpt'),
    **options,
  }
  return _run(workdir, BUNDLES / 'orqa/model.ckpt-20', **options)


def test_official_blocks_and_vectors_become_an_index(official, tmp_path):
  rows = _official(tmp_path / 'w', official)
  assert rows['blocks'] == '5'
  trained = loading.load(tmp_path / 'w', part='reader')
  assert trained.step == 20
  # Titles of lists stay: the record's number is its vector's.
  assert trained.data.blocks.titles([0]) == ['List of mills']
  assert tuple(trained.data.blocks.texts(range(5))) == TEXTS
  folder = index_versions.VersionFolder(tmp_path / 'w' / 'index')
  assert folder.names() == [rows['index version']]
  version = folder.open(rows['index version'], trained.data.blocks)
  bundle = tensor_bundle.Bundle(BUNDLES / 'embedder/encoded/encoded.ckpt')
  np.testing.assert_array_equal(version.vectors[:], bundle.tensor('block_emb'))
  version.close()


def test_a_killed_conversion_goes_on(official, tmp_path, monkeypatch):
  def kill(folder, *unused, **kwargs):
    (pathlib.Path(folder) / 'checkpoints').mkdir()
    raise KeyboardInterrupt

  right = sources.read_vectors(str(BUNDLES / 'embedder/encoded/encoded.ckpt'))
  with monkeypatch.context() as patch:
    patch.setattr(convert.checkpoint_writer, 'save_params', kill)
    patch.setattr(sources, 'read_vectors', lambda _: 2 * right)
    with pytest.raises(KeyboardInterrupt):
      _official(tmp_path / 'w', official)
  name = _official(tmp_path / 'w', official)['index version']
  trained = loading.load(tmp_path / 'w', part='reader')
  folder = index_versions.VersionFolder(tmp_path / 'w' / 'index')
  with contextlib.closing(folder.open(name, trained.data.blocks)) as version:
    np.testing.assert_array_equal(version.vectors[:], right)


def test_vectors_belong_to_the_embedder_that_made_them(official, tmp_path):
  maker = BUNDLES / 'embedder/variables/variables'
  _official(tmp_path / 'w', official, block_embedder=str(maker))
  trained = loading.load(tmp_path / 'w', part='reader')
  kernel = tensor_bundle.Bundle(maker).tensor('module/module/dense/kernel')
  made = trained.block_params['embedder']['projection']['kernel']
  np.testing.assert_array_equal(made, kernel)
  own = np.asarray(trained.params['embedder']['projection']['kernel'])
  assert trained.step == 20 and (own != kernel).all()
  with pytest.raises(ValueError, match='expected an embedder there'):
    encoder = BUNDLES / 'bert/variables/variables'
    _official(tmp_path / 'v', official, block_embedder=str(encoder))


def test_other_numbers_of_blocks_are_refused_with_both(official, tmp_path):
  for file in ('blocks.tfr', 'titles.tfr'):
    records = list(tfrecord.read(official / file))
    tfrecord.write(official / file, records[:-1])
  with pytest.raises(ValueError, match='5 vectors .* there are 4 blocks'):
    _official(tmp_path / 'w', official)
  assert not (tmp_path / 'w' / 'checkpoints').exists()
  folder = _copy(tmp_path)
  records = np.array([b'One', b'Two'], object)
  np.save(folder / 'block_records.npy', records, allow_pickle=True)
  with pytest.raises(ValueError, match='8 vectors .* there are 2 blocks'):
    _run(tmp_path / 'x', folder)
  assert not (tmp_path / 'x' / 'data' / 'official').exists()


def test_titles_may_be_missing(official, tmp_path):
  (official / 'titles.tfr').unlink()
  block_data.place_files(tmp_path, str(official))
  titles = tfrecord.read(tmp_path / 'official' / 'titles.tfr')
  assert list(titles) == [b''] * 5
  with pytest.raises(FileNotFoundError, match='nowhere'):
    block_data.place_files(tmp_path, str(official / 'nowhere.tfr'))


def test_vectors_stream_through_memory(official, tmp_path):
  """Only slices of the vectors are asked for, a shard of blocks each."""
  made = tiny_blocks.make(tmp_path / 'b', np.random.default_rng(0))
  asked, count = [], made.blocks.num_blocks

  class Vectors:
    shape = (count, 4)

    def __getitem__(self, rows):
      asked.append(rows.stop - rows.start)
      low, high, _ = rows.indices(count)
      return np.random.default_rng(low).normal(size=(high - low, 4))

  build = functools.partial(
    block_data.build_index,
    name='x',
    blocks=blocks_lib.BlockStore(made.blocks.path),
    params={'embedder': {'x': np.zeros(2, np.float32)}},
    step=0,
    config=_config(),
  )
  with pytest.raises(ValueError, match='x: a vector that is not finite'):
    build(np.full((count, 4), np.nan), root=tmp_path / 'other')
  build(Vectors(), root=tmp_path / 'index')
  assert asked == [n for n in made.blocks.store.rows('document') if n]
  assert len(asked) > 3


def test_what_cannot_be_converted_is_said(tmp_path):
  with pytest.raises(FileNotFoundError, match='no checkpoint there'):
    _run(tmp_path / 'w', tmp_path)
  with pytest.raises(ValueError, match='no parameters; expected an embedder'):
    _run(tmp_path / 'w', BUNDLES / 'embedder/encoded/encoded.ckpt')
  copy = _copy(tmp_path)
  fields = json.loads((copy / 'config.json').read_text())
  (copy / 'config.json').write_text(json.dumps(fields | {'hidden_size': -1}))
  with pytest.raises(ValueError, match='config.json: d_model=-1: expected'):
    _run(tmp_path / 'w', copy)
  with pytest.raises(ValueError, match=r'expected block_emb'):
    sources.read_vectors(str(BUNDLES / 'orqa/model.ckpt-20'))
  with pytest.raises(ValueError, match='RealmEmbedder brings embedder'):
    _run(
      tmp_path / 'w',
      BUNDLES / 'orqa/model.ckpt-20',
      BUNDLES / 'embedder/variables/variables',
      num_heads=2,
    )
