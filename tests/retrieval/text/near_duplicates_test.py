# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Near-duplicates: grams by hand, all pairs against the index, resuming."""

from unittest import mock

import hypothesis
from hypothesis import strategies
import numpy as np
import pytest

from retrieval import tokenization
from retrieval.text import (
  chunks as chunks_lib,
  near_duplicates,
  tokens as tokens_lib,
)
from tests.retrieval.store import tiny_stores
from tests.retrieval.text import json_corpus

FRACTION = 0.3


def _grams(text, n):
  words = text.lower().split()
  n = min(n, len(words))
  return {tuple(words[i : i + n]) for i in range(len(words) - n + 1) if n}


_WORDS = strategies.lists(strategies.sampled_from('ab c D\u00e9'.split()))


@hypothesis.settings(deadline=None, max_examples=150)
@hypothesis.given(_WORDS, _WORDS, strategies.integers(1, 4))
def test_similarity_is_that_of_the_sets_of_grams(a, b, n):
  texts = ' '.join(a), '\n'.join(b).upper()
  sets = [_grams(text, n) for text in texts]
  with mock.patch.object(near_duplicates, '_NGRAM', n):
    hashed = [*map(near_duplicates.hash_grams, texts)]
  assert [len(h) for h in hashed] == [len(s) for s in sets]
  want = len(sets[0] & sets[1]) / max(len(sets[0] | sets[1]), 1)
  index = near_duplicates.Index([(3, hashed[0]), (5, hashed[0])])
  assert index.nearest(hashed[1]) == (want, 3 if want else -1)


@pytest.fixture(scope='module')
def stores(tmp_path_factory):
  """60 documents of random words; some are others with a word changed."""
  root, rng = tmp_path_factory.mktemp('corpus'), np.random.default_rng(0)
  vocabulary = [f'{w}{i}' for w in tiny_stores.WORDS for i in range(20)]
  texts = [' '.join(rng.choice(vocabulary, 150)) for _ in range(30)]
  for changes in (0, 1, 2, 8, 40):
    for text in texts[:6]:
      words = text.split()
      for at in rng.integers(0, 150, changes):
        words[at] = 'other'
      texts.append(' '.join(words))
  order = rng.permutation(len(texts))
  texts = [texts[i] for i in order]
  rows = [{'id': f'd{i}', 'title': '', 'text': t} for i, t in enumerate(texts)]
  tokenization.train_sentencepiece(texts, root / 'tokenizer/model', 300)
  corpus = json_corpus.write(root, rows)
  tokens = tokens_lib.build_token_store(
    root / 'tokens', corpus, root / 'tokenizer', documents_per_shard=25
  )
  return tokens, tokenization.load_tokenizer(root / 'tokenizer'), texts


def _build(path, stores, evaluation=(), added=(), **changes):
  settings = near_duplicates.Settings(**changes)
  return near_duplicates.build_duplicate_store(
    path,
    *stores[:2],
    valid_fraction=FRACTION,
    settings=settings,
    evaluation=evaluation,
    added=added,
  )


def _all_pairs(stores, threshold):
  """document -> (similarity, evaluation document) of what must be dropped."""
  tokens, _, texts = stores
  hashes = np.asarray(tokens.id_hash[:])
  valid = tokens_lib.in_split(hashes, 'valid', FRACTION)
  grams = [_grams(text, 13) for text in texts]
  found = {}
  for i in np.flatnonzero(~valid):
    similarity, other = max(
      (len(grams[i] & grams[j]) / len(grams[i] | grams[j]), -j)
      for j in np.flatnonzero(valid)
    )
    if similarity >= threshold:
      found[int(i)] = (similarity, -other)
  return found


@pytest.mark.parametrize(
  ('threshold', 'most'), [(0.8, 20), (0.4, 20), (0.01, 25)]
)
def test_exactly_the_pairs_above_the_threshold_are_found(
  stores, tmp_path, threshold, most
):
  found = _build(tmp_path / 'duplicates', stores, threshold=threshold)
  want = _all_pairs(stores, threshold)
  assert 0 < len(want) < most
  documents = found.array('document')[:].tolist()
  assert documents == sorted(want)
  assert found.array('duplicate_of')[:].tolist() == [
    want[i][1] for i in documents
  ]
  np.testing.assert_allclose(
    found.array('similarity')[:], [want[i][0] for i in documents], rtol=1e-6
  )
  least = min(similarity for similarity, _ in want.values())
  at_least = _build(tmp_path / 'least', stores, threshold=least)
  assert at_least.array('document')[:].tolist() == documents


