# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Run REALM from text to explained predictions in one command.

  python -m experiments.realm.quickstart \
    --config=configs/realm_pretrain_quickstart.py --workdir=runs/quickstart/realm

The command takes any REALM config. After a kill the same command continues.
"""

import pathlib
import time

from absl import logging
import ml_collections

from experiments.engine import command, progress
from experiments.realm import (
  evaluate as realm_evaluate,
  explain as realm_explain,
  prepare as realm_prepare,
  settings as settings_lib,
  train as realm_train,
  warm_start,
)
from realm_jax.serving import trained_models


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Run every unfinished stage and print the results."""
  start = time.monotonic()
  root = pathlib.Path(workdir)
  data_dir = config.data_dir or str(root / 'data')
  realm = command.changed(config, data_dir=data_dir)
  logging.info('Everything is written to %s.', root)
  realm_prepare.run(realm, workdir)
  if not realm.encoder_from:
    realm.encoder_from = warm_start.train(realm, 'mlm', root)
  realm_train.run(realm, workdir)
  realm_evaluate.run(realm, workdir)
  trained = trained_models.load(workdir, data_dir, part='realm')
  for text, answer in config.explain.sentences:
    realm_explain.print_explained(
      trained.explain(text, answer, top=config.explain.top)
    )
  console = progress.console()
  minutes = (time.monotonic() - start) / 60
  console.print(f'Done in {minutes:.1f} minutes. Results:')
  rows = [
    (data_dir, 'tokenizer, tokens, blocks, salient spans'),
    (root, 'REALM: checkpoints, index, metrics.jsonl, TensorBoard events'),
    (root / realm_evaluate.FILE, 'the measures above'),
  ]
  if realm.encoder_from:
    rows.append((realm.encoder_from, 'the warm start of the encoder'))
  for path, what in rows:
    console.print(f'  {path}: {what}')


if __name__ == '__main__':
  command.main(run, settings_lib.Settings)
