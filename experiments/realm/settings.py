# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The configs of REALM, ICT and MLM: their fields, and what these accept."""

import dataclasses
from typing import Annotated, Literal

from experiments.engine import run_settings
from experiments.realm import refresh
from realm_jax.data import examples, masking
from realm_jax.nn import config as config_lib
from realm_jax.serving import model_configs
from retrieval import settings
from retrieval.index import index as index_lib
from retrieval.text import corpus as corpus_lib, taggers

Parts = Annotated[int, settings.Range(1, 2**16)]
Ranks = Annotated[int, settings.Range(1, 2**20)]
Workers = Annotated[int, settings.Range(1, 4096)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedCorpus(corpus_lib.CorpusConfig):
  """X: masked; kind '': Z itself."""

  kind: Literal['', corpus_lib.Kind] = ''


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenizer:
  """A WordPiece vocabulary."""

  path: str = 'minilm'  # a file or folder, or minilm


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokens:
  """Preparation of the token stores."""

  documents_per_shard: settings.Size = 512
  num_processes: Workers = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blocks:
  """Spans of sentences that are retrieved."""

  # wordpieces with title and specials (paper)
  max_length: Annotated[int, settings.Range(4, 2**17)] = 288
  whole_documents: bool = False  # True: records are blocks already
  language: str = 'en'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spans:
  """Salient spans."""

  # Kinds also: corpus, the official records' own spans.
  tagger: taggers.TaggerConfig
  num_processes: Workers = 2
  # tag so many blocks, evenly spread; 0: all
  max_blocks: settings.Count = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepare(run_settings.Prepare):
  """Preparation of data."""

  export: bool = False  # write the official record forms, too
  export_shards: Annotated[int, settings.Range(1, 99_999)] = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loss:
  """Objective of REALM."""

  # marginal_token (released), marginal_seq (paper) train both together; pdist,
  # emdr2, loop, replug_lsr train the retriever beside the marginal.
  objective: Literal[
    'marginal_token', 'marginal_seq', 'pdist', 'emdr2', 'loop', 'replug_lsr'
  ] = 'marginal_token'
  retriever_weight: settings.NotNegative = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mlm:
  """Masked language modelling, for an encoder whose checkpoint has no head."""

  mask_rate: settings.Share = 0.3  # of a sentence's tokens
  removal_rate: settings.Share = 0.3  # how often the sentence leaves its block
  # tokens are chosen by their frequency to minus this
  rarity: Annotated[float, settings.Range(0, 10)] = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ict:
  """The inverse cloze task."""

  mask_rate: settings.Share = 0.9  # how often the query leaves its block
  query_length: examples.QueryLength = 64
  gradient_cache_parts: Parts = 1  # a batch is encoded in so many parts
  mask_duplicates: bool = True  # copies of a row's block are no negatives


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmStart:
  """A run that another one starts from."""

  num_steps: settings.Steps
  batch_size: settings.Size
  learning_rate: settings.Positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmStarts:
  """Arguments ict and mlm of the configs; realm.quickstart begins with MLM."""

  ict: WarmStart
  mlm: WarmStart
  needs_mlm: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate:
  """Evaluation of REALM."""

  # the run that is evaluated; '' or None for --workdir
  workdir: str | None = None
  step: str = ''  # a number, 'best' (by best_metric), or '' for the newest
  num_batches: settings.Steps = 32
  questions: tuple[str, ...] = ()  # files; see retrieval/questions/questions.py
  max_questions: settings.Count = 0  # of each file; 0: all
  ks: tuple[Ranks, ...] = (1, 5, 20, 100)
  # of answers that are strings
  rules: tuple[Literal['substring', 'dpr'], ...] = ('substring', 'dpr')
  bm25: bool = True
  before: bool = True  # the untrained retriever, too
  during_training: bool = False  # recall of every new index, as a metric


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explain:
  """Explained predictions."""

  top: Ranks = 5  # words named for each mask
  # (text, answer) that experiments.realm.quickstart explains
  sentences: tuple[tuple[str, str], ...] = (
    ('The Eiffel Tower stands in [MASK].', 'Paris'),
    ('The play Hamlet was written by William [MASK].', 'Shakespeare'),
    ('The Great Wall was built by ancient [MASK] states.', 'Chinese'),
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarginalBias:
  """The marginal of few documents against that of all (section 3.3)."""

  # checkpoints; 0 is the start of the training, () this and all that were kept
  steps: tuple[settings.Count, ...] = ()
  num_examples: settings.Size = 16
  ks: tuple[Ranks, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
  num_draws: Annotated[int, settings.Range(2, 2**16)] = 16
  read_at_once: settings.Size = 64  # documents


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(run_settings.Run):
  """Root of the configs."""

  # of experiments.realm.train: realm, ict, mlm; of experiments.open_qa.train:
  # open_qa, dpr, colbert, claims
  task: Literal['realm', 'ict', 'mlm', 'open_qa', 'dpr', 'colbert', 'claims']
  masked_corpus: MaskedCorpus
  tokenizer: Tokenizer
  tokens: Tokens
  blocks: Blocks
  spans: Spans
  prepare: Prepare
  masker: masking.Kind
  layout: examples.Layout
  # batches retrieved for before they are asked for
  read_ahead: Annotated[int, settings.Range(0, 1024)]
  model: config_lib.RealmConfig
  embedder: model_configs.BertSection
  encoder: model_configs.BertSection
  embedder_from: str
  encoder_from: str
  fit_head: bool
  loss: Loss
  mlm: Mlm
  ict: Ict
  warm_start: WarmStarts
  index: index_lib.IndexConfig
  refresh: refresh.RefreshConfig
  evaluate: Evaluate
  explain: Explain
  marginal_bias: MarginalBias
