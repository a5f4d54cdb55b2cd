# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The argument of RETRO's configs: base, or baseline for the same decoder alone.

test and baseline_test are of a size that runs on a CPU in seconds.
"""

from experiments.engine import configs

ARGS = ('base', 'baseline', 'test', 'baseline_test')


def finish(c: configs.Config, arg: str) -> configs.Config:
  """Apply the argument: the baseline's one field, the test size."""
  configs.check_arg(arg, ARGS)
  if arg.startswith('baseline'):
    c.retrieval = False
  if arg.endswith('test'):
    _shrink(c)
  return c


def _shrink(c: configs.Config) -> None:
  """Cut everything to a size that a CPU runs in seconds."""
  c.corpus.max_documents = 120
  c.tokenizer.vocab_size = 600
  c.tokens.num_processes = 1
  c.tokens.documents_per_shard = 50
  c.valid_fraction = c.test_fraction = 0.1
  c.index.num_queries = 20
  c.neighbors.stored = 4
  c.model.chunk_length = 16
  c.model.neighbor_length = 32
  c.model.d_model = c.model.encoder_d_model = 32
  c.model.d_ff = c.model.encoder_d_ff = 64
  c.model.num_heads = c.model.encoder_num_heads = 2
  c.model.head_dim = c.model.encoder_head_dim = 16
  c.model.num_layers = 2
  c.model.cca_layers = (2,)
  c.model.encoder_num_layers = 1
  c.model.share_embeddings = True
  c.model.dtype = 'float32'
  c.model.remat = 'none'
  c.sequence_chunks = 4
  c.num_workers = 0
  c.batch_size = 8
  c.num_steps = 4
  c.log_every = 1
  c.eval_every = c.checkpoint_every = 2
  c.eval_batches = 1
  c.optimizer.learning_rate = 1e-3
  c.optimizer.warmup_steps = 2
  c.optimizer.accumulate_steps = 1
  c.mesh.data, c.mesh.fsdp, c.mesh.tensor = -1, 1, 1
  configs.for_command(
    c,
    'evaluate',
    max_documents=3,
    leakage={'num_neighbors': 4},
  )
  configs.for_command(c, 'sample', max_new_tokens=24)
