# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of the demonstration that need no cluster."""

import subprocess
import sys

import numpy as np
import pytest

from experiments.scale import demonstrate
from retrieval.nn import embedders

# Takes memory in its third stage alone.
_COMMAND = """
import sys, time
for i, name in enumerate(sys.argv[1:]):
  print(f'Stage {name}, in x.', file=sys.stderr, flush=True)
  held = b'x' * (i == 2) * (64 << 20)
  time.sleep(0.3)
  del held
sys.exit(len(sys.argv) == 3)
"""


def _started(*names):
  return subprocess.Popen(
    [sys.executable, '-c', _COMMAND, *names],
    stderr=subprocess.PIPE,
    text=True,
  )


def test_costs_are_those_of_each_stage():
  names = [*demonstrate._STAGES, 'evaluation']
  costs = demonstrate._wait(_started(*names))
  assert [*costs] == [*demonstrate._STAGES]
  for name, cost in costs.items():
    assert 0.2 < cost.sec
    if cost.resident:  # on Linux
      assert (cost.anonymous > 64 << 20) == (name == 'chunks')
  with pytest.raises(ValueError, match='(?s)prepare: .*Stage tokens'):
    demonstrate._wait(_started('verify', 'tokens'))


def test_a_shorter_encoder_has_the_first_layers(tmp_path):
  demonstrate._shorten(tmp_path / 'short', 2)
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
  wanted = demonstrate._hashes(tmp_path / 'a')
  demonstrate._check(wanted, tmp_path / 'b')
  with pytest.raises(ValueError, match='c: 1 of 1 files differ'):
    demonstrate._check(wanted, tmp_path / 'c')
