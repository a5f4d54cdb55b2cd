# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Codes of the tokens of a changed corpus: copied where the text is the same."""

import numpy as np
import pytest

from retrieval.index import reuse
from retrieval.search import late_interaction, token_store
from retrieval.text import passages as passages_lib
from tests.retrieval.search import tiny_encoder

CONFIG = token_store.IndexConfig(
  num_centroids=16, num_bits=4, sample_blocks=20, shard_blocks=7
)
ALL = late_interaction.SearchConfig(num_probes=1000, num_rescored=1000)
OLD = [f'word{i % 11} word{i} word{i * i % 7}' for i in range(25)]
NEW = ['fresh word3', *OLD[20:4:-1], 'word1 fresh', OLD[9], *OLD[:2], 'fresh']
FRESH = [text for text in NEW if text not in OLD]


def _open(path, config=ALL):
  words = tiny_encoder.Words()
  return late_interaction.LateInteraction(path, words, config)


def _known(path, texts=OLD):
  return reuse.KnownCodes(_open(path), passages_lib.TextList(texts))


@pytest.fixture(scope='module')
def old(tmp_path_factory):
  path = tmp_path_factory.mktemp('old') / 'colbert'
  texts = passages_lib.TextList(OLD)
  token_store.build(path, tiny_encoder.Words(), texts, CONFIG)
  return path


def _update(path, known, texts=NEW, **more):
  """Builds with other settings than the old index, which the copies keep."""
  words = tiny_encoder.Words()
  texts = passages_lib.TextList(texts)
  token_store.build(path, words, texts, known=known, **more)
  return words.encoded


def test_only_new_texts_are_encoded(old, tmp_path):
  known, seen = _known(old), []
  encoded = _update(tmp_path / 'new', known, progress=lambda *x: seen.append(x))
  assert encoded == FRESH and len(FRESH) == 3
  assert known.num_reused == len(NEW) - 3
  assert seen[-1] == (len(NEW), len(NEW))
  before, after = _open(old), _open(tmp_path / 'new')
  assert token_store.config_of(after.fields) == CONFIG
  np.testing.assert_array_equal(after.codec.levels, before.codec.levels)
  old_vectors = tiny_encoder.vectors_of(before)
  for text, have in zip(NEW, tiny_encoder.vectors_of(after), strict=True):
    if text in OLD:  # bit for bit, also for copies and in another order
      np.testing.assert_array_equal(have, old_vectors[OLD.index(text)])
    codes = before.codec.encode(tiny_encoder.Words().vectors(text))
    np.testing.assert_array_equal(have, before.codec.decode(*codes))
  # The lists of blocks lead to all of them.
  asked = [NEW[0], NEW[5], 'word4']
  for have, want in zip(
    after.search(asked, len(NEW)),
    after.unpruned().search(asked, len(NEW)),
    strict=True,
  ):
    np.testing.assert_allclose(have, want, rtol=1e-6)
  assert after.search(NEW[:1], 1)[0] == 0


def test_a_killed_update_continues_with_the_old_codec(old, tmp_path):
  def stop(done, total):
    if done > 7:
      raise KeyboardInterrupt

  path = tmp_path / 'new'
  with pytest.raises(KeyboardInterrupt):
    _update(path, _known(old), progress=stop)
  known = _known(old)
  assert _update(path, known) == FRESH[1:]  # the first shard stands
  assert known.num_reused == len(NEW) - 7 - 2
  whole = tmp_path / 'whole'
  _update(whole, _known(old))
  assert _open(path).fingerprint == _open(whole).fingerprint
  pairs = (tiny_encoder.vectors_of(_open(x)) for x in (path, whole))
  for have, want in zip(*pairs, strict=True):
    np.testing.assert_array_equal(have, want)


def test_a_build_of_an_updated_index_finds_it_whole(old, tmp_path):
  path = tmp_path / 'new'
  _update(path, _known(old))
  words, texts = tiny_encoder.Words(), passages_lib.TextList(NEW)
  token_store.build(path, words, texts, CONFIG)
  assert not words.encoded
  # An index of the same texts with a codec of their own is another one.
  token_store.build(tmp_path / 'own', words, texts, CONFIG)
  assert _open(tmp_path / 'own').fingerprint != _open(path).fingerprint
  with pytest.raises(ValueError, match='codec') as error:
    _update(tmp_path / 'own', _known(old))
  assert '\n' not in str(error.value)


def test_an_update_of_an_update_names_the_first_codec(old, tmp_path):
  _update(tmp_path / 'new', _known(old))
  known = _known(tmp_path / 'new', NEW)
  assert not _update(tmp_path / 'again', known, texts=NEW[::-1])
  first, second = _open(tmp_path / 'new'), _open(tmp_path / 'again')
  assert first.fields['codec'] == second.fields['codec'] != ''
  one, other = map(tiny_encoder.vectors_of, (second, first))
  np.testing.assert_array_equal(one[0], other[-1])


def test_other_texts_are_refused(old):
  with pytest.raises(ValueError, match='texts: expected'):
    _known(old, NEW)
