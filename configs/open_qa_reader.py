# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The reader that comes with the package; two CPU cores.

BM25 finds the blocks, so that the reader goes with any corpus at once. It learns to
read from SQuAD's paragraphs, then to choose among the packaged articles.

  python -m experiments.qa_train --config=configs/open_qa_reader.py \
    --config.corpus.kind=squad --config.corpus.path=SQUAD.json \
    --config.questions.train="('squad_open:train=SQUAD.json',)" \
    --config.questions.dev="('squad_open:dev=SQUAD.json',)" \
    --config.questions.allow_other_counts=True --workdir=runs/squad
"""

import ml_collections

from configs import open_qa_base
from configs import open_qa_quickstart


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the configuration; see open_qa_base for `arg`."""
  config = open_qa_quickstart.get_config(arg)
  if arg in ('base', 'test'):
    config.retriever = 'bm25'
    config.loss.early_weight = 0.0  # no retriever learns from it
  if not arg.endswith('test'):
    config.lookup.reader_beam = 2
    config.lookup.retriever_beam = 50
  config.optimizer.warmup_steps = 50
  config.batch_size = 32
  config.optimizer.accumulate_steps = 8
  config.num_steps = 450
  config.eval_every = 150
  config.checkpoint_every = 150
  return open_qa_base.finish(config, arg)
