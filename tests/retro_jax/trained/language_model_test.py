# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The library's interface on a tiny RETRO and its baseline."""

import numpy as np
import pytest

from experiments.engine import checkpoint_writer
import retro_jax
from retro_jax.views import samples as views
from tests.experiments.retro import tiny_retro
from tests.retro_jax.data import tiny_data

TEXT = 'river queen 日本 moon ' * 8


@pytest.fixture(scope='module')
def model(root):
  return tiny_retro.trained(root)


@pytest.fixture(scope='module')
def baseline(root):
  return tiny_retro.trained(root, baseline=True)


def test_public_names_are_there():
  assert all(getattr(retro_jax, name) for name in retro_jax.__all__)
  assert {*retro_jax.__all__} <= {*dir(retro_jax)}
  with pytest.raises(AttributeError, match="no attribute 'lod'"):
    retro_jax.lod  # noqa: B018


def test_sample_takes_settings_and_own_neighbors(model, baseline):
  (one,) = model.sample('river', max_new_tokens=12, seed=3)
  same, other = model.sample(
    ['river', 'moon'], max_new_tokens=12, seed=3, batch_size=1
  )
  assert same == one and other.prompt == 'moon'
  own = model.sample(
    ['river', 'queen'], neighbors=['moon'], num_samples=2, max_new_tokens=12
  )
  assert len(own) == 4
  for chunk in (own[0].chunks[0], own[3].chunks[0]):
    assert chunk.neighbors == ['moon'] and chunk.scores == [None]
  assert '<b>riv' in own._repr_html_() and str(own[0]) in str(own)
  with pytest.raises(ValueError, match='the model is a baseline'):
    baseline.sample('river', neighbors=['moon'])
  with pytest.raises(ValueError, match="'neighbors'"):
    model.sample('river', neighbors=[[3]])


def test_score_has_losses_with_and_without_neighbors(model, baseline):
  texts = [TEXT, 'queen ' * 12]
  scores = model.score(texts, num_neighbors=2)
  first = scores[0]
  m = model.model.config.chunk_length
  assert ''.join(first.pieces) == TEXT
  assert first.on[:m] == pytest.approx(first.off[:m], abs=1e-6)
  assert first.on[m:] != pytest.approx(first.off[m:], abs=1e-4)
  size = sum(len(text.encode()) for text in texts)
  nats = sum(sum(page.on) for page in scores)
  assert scores.bits_per_byte == pytest.approx(nats / np.log(2) / size)
  assert 'bits per byte' in scores._repr_html_()
  *rows, last = repr(scores).splitlines()
  assert len(rows) == 3 and last.split()[2] == f'{scores.bits_per_byte:.4f}'
  assert 'first chunk' in repr(model.score('q'))
  assert 'attention' not in scores._repr_html_()
  explained = model.score(TEXT, num_neighbors=2, explain=True)
  assert 'attention' in explained._repr_html_()
  assert explained[0].on == first.on
  plain = baseline.score(TEXT)
  assert plain.bits_per_byte == plain.bits_per_byte_off > 0
  assert not any(chunk.neighbors for chunk in plain[0].chunks)


def test_likelihoods_of_whole_texts_are_their_scores(model, baseline):
  texts = [TEXT, 'queen ' * 12, 'river queen']
  for one, k in ((model, 2), (baseline, None)):
    scores = one.score(texts, num_neighbors=k)
    for name, count in (('on', k), ('off', 0)):
      found = one.loglikelihood([''] * 3, texts, num_neighbors=count)
      want = [sum(getattr(page, name)) for page in scores]
      assert [x.nats for x in found] == pytest.approx(want, rel=1e-5)
      assert [x.num_bytes for x in found] == [x.num_bytes for x in scores]


def test_a_likelihood_depends_on_its_own_pair_alone(model):
  pairs = [
    ('river queen', ' moon x'),
    ('moon ' * 20, 'river'),  # ends within a token's blank
    ('', 'moon'),
    ('river queen tensor', ' \u65e5\u672c walked' * 9),
  ]
  found = model.loglikelihood(*zip(*pairs, strict=True), batch_size=3)
  for pair, one in zip(pairs, found, strict=True):
    (alone,) = model.loglikelihood(*pair, batch_size=1)
    assert alone.nats == pytest.approx(one.nats, rel=1e-5)
    assert one.num_bytes == len(pair[1].encode())
  moved = model.loglikelihood('moon ' * 19 + 'moon', ' river')
  assert moved[0].nats == pytest.approx(found[1].nats, rel=1e-5)


