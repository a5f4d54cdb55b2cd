# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sections that REALM, ICT and question answering share, and their test size.

Where paper and released code differ (Guu et al. 2020, Lee et al. 2019), a
comment names the source of the value.
"""

import ml_collections

from configs.bases import sections
from experiments.engine import optimizers
from experiments.realm import refresh, settings
from realm_jax.data import examples
from realm_jax.nn import config as config_lib
from retrieval.store import ray_cluster
from retrieval.text import taggers


def shared() -> ml_collections.ConfigDict:
  """Return data stages, models, index, optimizer, loop and evaluation."""
  config = ml_collections.ConfigDict()
  config.task = 'realm'  # or ict, mlm; for experiments.realm.train
  config.seed = 0
  for part in (_data, _models, _losses, _index, _training, _evaluation):
    config.update(part())
  return config


def _data() -> sections.Section:
  return {
    # '' stands for <workdir>/data; give the folder to share it.
    'data_dir': '',
    'corpus': sections.corpus('vital'),  # Z: retrieved
    'masked_corpus': sections.of(settings.MaskedCorpus),  # X: masked
    'tokenizer': sections.of(settings.Tokenizer),
    'tokens': sections.of(settings.Tokens),
    'blocks': sections.of(settings.Blocks),
    'spans': sections.of(
      settings.Spans,
      tagger=sections.of(
        taggers.TaggerConfig, without=('labels', 'batch_size')
      ),
    ),
    'valid_fraction': 0.02,  # share of X's documents held out
    'prepare': sections.of(settings.Prepare),
    'cluster': sections.of(ray_cluster.Cluster),
    'masker': 'salient',  # uniform, span
    'layout': sections.of(
      examples.Layout,
      without=('block_length', 'cls_id', 'sep_id', 'mask_id', 'pad_id'),
      query_length=64,
    ),
    'read_ahead': 2,  # batches retrieved for before they are asked for
  }


def _models() -> sections.Section:
  return {
    'model': sections.of(
      config_lib.RealmConfig,
      pooling='mean',
      # The identity keeps the knowledge of all-MiniLM-L6-v2; 0.2 gives scores of a
      # few nats; 1 would give one block all the probability.
      projection_size=384,
      projection_init='identity',
      projection_norm_scale=0.2,
      projection_dropout_rate=0.0,
    ),
    'embedder': sections.bert('minilm'),
    'encoder': sections.bert('minilm'),
    # Workdirs of runs that start this one: of ICT (or REALM) its embedder, of MLM
    # (or REALM) its encoder.
    'embedder_from': '',
    'encoder_from': '',
    # Whether an encoder whose checkpoint has no masked-language-model head gets
    # one by least squares (realm_jax/nn/head.py); else it starts at random.
    'fit_head': True,
  }


def _losses() -> sections.Section:
  return {
    'loss': sections.of(settings.Loss),
    'mlm': sections.of(settings.Mlm),
    'ict': sections.of(settings.Ict),
    'warm_start': sections.of(
      settings.WarmStarts, ict=_warm_start(32, 1e-4), mlm=_warm_start(8, 5e-4)
    ),
  }


def _warm_start(batch_size: int, learning_rate: float) -> sections.Section:
  return sections.of(
    settings.WarmStart,
    num_steps=300,
    batch_size=batch_size,
    learning_rate=learning_rate,
  )


def _index() -> sections.Section:
  return {
    # ScaNN never builds the same index twice, so that only exact search repeats a
    # run bit for bit.
    'index': sections.index(
      without=('metric', 'recall_at'),
      searcher='exact',
      recall_floor=0.9,
      num_queries=200,
    ),
    'refresh': sections.of(refresh.RefreshConfig),
  }


def _training() -> sections.Section:
  return {
    # BERT's optimizer (released code, all experiments).
    'optimizer': sections.of(
      optimizers.OptimizerConfig,
      name='bert_adam',
      schedule='linear',
      learning_rate=3e-5,
      warmup_steps=optimizers.TENTH,
      initial_learning_rate=0.0,
      final_fraction=0.0,
      weight_decay=0.01,
      decay_mask='bert',
      b2=0.999,
      eps=1e-6,
    ),
    'batch_size': 4,
  } | sections.loop(
    num_steps=300, eval_every=100, eval_batches=16, checkpoint_every=100
  )


def _evaluation() -> sections.Section:
  return {
    'evaluate': sections.of(settings.Evaluate, workdir=sections.workdir()),
    'explain': sections.of(settings.Explain),
    'marginal_bias': sections.of(settings.MarginalBias),
  }


def warm_start(config: ml_collections.ConfigDict, kind: str) -> None:
  """Make a config one of ict, mlm or dpr, by its section of `warm_start`."""
  start = config.warm_start[kind]
  config.task = kind
  config.num_steps = start.num_steps
  config.batch_size = start.batch_size
  config.optimizer.learning_rate = start.learning_rate
  config.optimizer.part_scales = {}
  config.optimizer.accumulate_steps = 1  # negatives are of the whole batch


def start_from_minilm(
  config: ml_collections.ConfigDict, embedder_scale: float
) -> None:
  """Set the optimizer of short runs that start from all-MiniLM-L6-v2.

  BERT's Adam has no bias correction: its first steps are thrice as long, which
  a run of thousands forgets and one of hundreds does not.

  Args:
    config: changed in place.
    embedder_scale: factor on the embedder's learning rate: all-MiniLM-L6-v2
      retrieves well, and must not lose it at once.
  """
  config.optimizer.update(
    name='adamw',
    b2=0.98,
    learning_rate=2e-4,
    part_scales={'embedder': embedder_scale},
  )


def set_both_berts(config: ml_collections.ConfigDict, **fields) -> None:
  """Set fields of the embedder's and the encoder's BERT."""
  config.embedder.update(**fields)
  config.encoder.update(**fields)


def no_dropout(config: ml_collections.ConfigDict) -> None:
  """Turn dropout off: one short pass gives nothing to overfit."""
  set_both_berts(config, dropout_rate=0.0, attention_dropout_rate=0.0)


def shrink(config: ml_collections.ConfigDict) -> None:
  """Cut everything to a size that a CPU runs in seconds."""
  sections.shrink_loop(config)
  config.corpus.max_documents = 200
  config.tokens.documents_per_shard = 60
  config.blocks.max_length = 48
  config.spans.tagger.kind = 'dates'
  config.spans.num_processes = 1
  config.valid_fraction = 0.3
  config.layout.update(query_length=32, num_candidates=3)
  config.ict.query_length = 32
  set_both_berts(
    config,
    checkpoint='',
    num_layers=2,
    d_model=32,
    d_ff=64,
    num_heads=2,
    max_length=128,
    dtype='float32',
    remat=False,
  )
  config.model.update(projection_size=16, projection_init='normal')
  config.index.num_queries = 10
  config.refresh.every = 2
  for name in ('ict', 'mlm'):
    config.warm_start[name].update(
      num_steps=4, batch_size=8, learning_rate=1e-3
    )
