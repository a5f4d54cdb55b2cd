# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A REALM as if it were trained, on the data of `tiny_realm` with questions."""

import dataclasses
import json
import pathlib

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


def save(root: pathlib.Path, data: pathlib.Path) -> pathlib.Path:
  """The checkpoint of a model whose documents and predictions differ much."""
  config = tiny_realm.get_config(str(data))
  folder = tiny_realm.data_of(config)
  model = model_configs.realm_config(config, folder.tokenizer.vocab_size)
  checkpoint_writer.save_params(
    str(root),
    tiny.params(model, seed=1),
    config=dataclasses.asdict(config),
    step=STEP,
    fingerprints=folder.fingerprints(),
  )
  return root
