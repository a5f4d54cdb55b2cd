# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Prepare data, train, evaluate and sample a RETRO and its baseline.

Prepares the data, trains RETRO and its baseline without retrieval on equal tokens,
evaluates both in bits per byte, samples, and lists the written folders. Any RETRO
config works; a killed run continues when started again.
"""

import dataclasses
import pathlib
import time

from absl import logging

from experiments import sample as sample_lib
from experiments.engine import optimizers
from experiments.retro import (
  config as config_lib,
  evaluate as retro_evaluate,
  prepare as retro_prepare,
  task as retro_task,
)

Quickstart = retro_evaluate.Evaluate


def quickstart(
  config: config_lib.Config, workdir: str, evaluate: Quickstart
) -> None:
  """Run every unfinished stage, then list the written folders."""
  start = time.monotonic()
  optimizers.warmup_steps(config.optimizer, config.num_steps)  # before all work
  root = pathlib.Path(workdir)
  data_dir = config.data_dir or str(root / 'data')
  retro, baseline = (
    dataclasses.replace(config, data_dir=data_dir, retrieval=retrieval)
    for retrieval in (True, False)
  )
  evaluate = dataclasses.replace(
    evaluate, baseline_workdir=str(root / 'baseline')
  )
  logging.info('Everything is written to %s.', root)
  retro_prepare.prepare(retro, workdir, retro_prepare.Prepare())
  retro_task.train(retro, str(root / 'retro'))
  retro_task.train(baseline, str(root / 'baseline'))
  retro_evaluate.evaluate(retro, str(root / 'retro'), evaluate)
  sample_lib.run(retro, str(root / 'retro'), sample_lib.Sample())

  if config.start_from:
    print(
      f'Both models went on from {config.start_from}, the baseline from its '
      'decoder. That favors RETRO if the decoder learned beside neighbors.'
    )
  minutes = (time.monotonic() - start) / 60
  print(f'Done in {minutes:.1f} minutes. What lies where:')
  for path, what in (
    (data_dir, 'tokenizer, tokens, chunks, vectors, index, neighbors'),
    (root / 'retro', 'RETRO: checkpoints, metrics.jsonl, TensorBoard events'),
    (root / 'retro' / 'evaluation.json', 'the table above'),
    (root / 'baseline', 'the baseline without retrieval: the same files'),
  ):
    print(f'  {path}: {what}')