def test_a_long_context_loses_its_beginning(model, caplog):
  size = model.config.sequence_chunks * tiny_data.M
  first, second = model.loglikelihood(
    [f'{word} ' * 5 + 'moon queen ' * size for word in ('river', 'apple')],
    ['river', 'river'],
  )
  assert first.nats == second.nats and first.num_dropped > size
  assert '2 of 2 contexts' in caplog.text


def test_neighbors_are_those_that_are_retrieved(model, baseline):
  found = model.neighbors(TEXT, num_neighbors=3)
  assert ''.join(chunk.text for chunk in found) == TEXT
  assert found[0].ids == [tiny_data.M, 7]  # the missing one is omitted
  assert found[0].titles == ['Title 4', 'Title 7']
  assert found[0].scores == pytest.approx([-tiny_data.M / 10, -0.7])
  assert 'Title 7 · BM25 -0.700' in found._repr_html_()
  assert 'chunk  BM25    from' in repr(found)
  assert '-0.700  Title 7' in repr(found)
  assert not any(chunk.ids for chunk in baseline.neighbors(TEXT))


@pytest.mark.parametrize(
  'name, call',
  [
    ('prompts', lambda m: m.sample(5)),
    ('prompts', lambda m: m.sample([1])),
    ('prompts', lambda m: m.sample(b'river')),
    ('prompts', lambda m: m.sample('river \ud800')),
    ('num_samples', lambda m: m.sample('river', num_samples=0)),
    ('batch_size', lambda m: m.sample('river', batch_size='2')),
    ('seed', lambda m: m.sample('river', seed=-1)),
    ('sample.temprature', lambda m: m.sample('river', temprature=0.5)),
    ('sample.stop_strings', lambda m: m.sample('river', stop_strings='ab')),
    ('sample.top_p', lambda m: m.sample('river', top_p=float('nan'))),
    ('texts', lambda m: m.score([])),
    ('texts', lambda m: m.score(5)),
    ('texts', lambda m: m.score([TEXT, None])),
    ('num_neighbors', lambda m: m.score(TEXT, num_neighbors=-1)),
    ('num_neighbors', lambda m: m.neighbors(TEXT, 0)),
    ('contexts', lambda m: m.loglikelihood(5, 'x')),
    ('continuations', lambda m: m.loglikelihood(['', ''], ['x'])),
    (r'continuations\[1\]', lambda m: m.loglikelihood(['', ''], ['x', ''])),
    ('batch_size', lambda m: m.loglikelihood('', 'x', batch_size=0)),
    ('stride_chunks', lambda m: m.loglikelihood('', 'x', stride_chunks=-1)),
    ('num_neighbors', lambda m: m.neighbors(TEXT, '2')),
    ('text', lambda m: m.neighbors([TEXT])),
  ],
)
@pytest.mark.usefixtures('unchecked')
def test_arguments_that_do_not_fit_are_refused_by_name(model, name, call):
  with pytest.raises(ValueError, match=f'^{name}'):
    call(model)


def test_a_neighbor_is_shown_with_its_distance_and_its_title_once():
  texts = ['Danube\n\nThe Danube is long.']
  found = [7], [-4.0], ['Danube'], texts, 'squared L2 distance'
  chunk = views.TextChunk('', '', *found)
  assert chunk.rows() == [('4.000', 'Danube', 'The Danube is long.')]
  assert 'Danube · squared L2 distance 4.000' in chunk._repr_html_()


def test_a_stored_document_is_inspected(model):
  page = model.inspect(num_neighbors=2)
  assert page.title and page.explained and page.title in page._repr_html_()
  assert f'{page.bits_per_byte(page.on):.4f} bits per byte' in str(page)


def test_models_tell_what_they_are(model, baseline):
  assert repr(model).startswith('<RETRO of step 10: 2 layers')
  assert repr(baseline).startswith('<baseline of step 20')


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
  params = {'retriever': np.zeros(2), 'encoder': np.zeros(2)}
  checkpoint_writer.save_params(str(tmp_path), params, config={'task': 'realm'})
  with pytest.raises(
    ValueError, match="'encoder', 'retriever'.*expected RETRO"
  ):
    retro_jax.load(tmp_path)
