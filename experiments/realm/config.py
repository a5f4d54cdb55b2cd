# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings of REALM and its warm starts ICT and MLM (Guu et al. 2020)."""

import dataclasses
import os
from typing import Any, Literal

import ml_collections

from experiments.engine import configs, optimizers, run_settings
from experiments.realm import refresh as refresh_lib
from realm_jax.data import sources
from realm_jax.objectives import ict as ict_lib, losses
from realm_jax.trained import model_configs
from retrieval import settings
from retrieval.store import checkpoints, cluster_settings
from retrieval.text import corpus as corpus_lib, taggers

VARIANTS = 'base', 'uniform', 'span', 'stale', 'frozen', 'async', 'ict', 'mlm'
# BERT's optimizer (released code, all experiments).
BERT_OPTIMIZER = optimizers.OptimizerConfig(
  name='bert_adam',
  schedule='linear',
  learning_rate=3e-5,
  warmup_steps=optimizers.TENTH,
  initial_learning_rate=0.0,
  final_fraction=0.0,
  weight_decay=0.01,
  b2=0.999,
  eps=1e-6,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedCorpus:
  """The masked corpus X; it has the other fields of `corpus`."""

  kind: Literal['', corpus_lib.Kind] = ''  # '': Z, which is retrieved from
  path: str = ''
  split: str = 'train'
  wikipedia: bool = False
  max_documents: settings.Count = 0  # 0: all


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenizer:
  """A WordPiece vocabulary."""

  path: str = 'minilm'  # a file or folder, or minilm


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spans:
  """Salient spans."""

  # Kinds also: corpus, the spans in official records.
  tagger: taggers.TaggerConfig = taggers.TaggerConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(model_configs.RunConfig, run_settings.Loop):
  """Fields of every training of a model of blocks."""

  seed: settings.Seed = 0
  batch_size: settings.Size
  optimizer: optimizers.OptimizerConfig = BERT_OPTIMIZER
  # where shards are made
  cluster: cluster_settings.Cluster = cluster_settings.Cluster()
  tokenizer: Tokenizer = Tokenizer()
  refresh: refresh_lib.RefreshConfig = refresh_lib.RefreshConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmStart:
  """A run that another one starts from."""

  num_steps: settings.Steps = 300
  batch_size: settings.Size = 8
  learning_rate: settings.Positive = 5e-4


ICT = WarmStart(batch_size=32, learning_rate=1e-4)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Run):
  """Root of the configs of tasks realm, ict and mlm."""

  task: Literal['realm', 'ict', 'mlm'] = 'realm'
  masked_corpus: MaskedCorpus = MaskedCorpus()  # X
  valid_fraction: settings.Rate = 0.02  # of X's documents, held out
  spans: Spans = Spans()
  masker: sources.Kind = 'salient'
  loss: losses.LossConfig = losses.LossConfig()
  ict: ict_lib.IctConfig = ict_lib.IctConfig()
  warm_start: WarmStart = WarmStart()  # of the encoder: task mlm


def of_run(workdir: str | os.PathLike, step: int | str = '') -> Config:
  """Return the config of a checkpoint of REALM, ICT or MLM."""
  saved = checkpoints.find(str(workdir), step=step).config
  return settings.build(
    Config, saved.to_dict(), f'{workdir}: config', ignore_others=True
  )


def warm_start(config: Config) -> Config:
  """Return the config of the run of task 'mlm' that a REALM starts from."""
  return configs.replaced(config, **_warm_start('mlm', config.warm_start))


def _warm_start(
  task: str, start: WarmStart | ml_collections.ConfigDict
) -> dict[str, Any]:
  """Return the fields of a run of a task, by their dotted names."""
  return {
    'task': task,
    'num_steps': start.num_steps,
    'batch_size': start.batch_size,
    'best_metric': '',  # that of another task
    'optimizer.learning_rate': start.learning_rate,
    'optimizer.part_scales': {},  # the model has one part only
    'optimizer.accumulate_steps': 1,  # microbatches would reduce ICT's negatives
  }


def set_variant(
  c: ml_collections.ConfigDict, arg: str, ict: WarmStart = ICT
) -> None:
  """Apply the argument of a config file of REALM.

  base; uniform (random tokens masked), span (random spans masked) and stale (an index
  refreshed 30 times less often) of Guu et al. 2020, Table 2; frozen (the first index
  to the end); async (an index built beside the training); ict and mlm, the warm
  starts, the first as `ict` says; test, or any of these with _test, runs on a CPU in seconds.
  """
  kind = arg.removesuffix('test').removesuffix('_') or 'base'
  configs.check_arg(kind, VARIANTS)
  if arg.endswith('test'):
    set_test_size(c)
    ict = WarmStart(num_steps=4, batch_size=8, learning_rate=1e-3)
    c.warm_start.update(vars(ict))
    c.valid_fraction = 0.3
    c.spans.tagger.kind = 'dates'
    c.ict.query_length = 32
    c.refresh.every = 2
    configs.for_command(c, 'evaluate', num_batches=1)
  if kind in ('uniform', 'span'):
    c.masker = kind
  elif kind == 'stale':
    c.refresh.every *= 30
  elif kind in ('frozen', 'async'):
    c.refresh.schedule = kind
  elif kind in ('ict', 'mlm'):
    start = ict if kind == 'ict' else c.warm_start
    c.update_from_flattened_dict(_warm_start(kind, start))


def start_from_minilm(c: ml_collections.ConfigDict) -> None:
  """Start both encoders from all-MiniLM-L6-v2, trained by AdamW."""
  c.model.update(
    pooling='mean',
    projection_size=384,
    projection_init='identity',
    projection_norm_scale=0.2,  # scores of a few nats
    projection_dropout_rate=0.0,
  )
  for bert in (c.embedder, c.encoder):
    bert.checkpoint = 'minilm'
    bert.dropout_rate = 0.0  # one short pass gives nothing to overfit
  # BERT's Adam starts with too long steps.
  c.optimizer.update(name='adamw', b2=0.98)


def set_test_size(c: ml_collections.ConfigDict) -> None:
  """Cut a config of any model of blocks to a size that a CPU runs in seconds."""
  c.update(
    batch_size=8,
    num_steps=4,
    log_every=1,
    eval_every=2,
    eval_batches=1,
    checkpoint_every=2,
  )
  c.mesh.update(data=-1, fsdp=1, tensor=1)
  c.optimizer.update(learning_rate=1e-3, warmup_steps=2, accumulate_steps=1)
  c.corpus.max_documents = 200
  c.tokens.update(documents_per_shard=60, num_processes=1)
  c.blocks.max_length = 48
  c.layout.update(query_length=32, num_candidates=3)
  for section in (c.embedder, c.encoder):
    section.update(
      checkpoint='',
      num_layers=2,
      d_model=32,
      d_ff=64,
      num_heads=2,
      max_length=128,
      dtype='float32',
      remat=False,
    )
  c.model.update(projection_size=16, projection_init='normal')
  c.index.num_queries = 10
