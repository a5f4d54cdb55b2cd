# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What fine-tuning a RETRO on questions shares (arXiv 2112.04426, section 4.3).

Model, tokenizer and datastore are those of the run that retro_from names; the
embedder has to be the one that made its datastore. Arguments of get_config: base, and test, for a CPU in seconds.
"""

import ml_collections

from configs import retro_base

ARGS = ('base', 'test')


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the shared configuration: the paper's settings (appendix C.4)."""
  if arg not in ARGS:
    raise ValueError(f'Config argument {arg!r}: expected one of {ARGS}.')
  config = retro_base.get_config(arg)
  config.task = 'retro_qa'
  config.retro_from = ''  # workdir of a RETRO, or of a baseline: closed book

  # Questions: NAME:SPLIT or NAME:SPLIT=FILE,... each; retrieval/questions/question_sets.py.
  config.questions = {
    'train': (),
    'dev': (),
    'max_train': 0,  # of all; 0: all of them
    'max_dev': 0,
    # Whether files may hold another number of questions than is published.
    'allow_other_counts': False,
  }
  config.qa = {
    # Results of any retriever in DPR's JSON form; (): the nearest chunks of the
    # run's own datastore.
    'passages': (),
    'num_passages': 20,  # k
    'prompt_chunks': 1,  # "answer:" ends the last of them
    'answer_length': 32,  # most tokens of an answer
    'dropout_rate': 0.1,  # of the decoder alone [open]
  }

  config.batch_size = 128
  config.optimizer.learning_rate = 1e-6
  config.optimizer.initial_learning_rate = 0.0
  config.optimizer.warmup_steps = 750
  config.optimizer.final_fraction = 0.1
  config.num_steps = 25_000
  config.eval_every = 1000
  config.checkpoint_every = 1000

  config.evaluate.questions = ()
  config.evaluate.max_questions = 0  # of each set; 0: all
  config.evaluate.batch_size = 16
  return config


def finish(
  config: ml_collections.ConfigDict, arg: str
) -> ml_collections.ConfigDict:
  """Applies the argument: the test size."""
  if arg == 'test':
    retro_base.finish(config, arg)
    config.qa.num_passages = 2
    config.qa.prompt_chunks = 3
    config.qa.answer_length = 6
    config.evaluate.batch_size = 4
  return config
