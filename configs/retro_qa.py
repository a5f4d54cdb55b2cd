# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A RETRO fine-tuned on questions (arXiv 2112.04426, section 4.3, appendix C.4).

Model, tokenizer and datastore are those of the run that retro_from names; the
embedder has to be the one that made its datastore. Argument:

  base   the paper's settings: a RETRO 7.5B, 20 passages
  small  two CPU cores, from the runs of retro_pretrain_small
  test   a CPU in seconds

  python -m experiments.retro_qa.train --config=configs/retro_qa.py:small \
    --config.retro_from=runs/simplewiki/retro \
    --config.questions.train="('webquestions:train=train.json',)" \
    --config.questions.dev="('webquestions:dev=train.json',)" \
    --workdir=runs/simplewiki/qa
  python -m experiments.retro_qa.evaluate --config=configs/retro_qa.py:small \
    --config.evaluate.questions="('webquestions:test=test.json',)" \
    --workdir=runs/simplewiki/qa

With --config.retro_from=runs/simplewiki/baseline it is the closed-book model.
"""

import ml_collections

from configs.bases import retro_base, sections
from experiments.engine import run_settings
from experiments.retro import settings

ARGS = ('base', 'small', 'test')


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration: the paper's settings, small ones, or a test's."""
  sections.check_arg(arg, ARGS)
  config = retro_base.get_config()
  config.task = 'retro_qa'
  config.retro_from = ''  # workdir of a RETRO, or of a baseline: closed book
  config.questions = sections.of(run_settings.Questions)
  config.qa = sections.of(
    settings.Qa, without=('num_neighbors', 'neighbor_length')
  )
  config.optimizer.update(
    learning_rate=1e-6,
    initial_learning_rate=0.0,
    warmup_steps=750,
    final_fraction=0.1,
  )
  config.update(
    batch_size=128, num_steps=25_000, eval_every=1000, checkpoint_every=1000
  )
  config.evaluate.update(
    questions=(),  # sets as in config.questions
    max_questions=0,  # of each set; 0: all
    batch_size=16,
  )
  if arg == 'small':
    config.qa.num_passages = 5
    config.optimizer.update(learning_rate=3e-4, warmup_steps=50)
    config.update(
      batch_size=16,
      num_steps=600,
      log_every=20,
      eval_every=200,
      eval_batches=10,
      checkpoint_every=200,
    )
  elif arg == 'test':
    retro_base.finish(config, arg)
    config.qa.update(num_passages=2, prompt_chunks=3, answer_length=6)
    config.evaluate.batch_size = 4
  return config
