# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What every RETRO experiment shares (Borgeaud et al. 2021, arXiv 2112.04426).

Data stages, model choices that the paper leaves open, optimizer and loop. The
files retro_pretrain_*.py set sizes. Argument of their get_config:

  base        RETRO
  baseline        the same file with `retrieval` off: no encoder, no chunked
              cross-attention, equal tokens
  test        RETRO at a size that runs on a CPU in seconds
  baseline_test   its baseline
"""

import ml_collections
from ml_collections import config_dict

from configs import sections

ARGS = ('base', 'baseline', 'test', 'baseline_test')


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the shared configuration; sizes are those of the quickstart."""
  if arg not in ARGS:
    raise ValueError(f'Config argument {arg!r}: expected one of {ARGS}.')
  config = ml_collections.ConfigDict()
  config.task = 'retro'  # what experiments.retro.train trains
  config.seed = 0
  config.retrieval = True  # the baseline's one difference

  # Workdir of a baseline whose decoder is frozen and given retrieval (RETROfit); ''
  # trains all weights from the start.
  config.retrofit_from = ''

  # Data. '' stands for <workdir>/data; give the folder to share it.
  config.data_dir = ''
  config.corpus = sections.corpus('vital')
  config.tokenizer = {
    'path': '',  # '' trains a SentencePiece model on the corpus
    'vocab_size': 8192,
    'max_documents': 20_000,  # that the tokenizer is trained on; 0: all
  }
  config.tokens = {
    'with_title': True,  # the title heads its document's text
    'documents_per_shard': 1024,
    'num_processes': 2,
  }
  config.valid_fraction = 0.02  # share of documents held out
  config.deduplicate = {
    # Training documents are left out whose n-grams of words have at least this
    # Jaccard similarity with an evaluation document's; 0 leaves out none.
    'threshold': 0.0,
    'ngram': 13,
    'num_permutations': 128,  # of MinHash
    'seed': 0,
  }
  config.embedder = {
    'path': '',  # '' is the packaged all-MiniLM-L6-v2
    'max_length': 128,  # wordpieces of a chunk
    'normalize': True,
    'dtype': 'float32',
    'vectors_dtype': 'float32',  # as stored
  }
  config.index = {
    'searcher': 'auto',  # exact, scann; auto goes by size
    'metric': 'squared_l2',
    'recall_floor': 0.95,  # recall@10 against exact search
    'num_queries': 500,  # that measure it
    'scann': sections.scann(),
  }
  config.neighbors = {
    'stored': 10,  # neighbors stored for each chunk
    'validate': 0.01,  # share recomputed and compared
  }
  # Another corpus to evaluate on, beside the documents held out.
  config.evaluation = {
    'name': '',  # '': none
    'corpus': sections.corpus('jsonl'),
  }
  config.prepare = {
    'stages': 'all',  # or a list: tokenizer,tokens,chunks,vectors,...
    'process_index': 0,  # several processes may prepare one folder
    'process_count': 1,
    'wait_hours': 24.0,  # for what another of them makes
    'verify': False,  # read every byte of the stores and compare their hashes
  }

  # Model: RetroConfig's fields, explained there; vocab_size comes from the
  # tokenizer. Below the sizes, every default is RetroConfig's.
  config.model = {
    'chunk_length': 64,  # m
    'neighbor_length': 128,  # r: neighbor and continuation
    'd_model': 256,
    'd_ff': 1024,
    'num_heads': 8,
    'head_dim': 32,
    'num_layers': 6,
    'cca_layers': (3, 6),
    'encoder_d_model': 256,
    'encoder_d_ff': 1024,
    'encoder_num_heads': 8,
    'encoder_head_dim': 32,
    'encoder_num_layers': 2,
    'encoder_ca_layers': (1,),
    'share_embeddings': True,
    # Ablations.
    'query_conditioning': True,
    'cca_positions': True,
    # What the paper leaves open.
    'tie_readout': True,
    'activation': 'gelu_tanh',  # gelu, relu, squared_relu, silu
    'norm': 'rms',  # or layer
    'norm_epsilon': 1e-6,
    'final_norm': True,
    'encoder_final_norm': True,
    'conditioning_norm': True,
    'position_biases': True,
    'projection_biases': False,
    'ff_biases': False,
    'scale_logits': True,
    'max_distance': 0,
    'position_base': 10000.0,
    # Decoders that are not the paper's.
    'positions': 'relative',  # rotary, absolute
    'rotary_base': 10000.0,
    'max_positions': 0,
    'num_kv_heads': 0,
    'gated': False,
    'init_scale': 0.02,
    'scale_residual_init': True,
    'lookup_init': False,
    'dropout_rate': 0.0,
    'encoder_dropout_rate': 0.0,
    # How it runs.
    'dtype': 'float32',
    'param_dtype': 'float32',
    'remat': False,
  }

  # Batches.
  config.sequence_chunks = 8  # l; a sequence has l * m tokens
  config.batch_size = 8  # sequences
  config.num_neighbors = 2  # k in training
  config.neighbor_part = 'full'  # [N, F]; or neighbor, continuation
  config.num_workers = 0  # loader processes

  # Optimizer and schedule (section B.1 of the paper).
  config.optimizer = {
    'learning_rate': 1e-3,
    'warmup_steps': 50,
    'initial_learning_rate': 1e-7,
    'final_fraction': 0.1,
    'weight_decay': 0.1,
    'b1': 0.9,
    'b2': 0.95,
    'eps': 1e-8,
    'clip_norm': 1.0,
    'accumulate_steps': 1,
  }

  # Loop.
  config.num_steps = 250
  config.log_every = 10
  config.eval_every = 100
  config.eval_batches = 8
  config.checkpoint_every = 100
  config.keep_checkpoints = 2
  config.profile_steps = 0
  config.update(sections.devices())

  # Evaluation: whole documents, every token scored once.
  config.evaluate = {
    'workdir': config_dict.placeholder(str),  # '' or None: --workdir
    'baseline_workdir': '',
    'split': 'valid',  # or the name of an evaluation set
    'num_neighbors': (2,),
    'shuffled': True,
    'oracle': False,  # a diagnostic: what is to be predicted as neighbor
    'stride_chunks': 0,  # 0: half a sequence
    # Or the share of a sequence that is context to what is scored: 0.75 or 0.875
    # for Wikitext103.
    'overlap': config_dict.placeholder(float),
    'max_documents': 0,  # 0: all
    'batch_size': 8,
  }

  # Leakage: r(C) of the evaluation's chunks (section 2.6 of the paper).
  config.leakage = {
    'num_neighbors': 10,  # nearest training chunks that a chunk is compared with
    'alphas': (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0),
  }

  # Sweeps at evaluation (Table 14 of the paper).
  config.sweep = {
    'shares': (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01),  # of the datastore
    'num_neighbors': (0, 1, 2, 3, 4, 5, 10),  # at most neighbors.stored
  }

  # JSON lines for retro_lambada and retro_summary.
  config.examples = {
    'path': '',
    'max_examples': 0,  # 0: all
    'batch_size': 16,
  }

  # Sampling.
  config.sample = {
    'max_new_tokens': 128,
    'temperature': 0.8,
    'top_p': 0.95,
    'top_k': 0,
    'num_neighbors': 2,
    'align_prompt': False,  # pad on the left: prompts end where a chunk ends
  }
  return config