def test_what_is_added_is_neither_held_out_nor_dropped(stores, tmp_path):
  tokens, found = stores[0], _all_pairs(stores, 0.8)
  name = tokens.document_id
  # Held out: a training document's like
  other = int(next(iter(found.values()))[1])
  of = {i for i, (_, held) in found.items() if held == other}
  kept = next(i for i in found if i not in of)
  store = _build(tmp_path / 'd', stores, added=[name(other), name(kept)])
  documents = set(store.array('document')[:].tolist())
  assert kept not in documents and other not in documents
  assert other not in store.array('duplicate_of')[:]
  assert documents <= set(found) - {kept} and documents
  for split, stands in (('train', True), ('valid', False)):
    added = tokens_lib.in_split(
      tokens.id_hash[:], split, FRACTION, [name(other), name(kept)]
    )
    assert set(added[[other, kept]]) == {stands}


def test_other_evaluation_sets_are_compared_with(stores, tmp_path):
  """A set of two shards of whose documents two are training documents."""
  tokens, _, texts = stores
  kept = set(range(len(texts))) - set(_all_pairs(stores, 0.8))
  held = tokens_lib.in_split(tokens.id_hash[:], 'valid', FRACTION)
  first, second = sorted(kept - set(np.flatnonzero(held).tolist()))[:2]
  sets = [
    tokens_lib.build_token_store(
      tmp_path / f'tokens-{name}',
      json_corpus.write(
        tmp_path / name,
        [{'id': f'{i}', 'title': '', 'text': x} for i, x in enumerate(given)],
      ),
      tokens.path.parent / 'tokenizer',
      documents_per_shard=1,
    )
    for name, given in (
      ('other', ['not like any', texts[second]]),
      ('another', [texts[first] + ' and an end']),
    )
  ]
  without = _build(tmp_path / 'without', stores)
  found = _build(tmp_path / 'with', stores, sets)
  before = set(without.array('document')[:].tolist())
  documents = found.array('document')[:].tolist()
  of = dict(zip(documents, found.array('duplicate_of')[:], strict=True))
  n = tokens.num_documents
  assert (of[first], of[second]) == (n + 2, n + 1)
  assert before <= set(of) and not before & {first, second}
  assert near_duplicates.compared_with(without) == {}
  assert near_duplicates.compared_with(found) == {
    f'tokens-{name}': s.store.fingerprint
    for name, s in zip(('other', 'another'), sets, strict=True)
  }
  # What stands stays, and what was made without sets is as it always was.
  assert _build(tmp_path / 'with', stores).fields == found.fields
  assert _build(tmp_path / 'without', stores, sets).fields == without.fields
  assert 'evaluation' not in without.fields | without.meta


def test_chunks_leave_out_what_is_dropped(stores, tmp_path):
  tokens = stores[0]
  found = _build(tmp_path / 'duplicates', stores)
  arguments = {'split': 'train', 'valid_fraction': FRACTION}
  chunks = {
    name: chunks_lib.build_chunk_store(
      tmp_path / name, tokens, chunk_length=8, dropped=dropped, **arguments
    )
    for name, dropped in (('all', None), ('some', found))
  }
  documents = {
    name: set(c.documents(np.arange(c.num_chunks)).tolist())
    for name, c in chunks.items()
  }
  dropped = set(found.array('document')[:].tolist())
  assert documents['all'] - documents['some'] == dropped != set()
  assert chunks['some'].store.fields['dropped'] == found.fingerprint
  assert 'dropped' not in chunks['all'].store.fields
  arguments['valid_fraction'] = 0.5
  with pytest.raises(ValueError, match='run the stage duplicates again'):
    chunks_lib.build_chunk_store(
      tmp_path / 'other', tokens, dropped=found, **arguments
    )
