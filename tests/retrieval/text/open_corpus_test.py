# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A corpus opens by its path alone, where the names tell one kind."""

import gzip
import json

import pytest

from retrieval.text import corpus

_DOCUMENTS = (
  corpus.Document('1', 'Ants', 'Ants are small.'),
  corpus.Document('2', 'Bees', 'Bees fly.'),
)
_JSONL = b''.join(json.dumps(vars(x)).encode() + b'\n' for x in _DOCUMENTS)


@pytest.mark.parametrize(
  ('name', 'data', 'kind'),
  [
    ('a.jsonl.gz', gzip.compress(_JSONL, mtime=0), 'jsonl'),
    ('a.ndjson', _JSONL, 'jsonl'),
    ('a.txt', b'Ants.', 'text'),
    ('AA/wiki_00', _JSONL, 'wikiextractor'),
  ],
)
def test_open_corpus_tells_the_kind_by_name(tmp_path, name, data, kind):
  path = tmp_path / name
  path.parent.mkdir(exist_ok=True)
  path.write_bytes(data)
  config = corpus.CorpusConfig(kind=kind, path=str(path))
  expected = list(corpus.Corpus(config))
  for where in (path, str(path), tmp_path, tmp_path / name.replace('a.', '*.')):
    found = corpus.open_corpus(where)
    assert found.config.kind == kind
    assert [d.text for d in found] == [d.text for d in expected]
