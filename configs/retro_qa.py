# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A RETRO fine-tuned on questions (arXiv 2112.04426, section 4.3, appendix C.4).

Model, tokenizer and datastore are those of the run that retro_from names; the
embedder has to be the one that made its datastore. Argument: base (the paper's
settings: a RETRO 7.5B, 20 passages), small (two CPU cores, from the runs of
retro_pretrain_small), test (seconds).

  C="--config=configs/retro_qa.py:small --workdir=runs/simplewiki/qa"
  python -m experiments.train $C --config.retro_from=runs/simplewiki/retro \
    --config.questions.train="('webquestions:train=train.json',)" \
    --config.questions.dev="('webquestions:dev=train.json',)"
  python -m experiments.evaluate $C \
    --config.evaluate.questions="('webquestions:test=test.json',)"

With --config.retro_from=runs/simplewiki/baseline it is the closed-book model.
"""

from configs import retro_variants
from experiments.engine import configs
from experiments.retro_qa.config import Config


def get_config(arg: str = 'base') -> configs.Config:
  configs.check_arg(arg, ('base', 'small', 'test'))
  c = configs.of(Config)
  # Passages.
  c.qa.num_passages = 20
  c.qa.answer_length = 32
  # Training; the sizes of the model are those of the run that it starts from.
  c.batch_size = 128
  c.num_steps = 25_000
  c.optimizer.learning_rate = 1e-6
  c.optimizer.initial_learning_rate = 0.0
  c.optimizer.warmup_steps = 750
  c.optimizer.final_fraction = 0.1
  c.log_every = 10
  c.eval_every = c.checkpoint_every = 1000
  c.eval_batches = 8
  if arg == 'small':
    c.qa.num_passages = 5
    c.batch_size = 16
    c.num_steps = 600
    c.optimizer.learning_rate = 3e-4
    c.optimizer.warmup_steps = 50
    c.log_every = 20
    c.eval_every = c.checkpoint_every = 200
    c.eval_batches = 10
  elif arg == 'test':
    retro_variants.finish(c, arg)
    c.qa.num_passages = 2
    c.qa.prompt_chunks = 3
    c.qa.answer_length = 6
    configs.for_command(c, 'evaluate', batch_size=4)
  return c
