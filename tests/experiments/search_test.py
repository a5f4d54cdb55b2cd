# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Passages searched from the command line."""

import types

import pytest

from experiments import search


def test_packaged_articles_are_searched(monkeypatch, capsys):
  values = types.SimpleNamespace(
    query=['the highest mountain', 'a red planet'], data_dir='', where='', k=2
  )
  monkeypatch.setattr(search, 'flags', types.SimpleNamespace(FLAGS=values))
  search.main([])
  first, second = capsys.readouterr().out.split('a red planet')
  assert 'Mount Everest' in first and 'Mars' in second


@pytest.mark.parametrize(
  ('data_dir', 'embedder', 'passed'),
  [
    ('data', 'modern', ('data', 'modern')),
    ('data', '', ('data', None)),
    ('a,b', '', (['a', 'b'], None)),
    ('a,b', ',modern', (['a', 'b'], [None, 'modern'])),
  ],
)
def test_folders_and_their_embedders_are_passed_on(
  monkeypatch, capsys, data_dir, embedder, passed
):
  values = types.SimpleNamespace(
    query=['river'], data_dir=data_dir, embedder=embedder, where='', k=2
  )
  monkeypatch.setattr(search, 'flags', types.SimpleNamespace(FLAGS=values))
  opened = types.SimpleNamespace(search=lambda *_: 'passages')
  monkeypatch.setattr(
    search.retrieval,
    'open_index',
    lambda path, embedder: opened if (path, embedder) == passed else None,
  )
  search.main([])
  assert capsys.readouterr().out == 'passages\n'
