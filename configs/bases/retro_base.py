# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The base of every RETRO experiment (Borgeaud et al. 2021, arXiv 2112.04426).

Data stages, model choices that the paper leaves open, optimizer and loop. The
other files retro_*.py set sizes. Argument of their get_config:

  base           RETRO
  baseline       RETRO with `retrieval` off: no encoder, no chunked cross-attention,
                 equal tokens
  test           RETRO at a size that runs on a CPU in seconds
  baseline_test  its baseline
"""

import ml_collections
from ml_collections import config_dict

from configs.bases import sections
from experiments.engine import optimizers, run_settings
from experiments.retro import settings
from retrieval.search import colbert_index
from retrieval.store import ray_cluster
from retro_jax.decoding import drawing
from retro_jax.nn import config as config_lib

ARGS = ('base', 'baseline', 'test', 'baseline_test')


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the shared configuration; sizes are those of the quickstart."""
  sections.check_arg(arg, ARGS)
  config = ml_collections.ConfigDict()
  config.task = 'retro'  # or retro_qa, for experiments.retro_qa.train
  config.seed = 0
  config.retrieval = True  # False: the baseline

  # Workdir of a baseline whose decoder is frozen and given retrieval (RETROfit); ''
  # trains all weights from the start.
  config.retrofit_from = ''

  # Data. '' stands for <workdir>/data; give the folder to share it.
  config.data_dir = ''
  config.corpus = sections.corpus('vital')
  config.tokenizer = sections.of(settings.Tokenizer)
  config.tokens = sections.of(settings.Tokens)
  # Shares of documents held out; training looks at `valid`.
  config.valid_fraction = 0.01
  config.test_fraction = 0.01
  config.deduplicate = sections.of(settings.Deduplicate)
  config.embedder = sections.of(settings.Embedder)
  config.index = sections.index(without=('recall_at',))
  config.neighbors = sections.of(settings.Neighbors)
  config.colbert_index = sections.of(colbert_index.Section)
  config.evaluation = sections.of(settings.Evaluation)
  config.prepare = sections.of(run_settings.Prepare)
  config.cluster = sections.of(ray_cluster.Cluster)

  # The tokenizer gives vocab_size.
  config.model = sections.of(
    config_lib.RetroConfig,
    d_model=256,
    d_ff=1024,
    num_heads=8,
    head_dim=32,
    num_layers=6,
    cca_layers=(3, 6),
    encoder_d_model=256,
    encoder_d_ff=1024,
    encoder_num_heads=8,
    encoder_head_dim=32,
    share_embeddings=True,
  )

  # Batches.
  config.sequence_chunks = 8  # l; a sequence has l * m tokens
  config.batch_size = 8  # sequences
  config.num_neighbors = 2  # k in training
  config.neighbor_part = 'full'  # [N, F]; or neighbor, continuation
  config.num_workers = 0  # loader processes

  # Optimizer and schedule (section B.1 of the paper).
  config.optimizer = sections.of(
    optimizers.OptimizerConfig,
    without=('name', 'schedule', 'decay_mask', 'part_scales'),
    learning_rate=1e-3,
    warmup_steps=50,
  )
  config.update(
    sections.loop(
      num_steps=250, eval_every=100, eval_batches=8, checkpoint_every=100
    )
  )

  config.evaluate = sections.of(
    settings.Evaluate,
    without=('questions', 'max_questions'),
    workdir=sections.workdir(),
    overlap=config_dict.placeholder(float),
  )
  config.leakage = sections.of(settings.Leakage)
  config.sweep = sections.of(settings.Sweep)
  config.examples = sections.of(settings.Examples)
  config.sample = sections.of(
    drawing.SamplingConfig,
    without=('context_chunks', 'stop_ids', 'stop_strings', 'banned_ids'),
    temperature=0.8,
    top_p=0.95,
  )
  return config


