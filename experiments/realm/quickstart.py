# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM from text to explained predictions; a killed run continues."""

import dataclasses
import pathlib
import time

from absl import logging

from experiments.engine import progress
from experiments.realm import (
  config as config_lib,
  evaluate as evaluators,
  prepare,
  task,
)
from realm_jax.trained import loading

Quickstart = evaluators.Evaluate

# (text, answer) that are explained
_SENTENCES = (
  ('The Eiffel Tower stands in [MASK].', 'Paris'),
  ('The play Hamlet was written by William [MASK].', 'Shakespeare'),
  ('The Great Wall was built by ancient [MASK] states.', 'Chinese'),
)


def quickstart(
  config: config_lib.Config, workdir: str, evaluate: Quickstart
) -> None:
  """Run every unfinished stage and print the results."""
  start, root = time.monotonic(), pathlib.Path(workdir)
  data_dir = config.data_dir or str(root / 'data')
  config = dataclasses.replace(config, data_dir=data_dir)
  logging.info('Everything is written to %s.', root)
  prepare.prepare(config, workdir)
  # A BERT has learned to predict masked words; all-MiniLM-L6-v2 has not.
  if not config.encoder_from and config.encoder.checkpoint in ('', 'minilm'):
    encoder = str(root / 'mlm')
    task.train(config_lib.warm_start(config), encoder)
    config = dataclasses.replace(config, encoder_from=encoder)
  task.train(config, workdir)
  evaluators.evaluate(config, workdir, evaluate)
  trained = loading.load(workdir, data_dir, part='realm')
  for text, answer in _SENTENCES:
    print(trained.explain(text, answer))
  console = progress.console()
  minutes = (time.monotonic() - start) / 60
  console.print(f'Done in {minutes:.1f} minutes. Results:')
  rows = [
    (data_dir, 'tokenizer, tokens, blocks, salient spans'),
    (root, 'REALM: checkpoints, index, metrics.jsonl, TensorBoard events'),
    (root / evaluators.FILE, 'the measures above'),
    (
      config.encoder_from or config.encoder.checkpoint,
      'the warm start of the encoder',
    ),
  ]
  for path, what in rows:
    console.print(f'  {path}: {what}')
