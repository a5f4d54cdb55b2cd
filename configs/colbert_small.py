# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ColBERT over the packaged vital articles of Wikipedia; one CPU core.

Khattab and Zaharia 2020: late interaction from all-MiniLM-L6-v2, vectors of 128.

  python -m experiments.open_qa.train --config=configs/colbert_small.py \
    --config.questions.train="('webquestions:train=trainmodel.json,val.json,devtest.json',)" \
    --workdir=runs/colbert
  python -m experiments.open_qa.retrieve --kinds=bm25,dense,colbert \
    --config.colbert_index.model=runs/colbert \
    --config.evaluate.questions="('webquestions:test=test.json',)"

A step takes 5 s of one core, the index of 12,908 blocks 7 minutes. Scores after 40
steps: docs/results_open_qa.md, "Late interaction". Argument: base, or test for a size that runs in
seconds.
"""

import ml_collections

from configs.bases import open_qa_base, sections
from retrieval.nn import colbert


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration."""
  sections.check_arg(arg, ('base', 'test'))
  config = open_qa_base.vital(arg)
  config.task = 'colbert'
  config.colbert = sections.of(
    colbert.ColbertConfig, passage_length=config.blocks.max_length
  )
  config.optimizer.update(
    learning_rate=5e-5,
    accumulate_steps=1,  # negatives are of the whole batch
  )
  config.optimizer.part_scales = {'linear': 4.0}  # starts at random
  config.update(
    batch_size=16,
    num_steps=100,
    eval_every=50,
    eval_batches=8,
    checkpoint_every=25,
  )
  config = open_qa_base.finish(config, arg)
  if arg == 'test':
    config.colbert.update(vector_size=16, passage_length=48)
    config.colbert_index.update(sample_blocks=64, shard_blocks=64)
  return config
