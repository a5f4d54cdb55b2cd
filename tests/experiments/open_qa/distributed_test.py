# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Question answering as two processes and as one; snapshots of sharded parts."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from experiments.engine import loop, metric_writer
from experiments.open_qa import task as qa_task
from realm_jax.trained import embedders, index_builder
from retrieval.index import index_versions
from retrieval.nn import sharding
from tests import free_port, xla_flags
from tests.experiments.open_qa import tiny_open_qa

_TIMEOUT_SEC = 120
# Without dropout, which falls on other rows: processes interleave theirs.
_FIELDS = {'num_steps': 2, 'eval_batches': 0, 'optimizer.warmup_steps': 1} | {
  f'{bert}.dropout_rate': 0.0 for bert in ('embedder', 'encoder')
}


def _start_two(data, workdir, fields):
  """Two processes with one device each."""
  address = free_port.address()
  given = {
    'XLA_FLAGS': xla_flags.devices(1),
    'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',  # compiles sooner
  }
  script = [sys.executable, tiny_open_qa.__file__, str(data), str(workdir)]
  processes = []
  for i in range(2):
    with open(workdir.with_suffix(f'.{i}'), 'w') as log:
      arguments = [*script, address, str(i), json.dumps(fields)]
      processes.append(
        subprocess.Popen(arguments, env=os.environ | given, stderr=log)
      )
  return processes


def _losses(workdir):
  names = ('step', 'loss', 'early_loss', 'full_loss', 'grad_norm', 'index_step')
  return [
    {name: row[name] for name in names if name in row}
    for row in metric_writer.read(workdir)
  ]


@pytest.mark.slow
def test_two_processes_with_sharded_parameters_train_as_one(tmp_path):
  data = tiny_open_qa.make_data(tmp_path / 'data')
  two = _start_two(data, tmp_path / 'two', _FIELDS | {'mesh.fsdp': 2})
  config = qa_task.freeze(tiny_open_qa.get_config(data, **_FIELDS))
  devices = jax.devices()[:1]
  task = tiny_open_qa.task(config, tmp_path / 'one', devices)
  loop.train(task, config, str(tmp_path / 'one'), devices=devices)
  for i, process in enumerate(two):
    process.wait(timeout=_TIMEOUT_SEC)
    errors = (tmp_path / f'two.{i}').read_text()
    assert process.returncode == 0, errors[-3000:]
  one, other = _losses(tmp_path / 'one'), _losses(tmp_path / 'two')
  assert [row['step'] for row in one] == [1, 2] and one[0]['early_loss'] > 0
  for a, b in zip(one, other, strict=True):
    assert a == pytest.approx(b, abs=2e-5, rel=2e-5)
  found = [
    index_versions.VersionFolder(tmp_path / name / 'index').names()
    for name in ('one', 'two')
  ]
  assert found[0] == found[1] and len(found[0]) == 1


def test_snapshots_gather_what_is_sharded():
  mesh = sharding.make_mesh(data=2, fsdp=4, tensor=1)
  spec = jax.sharding.PartitionSpec('fsdp')
  whole = {'embedder': {'w': np.arange(32.0).reshape(8, 4)}, 'reader': {}}
  split = jax.device_put(whole, jax.sharding.NamedSharding(mesh, spec))
  gathered = embedders.gather(mesh)(split['embedder'])
  assert gathered['w'].is_fully_replicated
  assert not split['embedder']['w'].is_fully_replicated
  found = index_builder.snapshot(split)
  np.testing.assert_array_equal(found['embedder']['w'], whole['embedder']['w'])
  assert isinstance(found['embedder']['w'], np.ndarray)
  assert 'reader' not in found
