# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Our classes under MTEB's protocols.

The slow test evaluates a task by MTEB itself, where MTEB_PYTHON names a Python that
has it and our requirements: a venv, say, with `pip install mteb` and this package.
"""

import inspect
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

from experiments.adapters import mteb as adapter
from tests.retrieval.nn import sentence_folders

PYTHON = os.environ.get('MTEB_PYTHON', '')
# Keyword arguments of MTEB 2.26's calls, in mteb/models/models_protocols.py.
TASK = {'task_metadata': None, 'hf_split': 'test', 'hf_subset': 'default'}
DOCUMENTS = {
  'a b': ('Mill', 'The old mill of Rome ran past a river. ' * 40),
  'd2': ('The crown', ''),
  'd3': ('', 'A river ran past the mill.'),
  'd4': ('', ''),
}
QUERIES = {'q1': 'mill of Rome', 'q2': 'crown'}


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
  rows = [
    {'id': key, 'title': title, 'text': text}
    for key, (title, text) in DOCUMENTS.items()
  ]
  model.index(rows, **how)
  asked = [{'id': key, 'text': text} for key, text in QUERIES.items()]
  found = model.search(asked, **how, top_k=3)
  assert [list(x) for x in found.values()] == [['a b', 'd3'], ['d2']]
  assert found['q1']['a b'] > found['q1']['d3'] > 0
  among = {'q1': ['d3', 'd2'], 'q2': []}
  found = model.search(asked, **how, top_k=1, top_ranked=among)
  assert [list(x) for x in found.values()] == [['d3'], []]


_SCRIPT = """
import json, sys
from datasets import Dataset
import mteb
from mteb.abstasks import retrieval_dataset_loaders as loaders
from mteb.mocks.mock_tasks import retrieval as mocks
from mteb.models import models_protocols as protocols
from experiments.adapters import mteb as adapter

documents, queries = json.loads(sys.argv[1])

class Task(mocks.MockRetrievalTask):
  def load_data(self, **kwargs):
    split = loaders.RetrievalSplitData(
      corpus=Dataset.from_list([
        {'id': k, 'title': x, 'text': y} for k, (x, y) in documents.items()
      ]),
      queries=Dataset.from_list([
        {'id': k, 'text': x} for k, x in queries.items()
      ]),
      relevant_docs={'q1': {'a b': 1, 'd3': 2}, 'q2': {'d2': 1}},
      top_ranked=None,
    )
    self.dataset = {'default': {'test': split, 'val': split}}
    self.data_loaded = True

encoder, search = adapter.Encoder(), adapter.Search(workdir=sys.argv[2])
assert isinstance(encoder, protocols.EncoderProtocol)
assert isinstance(search, protocols.SearchProtocol)
found = {}
for model in (encoder, search):
  done = mteb.evaluate(model, [Task()], cache=None)
  found[model.mteb_model_meta.name] = done.task_results[0].scores['test'][0]
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason='MTEB_PYTHON is not set')
def test_mteb_evaluates_both(tmp_path):
  data = json.dumps([DOCUMENTS, QUERIES])
  command = [PYTHON, '-c', _SCRIPT, data, str(tmp_path / 'run')]
  done = subprocess.run(
    command,
    cwd=pathlib.Path(__file__).parents[3],
    env=os.environ | {'JAX_PLATFORMS': 'cpu', 'HF_HUB_OFFLINE': '1'},
    capture_output=True,
    text=True,
  )
  assert not done.returncode, done.stderr[-2000:]
  found = json.loads(done.stdout.splitlines()[-1])
  # The long document with grade 1 stands before the short one with grade 2.
  best = 2 + 1 / np.log2(3)
  expected = ((1 + 2 / np.log2(3)) / best + 1) / 2
  assert found['local/bm25']['ndcg_at_10'] == pytest.approx(expected, abs=1e-4)
  assert found['local/minilm']['ndcg_at_10'] > 0.8
