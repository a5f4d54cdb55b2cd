# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny ColBERT finds blocks and re-ranks those of words."""

import numpy as np
import pytest

from experiments.engine import configs
from realm_jax.data import folder as realm_data
from realm_jax.trained import beams
from retrieval.nn import colbert
from retrieval.questions import question_files
from retrieval.search import late_interaction, queries as queries_lib, rerank
from tests.experiments.open_qa import tiny_open_qa, tiny_places
from tests.retrieval.nn import tiny_colbert


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  tiny_places.make(root, 'abcefghijklmnopr')  # q and d mark the texts
  return realm_data.DataFolder(root)


@pytest.fixture(scope='module')
def model(data, tmp_path_factory):
  folder = tmp_path_factory.mktemp('model')
  words = (data.root / 'tokenizer/vocab.txt').read_text().split()
  marks = {'query_token_id': 'q', 'doc_token_id': 'd'}
  sizes = {'query_maxlen': 16, 'doc_maxlen': 32}
  tiny_colbert.write(folder, ' '.join(words), d=8, length=32, **marks, **sizes)
  return folder


def _retriever(data, model, *progress, **fields):
  config = tiny_open_qa.get_config(
    data.root, retriever='colbert', **{'blocks.max_length': 32}
  )
  index = late_interaction.ColbertConfig(model=str(model))
  config = configs.replaced(config, colbert_index=index, **fields)
  return beams.make_retriever(config, data, None, *progress)


def test_a_model_retrieves_and_reranks(model, data):
  calls = []
  retrieve = _retriever(data, model, lambda *done: calls.append(done))
  count = data.blocks.num_blocks
  assert calls[-1] == (count, count)
  asked = question_files.read_questions(data.root / 'questions.jsonl')
  texts = [question.question for question in asked]
  beam = retrieve({}, {}, [*texts, ''], 3)
  assert (beam.ids[-1] == -1).all()
  # The scores are those of the texts, but for the loss of compression.
  blocks = [data.blocks.full_texts(ids) for ids in beam.ids[:-1]]
  scores = np.stack(colbert.load(model).score(texts, blocks))
  approximate = beam.fields['beam_scores'][:-1]
  assert np.abs(scores - approximate).mean() < 0.01 * 16
  # Blocks of BM25 in the order of the index's scores, then in that of the texts'.
  fields = {'retriever': 'bm25', 'reranker.candidates': count}
  fields['reranker.path'] = str(model)
  reranked = _retriever(data, model, **fields)({}, {}, texts, 3)
  same = reranked.ids == beam.ids[:-1]
  assert same.mean() > 0.8
  np.testing.assert_allclose(
    reranked.scores[same], approximate[same], rtol=1e-5
  )
  by_texts = rerank.ByTexts(rerank.load(model), data.blocks)
  [exact] = by_texts.score(queries_lib.Queries(texts[:1]), [beam.ids[0]])
  np.testing.assert_allclose(exact, scores[0], rtol=1e-5)
  # What is built is opened again.
  calls.clear()
  _retriever(data, model, lambda *done: calls.append(done))
  assert not calls
