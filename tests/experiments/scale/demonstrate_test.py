# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of the demonstration that need no cluster."""

import threading

import numpy as np
import pytest

from experiments.scale import demonstrate
from retrieval.nn import embedders


class _Process:
  """A command that takes memory in its third stage, when that has been sampled."""

  pid = 7

  def __init__(self, *names, failed=False):
    self._names, self._failed = names, failed
    self.sampled, self.memory = threading.Event(), 1

  def status_bytes(self, line, process):
    assert process == self.pid
    found = self.memory + (line == 'VmRSS')
    self.sampled.set()
    return found

  @property
  def stderr(self):
    for i, name in enumerate(self._names):
      yield f'Stage {name}, in x.\n'
      self.memory = 50 if i == 2 else 1
      for _ in range(3):  # the first ones may have begun before
        self.sampled.clear()
        assert self.sampled.wait(60)
      self.memory = 1

  def wait(self):
    return self._failed

  def kill(self):
    pass


def test_costs_are_those_of_each_stage(monkeypatch):
  process = _Process(*demonstrate._STAGES, 'evaluation')
  monkeypatch.setattr(demonstrate.turns, 'status_bytes', process.status_bytes)
  costs = demonstrate.wait(process)
  assert [*costs] == [*demonstrate._STAGES]
  peaks = {name: (x.anonymous, x.resident) for name, x in costs.items()}
  assert peaks == {
    name: (50, 51) if name == 'chunks' else (1, 2) for name in costs
  }
  assert min(cost.sec for cost in costs.values()) > 0
  process = _Process('verify', 'tokens', failed=True)
  monkeypatch.setattr(demonstrate.turns, 'status_bytes', process.status_bytes)
  with pytest.raises(ValueError, match='Stage tokens'):
    demonstrate.wait(process)


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
