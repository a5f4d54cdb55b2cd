# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions answered from the packaged vital articles of Wikipedia; two CPU cores.

The retriever starts from all-MiniLM-L6-v2, the reader from the packaged one; the
questions are Red-Trivia's.

  python -m experiments.open_qa.train --config=configs/open_qa_quickstart.py \
    --workdir=runs/qa
  python -m experiments.open_qa.ask --workdir=runs/qa \
    --question='What is the capital of Mongolia?'

Eleven minutes on two cores that did other work, too, three of them for the vectors
of 12,908 blocks. Then 28.5 % of the 200 test questions
are answered exactly (experiments.open_qa.evaluate), 15.0 % by the packaged reader and
BM25; an answer stands in the five blocks read for 38.0 %.
"""

import ml_collections

from configs import open_qa_base
from configs import open_qa_small

# Lists of which the articles hold many answers.
_LISTS = 'artandliterature,computers,elements,general,greekmyth,worldcapitals'


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the configuration; see open_qa_base for `arg`."""
  config = open_qa_small.get_config(arg)
  config.corpus.kind = 'vital'
  if not arg.endswith('test'):
    config.corpus.max_documents = 0
    config.blocks.max_length = 128
    config.lookup.row_length = 152
    config.encoder_from = 'packaged'
    config.optimizer.learning_rate = 5e-5
    config.optimizer.part_scales = {'embedder': 0.2}
    config.optimizer.accumulate_steps = 16  # what holds no answer is not read
    config.num_steps = 100
    config.eval_every = 50
    config.checkpoint_every = 50
  config.questions.train = (f'red_trivia:train={_LISTS}',)
  config.questions.dev = (f'red_trivia:dev={_LISTS}',)
  config.evaluate.questions = (f'red_trivia:test={_LISTS}',)
  return open_qa_base.finish(config, arg)
