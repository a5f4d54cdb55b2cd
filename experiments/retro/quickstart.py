# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Prepare data, train, evaluate and sample a RETRO in one command.

  python -m experiments.retro.quickstart \
    --config=configs/retro_pretrain_quickstart.py --workdir=runs/quickstart

Prepares the data, trains RETRO and its baseline without retrieval on equal tokens,
evaluates both in bits per byte, samples, and lists the written folders. Any RETRO
config works; a killed run continues when started again.
"""

import pathlib
import time

from absl import logging
import ml_collections

from experiments.engine import command, progress
from experiments.retro import (
  evaluate as retro_evaluate,
  prepare as retro_prepare,
  sample as retro_sample,
  settings as settings_lib,
  train as retro_train,
)


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Run every unfinished stage, then list the written folders."""
  start = time.monotonic()
  root = pathlib.Path(workdir)
  data_dir = config.data_dir or str(root / 'data')
  retro = command.changed(config, data_dir=data_dir, retrieval=True)
  retro.evaluate.baseline_workdir = str(root / 'baseline')
  baseline = command.changed(config, data_dir=data_dir, retrieval=False)

  logging.info('Everything is written to %s.', root)
  retro_prepare.run(retro, workdir)
  retro_train.run(retro, str(root / 'retro'))
  retro_train.run(baseline, str(root / 'baseline'))
  retro_evaluate.run(retro, str(root / 'retro'))
  retro_sample.run(retro, str(root / 'retro'))

  console = progress.console()
  minutes = (time.monotonic() - start) / 60
  console.print(f'Done in {minutes:.1f} minutes. What lies where:')
  for path, what in (
    (data_dir, 'tokenizer, tokens, chunks, vectors, index, neighbors'),
    (root / 'retro', 'RETRO: checkpoints, metrics.jsonl, TensorBoard events'),
    (root / 'retro' / 'evaluation.json', 'the table above'),
    (root / 'baseline', 'the baseline without retrieval: the same files'),
  ):
    console.print(f'  {path}: {what}')


if __name__ == '__main__':
  command.main(run, settings_lib.Settings)
