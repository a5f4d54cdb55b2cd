# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Our classes under MTEB's protocols."""

import inspect

import numpy as np

from experiments.adapters import mteb as adapter
from tests.retrieval.nn import sentence_folders

# Keyword arguments of MTEB 2.26's calls, in mteb/models/models_protocols.py.
TASK = {'task_metadata': None, 'hf_split': 'test', 'hf_subset': 'default'}
CORPUS = [
  {
    'id': 'a b',
    'title': 'Mill',
    'text': 'Mill of Rome. ' + 'It is dry. ' * 200,
  },
  {'id': 'd2', 'title': 'The crown', 'text': ''},
  {'id': 'd3', 'title': '', 'text': 'A river ran past the mill.'},
  {'id': 'd4', 'title': '', 'text': ''},
]
QUERIES = [
  {'id': 'q1', 'text': 'mill of Rome'},
  {'id': 'q2', 'text': 'crown'},
]


def test_the_encoder_embeds_queries_and_passages(tmp_path):
  root = sentence_folders.save(tmp_path / 'e', 'prompts')
  model = adapter.Encoder(root, dtype='float32')
  batches = [{'text': list(sentence_folders.TEXTS)}, {'text': ['river']}]
  texts = [text for batch in batches for text in batch['text']]
  asked = model.encode(batches, **TASK, prompt_type='query', batch_size=2)
  read = model.encode(batches, **TASK, prompt_type='document')
  np.testing.assert_array_equal(asked, model.embedder.embed_queries(texts))
  np.testing.assert_array_equal(read, model.embedder.embed_texts(texts))
  assert np.abs(asked - read).max() > 0.01
  every = model.similarity(asked, read)
  np.testing.assert_allclose(every, asked @ read.T)
  pairs = model.similarity_pairwise(asked, read)
  np.testing.assert_allclose(pairs, every.diagonal())
  assert list(inspect.signature(adapter.Encoder).parameters)[:3] == [
    'model_name', 'revision', 'device'
  ]  # fmt: skip


def test_the_search_ranks_documents(tmp_path):
  model = adapter.Search('bm25', workdir=str(tmp_path / 'run'))
  how = TASK | {'encode_kwargs': {}, 'num_proc': None}
  model.index(CORPUS, **how)
  found = model.search(QUERIES, **how, top_k=3)
  assert [list(x) for x in found.values()] == [['a b', 'd3'], ['d2']]
  assert found['q1']['a b'] > found['q1']['d3'] > 0
  among = {'q1': ['d3', 'd2'], 'q2': []}
  found = model.search(QUERIES, **how, top_k=1, top_ranked=among)
  assert [list(x) for x in found.values()] == [['d3'], []]
  assert model.search([], **how, top_k=1) == {}
