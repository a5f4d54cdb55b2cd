# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""SQuAD's paragraphs as documents."""

import json
import lzma

from retrieval.text import corpus

Document = corpus.Document


def _corpus(path, **fields):
  config = corpus.CorpusConfig(kind='squad', path=str(path), **fields)
  return corpus.Corpus(config)


def _squad(*articles):
  return json.dumps({'version': '1.1', 'data': articles}).encode()


def _article(title, *texts):
  paragraphs = [{'context': text, 'qas': []} for text in texts]
  return {'title': title, 'paragraphs': paragraphs}


def test_squad_paragraphs_are_documents(tmp_path):
  path = tmp_path / 'dev.json.xz'
  path.write_bytes(
    lzma.compress(
      _squad(
        _article('Super_Bowl_50', ' One.', 'Two.'), _article('Nice', 'Three')
      )
    )
  )
  assert list(_corpus(path)) == [
    Document('dev.json.xz:0.0', 'Super Bowl 50', ' One.'),
    Document('dev.json.xz:0.1', 'Super Bowl 50', 'Two.'),
    Document('dev.json.xz:1.0', 'Nice', 'Three'),
  ]


def test_a_fault_ends_an_article_of_squad(tmp_path):
  path = tmp_path / 'dev.json'
  article = _article('A', 'One.', 'Two.', 'Three.')
  article['paragraphs'][1] = 'a'
  path.write_bytes(_squad(article, _article('B', 'Four.')))
  found = _corpus(path, on_error='skip')
  assert [document.text for document in found] == ['One.', 'Four.']
  assert found.skipped == {'invalid JSON': 1}
