# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of the demonstration that need no cluster."""

import subprocess
import sys

import numpy as np
import pytest

from experiments.scale import demonstrate
from retrieval.nn import embedders


def _process(code):
  return subprocess.Popen(
    [sys.executable, '-c', code], stderr=subprocess.PIPE, text=True
  )


def test_costs_are_those_of_each_stage():
  names = [*demonstrate._STAGES, 'evaluation']
  code = f"""
import sys, time
kept = b''
for name in {names}:
  print(f'Stage {{name}}, in x.', file=sys.stderr, flush=True)
  time.sleep(0.3)
  if name == 'vectors':
    kept = b'x' * (64 << 20)
    time.sleep(0.5)
    kept = b''
"""
  costs = demonstrate.wait(_process(code))
  assert [*costs] == [*demonstrate._STAGES]
  assert min(cost.sec for cost in costs.values()) > 0.2
  largest = max(costs, key=lambda x: costs[x].anonymous)
  assert largest == 'vectors' and costs['vectors'].sec > 0.7
  failing = "import sys; sys.exit('Stage tokens, in x.')"
  with pytest.raises(ValueError, match='Stage tokens'):
    demonstrate.wait(_process(failing))


def test_a_shorter_encoder_has_the_first_layers(tmp_path):
  demonstrate.shorten(tmp_path / 'short', 2)
  short = embedders.Embedder.load(tmp_path / 'short', max_length=16)
  whole = embedders.Embedder.load('minilm', max_length=16)
  assert (short.config.num_layers, whole.config.num_layers) == (2, 6)
  vectors = [x.embed_texts(['a text']) for x in (short, whole)]
  assert np.abs(vectors[0] - vectors[1]).max() > 0.01


def test_other_bytes_are_named(tmp_path):
  for name, content in (('a', 'x'), ('b', 'x'), ('c', 'y')):
    (tmp_path / name / 'data').mkdir(parents=True)
    (tmp_path / name / 'data' / 'file').write_text(content)
    (tmp_path / name / 'data' / 'index.json').write_text(name)  # has times
  wanted = demonstrate.hashes(tmp_path / 'a')
  demonstrate.check(wanted, tmp_path / 'b')
  with pytest.raises(ValueError, match='c: 1 of 1 '):
    demonstrate.check(wanted, tmp_path / 'c')