def published(arg: str = 'base') -> ml_collections.ConfigDict:
  """What the four models of the paper share (Tables 2 and 10, section B.1).

  Sequences of 2048 tokens, a vocabulary of 128,000, one encoder, 419 B tokens.
  What bounds a device's memory is the logits: 2048 x 128,000 x 4 bytes = 1.05
  GB for each sequence, and their gradient as much again. Batches are therefore
  cut into microbatches (`optimizer.accumulate_steps`).

  Args:
    arg: see the top of this file.

  Returns:
    A configuration that lacks the decoder's sizes, batch and mesh.
  """
  config = get_config(arg)
  config.corpus.kind = 'jsonl'
  config.tokenizer.vocab_size = 128_000
  config.valid_fraction = 0.001
  config.deduplicate.threshold = 0.8
  config.model.update(
    {
      'encoder_d_model': 896,
      'encoder_d_ff': 3584,
      'encoder_num_heads': 16,
      'encoder_head_dim': 64,
      'share_embeddings': False,
      'dtype': 'bfloat16',
      'remat': True,
    }
  )
  config.sequence_chunks = 32
  config.num_workers = 8
  config.optimizer.learning_rate = 2e-4
  config.optimizer.warmup_steps = 750
  config.num_steps = 800_000
  config.log_every = 100
  config.eval_every = 5000
  config.eval_batches = 64
  config.checkpoint_every = 5000
  return config


def finish(
  config: ml_collections.ConfigDict, arg: str
) -> ml_collections.ConfigDict:
  """Applies the argument: the baseline's one field, the test size."""
  if arg.startswith('baseline'):
    config.retrieval = False
  if arg.endswith('test'):
    _shrink(config)
  return config


def _shrink(config: ml_collections.ConfigDict) -> None:
  """Cuts everything to what a CPU does in seconds."""
  config.corpus.max_documents = 120
  config.tokenizer.vocab_size = 600
  config.tokens.documents_per_shard = 50
  config.tokens.num_processes = 1
  config.valid_fraction = 0.1
  config.index.num_queries = 20
  config.neighbors.stored = 4
  config.model.update(
    {
      'chunk_length': 16,
      'neighbor_length': 32,
      'd_model': 32,
      'd_ff': 64,
      'num_heads': 2,
      'head_dim': 16,
      'num_layers': 3,
      'cca_layers': (2, 3),
      'encoder_d_model': 32,
      'encoder_d_ff': 64,
      'encoder_num_heads': 2,
      'encoder_head_dim': 16,
      'encoder_num_layers': 2,
      'dtype': 'float32',
      'share_embeddings': True,
      'remat': False,
    }
  )
  config.sequence_chunks = 4
  config.batch_size = 8
  config.num_workers = 0
  config.num_steps = 4
  config.log_every = 1
  config.eval_every = 2
  config.eval_batches = 1
  config.checkpoint_every = 2
  config.optimizer.learning_rate = 1e-3
  config.optimizer.warmup_steps = 2
  config.optimizer.accumulate_steps = 1
  config.mesh = {'data': -1, 'fsdp': 1, 'tensor': 1}
  config.evaluate.max_documents = 3
  config.evaluate.batch_size = 8
  config.leakage.num_neighbors = 4
  config.sweep.num_neighbors = (0, 1, 4)
  config.sweep.shares = (1.0, 0.3)
  config.sample.max_new_tokens = 24
