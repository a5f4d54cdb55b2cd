# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A REALM as if it were trained, on the data of `tiny_realm` with questions."""

import dataclasses
import json
import pathlib

import grain

from experiments.engine import checkpoint_writer
from realm_jax.trained import model_configs
from tests.experiments.realm import tiny_realm
from tests.realm_jax.nn import tiny

STEP = 7
QUESTIONS = (
  {'question': 'When stood the mill in Rome?', 'answer': ['1066', '1999']},
  {'question': 'the river crown of Paris', 'answer': ['crown was']},
  {'question': 'What?', 'answer': ['nowhere']},
)


def make_data(root: pathlib.Path) -> pathlib.Path:
  """Writes a data folder with questions.jsonl in it."""
  tiny_realm.make_data(root)
  lines = '\n'.join(json.dumps(question) for question in QUESTIONS)
  (root / 'questions.jsonl').write_text(lines)
  return root


def get_config(data: pathlib.Path, **fields):
  """The config of `tiny_realm`."""
  return tiny_realm.get_config(str(data), **fields)


def recall(data: pathlib.Path) -> dict:
  """Field of `evaluate.Evaluate` for the questions."""
  return {'questions': (str(data / 'questions.jsonl'),)}


def save(root: pathlib.Path, data: pathlib.Path) -> pathlib.Path:
  """The checkpoint of a model whose documents and predictions differ much."""
  config = get_config(data)
  folder = tiny_realm.data_of(config)
  params = tiny.params(
    model_configs.realm_config(config, folder.tokenizer.vocab_size), seed=1
  )
  with checkpoint_writer.Checkpoints(
    str(root),
    config=dataclasses.asdict(config),
    pipeline={},
    fingerprints=folder.fingerprints(),
  ) as saved:
    batches = iter(grain.MapDataset.range(1).to_iter_dataset())
    saved.save(STEP, {'params': params}, batches)
  return root
