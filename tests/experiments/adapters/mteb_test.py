# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Our classes under MTEB's protocols.

The slow test evaluates a task by MTEB itself, where MTEB_PYTHON names a Python that
has it and our requirements: a venv, say, with `pip install mteb` and this package.
"""

import inspect
import json
import os
import subprocess

import numpy as np
import pytest

from experiments.adapters import mteb as adapter
from tests.retrieval.nn import sentence_folders

PYTHON = os.environ.get('MTEB_PYTHON', '')
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


_SCRIPT = """
import json, sys, datasets, mteb
from mteb.abstasks import retrieval_dataset_loaders as loaders
from mteb.mocks.mock_tasks import retrieval as mocks
from mteb.models import models_protocols as protocols
from experiments.adapters import mteb as adapter

rows = map(datasets.Dataset.from_list, json.loads(sys.argv[1]))
judged = {'q1': {'a b': 1, 'd3': 2}, 'q2': {'d2': 1}}
split = loaders.RetrievalSplitData(
  **dict(zip(('corpus', 'queries'), rows)), relevant_docs=judged, top_ranked=None
)

class Task(mocks.MockRetrievalTask):
  data_loaded, dataset = True, {'default': {'test': split, 'val': split}}

encoder, search = adapter.Encoder(), adapter.Search(workdir=sys.argv[2])
assert isinstance(encoder, protocols.EncoderProtocol)
assert isinstance(search, protocols.SearchProtocol)
for model in (encoder, search):
  done = mteb.evaluate(model, [Task()], cache=None)
  print(done.task_results[0].scores['test'][0]['ndcg_at_10'])
"""


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason='MTEB_PYTHON is not set')
def test_mteb_evaluates_both(tmp_path):
  data = json.dumps([CORPUS, QUERIES])
  command = [PYTHON, '-c', _SCRIPT, data, str(tmp_path / 'run')]
  done = subprocess.run(
    command,
    env=os.environ | {'JAX_PLATFORMS': 'cpu', 'HF_HUB_OFFLINE': '1'},
    capture_output=True,
    text=True,
  )
  assert not done.returncode, done.stderr[-2000:]
  of_encoder, of_search = map(float, done.stdout.split()[-2:])
  # The long document with grade 1 stands before the short one with grade 2.
  best = 2 + 1 / np.log2(3)
  expected = ((1 + 2 / np.log2(3)) / best + 1) / 2
  assert of_search == pytest.approx(expected, abs=1e-4)
  assert of_encoder > 0.8