def small(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return a RETRO of 10.3 M parameters for two CPU cores, on JSON lines.

  retro_pretrain_small runs it, retro_ablations changes one field at a time, and
  knn_lm_small sets a kNN-LM beside it.
  """
  config = get_config(arg)
  config.corpus.kind = 'jsonl'
  config.tokenizer.vocab_size = 1024  # few tokens, each soon well known
  config.valid_fraction = config.test_fraction = 0.005
  config.model.update(
    d_model=320,
    d_ff=1280,
    num_heads=10,
    num_layers=6,
    cca_layers=(3, 6),
    encoder_d_model=320,
    encoder_d_ff=640,
    encoder_num_heads=5,
    encoder_head_dim=32,
    encoder_num_layers=1,
    copy_init=True,  # 10^7 tokens are too few to learn to copy
    position_base=100.0,  # wavelengths up to 628 tokens, about a row
    init_scale=0.055,  # of a matrix of 320 rows: activations keep their size
  )
  config.optimizer.update(learning_rate=1.2e-3, warmup_steps=100)
  config.update(
    batch_size=4,
    num_steps=2000,
    log_every=25,
    eval_every=200,
    eval_batches=30,
    checkpoint_every=200,
  )
  config.evaluate.num_neighbors = (2, 1, 4)
  return config


def published(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the settings of all models of the paper (Tables 2 and 10, section B.1).

  Sequences of 2048 tokens, a vocabulary of 128,000, one encoder, 419 B tokens.
  The logits bound a device's memory: 2048 x 128,000 x 4 bytes = 1.05 GB for
  each sequence, and their gradient as much again. Batches are therefore cut
  into microbatches (`optimizer.accumulate_steps`). Callers set the decoder's
  sizes, the batch and the mesh.
  """
  config = get_config(arg)
  config.corpus.kind = 'jsonl'
  config.tokenizer.vocab_size = 128_000
  config.valid_fraction = config.test_fraction = 0.0005
  config.deduplicate.threshold = 0.8
  config.model.update(
    encoder_d_model=896,
    encoder_d_ff=3584,
    encoder_num_heads=16,
    encoder_head_dim=64,
    share_embeddings=False,
    dtype='bfloat16',
    remat='attention',
  )
  config.optimizer.update(learning_rate=2e-4, warmup_steps=750)
  config.update(
    sequence_chunks=32,
    num_workers=8,
    num_steps=800_000,
    log_every=100,
    eval_every=5000,
    eval_batches=64,
    checkpoint_every=5000,
  )
  return config


def finish(
  config: ml_collections.ConfigDict, arg: str
) -> ml_collections.ConfigDict:
  """Apply the argument: the baseline's one field, the test size."""
  if arg.startswith('baseline'):
    config.retrieval = False
  if arg.endswith('test'):
    _shrink(config)
  return config


def _shrink(config: ml_collections.ConfigDict) -> None:
  """Cut everything to a size that a CPU runs in seconds."""
  sections.shrink_loop(config)
  config.corpus.max_documents = 120
  config.tokenizer.vocab_size = 600
  config.tokens.documents_per_shard = 50
  config.valid_fraction = config.test_fraction = 0.1
  config.index.num_queries = 20
  config.neighbors.stored = 4
  config.model.update(
    chunk_length=16,
    neighbor_length=32,
    d_model=32,
    d_ff=64,
    num_heads=2,
    head_dim=16,
    num_layers=2,
    cca_layers=(2,),
    encoder_d_model=32,
    encoder_d_ff=64,
    encoder_num_heads=2,
    encoder_head_dim=16,
    encoder_num_layers=1,
    dtype='float32',
    share_embeddings=True,
    remat='none',
  )
  config.sequence_chunks = 4
  config.num_workers = 0
  config.evaluate.update(max_documents=3, batch_size=8)
  config.leakage.num_neighbors = 4
  config.sweep.update(num_neighbors=(0, 1, 4), shares=(1.0, 0.3))
  config.sample.max_new_tokens = 24
