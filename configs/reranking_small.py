# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A cross-encoder of all-MiniLM-L6-v2's size that re-ranks; two CPU cores.

Nogueira and Cho 2019 (arXiv 1901.04085); loss of Gao et al. 2021 (arXiv
2101.08751). Argument of get_config:

  base    questions and blocks
  chunks  RETRO's chunks and their neighbors
  test    either at a size that runs on a CPU in seconds; also chunks_test
"""

import ml_collections

from configs.bases import sections
from experiments.engine import optimizers, run_settings
from experiments.reranking import settings
from retrieval.nn import bert, cross_encoder

ARGS = ('base', 'chunks', 'test', 'chunks_test')


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration."""
  sections.check_arg(arg, ARGS)
  config = ml_collections.ConfigDict()
  config.update(
    task='cross_encoder',
    seed=0,
    data_dir='',
    valid_fraction=0.1,
    tokenizer='minilm',
    start='minilm',
    batch_size=8,
    questions=sections.of(run_settings.Questions),
    examples=sections.of(settings.Examples, num_negatives=3),
    layout=sections.of(cross_encoder.PairLayout),
    model=sections.of(
      bert.BertConfig,
      without=('pooler', 'param_dtype'),
      d_model=384,
      d_ff=1536,
      num_layers=6,
      dropout_rate=0.0,  # one short pass gives nothing to overfit
      attention_dropout_rate=0.0,
      dtype='float32',
    ),
    optimizer=sections.of(
      optimizers.OptimizerConfig,
      schedule='linear',
      learning_rate=5e-5,
      warmup_steps=20,
      initial_learning_rate=0.0,
      final_fraction=0.0,
      weight_decay=0.01,
      decay_mask='bert',
      b2=0.98,
    ),
    **sections.loop(
      num_steps=200,
      eval_every=50,
      eval_batches=8,
      checkpoint_every=50,
      best_metric='valid/mrr',
      best_mode='max',
    ),
  )
  if arg.startswith('chunks'):
    config.examples.kind = 'chunks'
    config.layout.update(query_length=48, row_length=144)
  if arg.endswith('test'):
    _shrink(config)
  return config


def _shrink(config: ml_collections.ConfigDict) -> None:
  """Cut everything to a size that a CPU runs in seconds."""
  config.start = ''
  config.model.update(
    d_model=16, d_ff=32, num_heads=2, num_layers=1, max_length=64
  )
  config.layout.update(query_length=12, row_length=48)
  config.examples.update(depth=10, num_kept=4, num_negatives=2, max_chunks=128)
  config.optimizer.update(learning_rate=1e-3, warmup_steps=2)
  config.update(
    batch_size=4,
    num_steps=4,
    log_every=1,
    eval_every=2,
    eval_batches=1,
    checkpoint_every=2,
  )
