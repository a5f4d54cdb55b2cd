# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What a run's config says of its data, model and retriever, and the models made of it.

The configs of training (experiments/*/config.py) add to these dataclasses.
"""

import dataclasses
from typing import Annotated, Literal

from realm_jax.data import examples, folder as data_folder, reader_rows
from realm_jax.nn import config as config_lib, open_qa
from realm_jax.objectives import claims
from retrieval import settings
from retrieval.index import index as index_lib
from retrieval.nn import bert, bert_checkpoint
from retrieval.questions import answers as answers_lib, claims as claims_lib
from retrieval.search import late_interaction, lda, names
from retrieval.store import checkpoints
from retrieval.text import blocks as blocks_lib, corpus as corpus_lib

Workers = Annotated[int, settings.Range(1, 4096)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertSection:
  """One BERT: its checkpoint, and the fields that differ from the checkpoint's.

  Fields that are 0, '' or -1 are as in the checkpoint; without one, BERT base's.
  """

  # folder in the Hugging Face layout; 'minilm' for the packaged
  # all-MiniLM-L6-v2; '' starts at random
  checkpoint: str = ''
  d_model: Literal[0] | bert.Width = 0
  d_ff: Literal[0] | bert.Width = 0
  num_heads: Literal[0] | bert.Width = 0
  num_layers: bert.Layers = 0
  max_length: Literal[0] | bert.Length = 0
  activation: Literal['', bert.Activation] = ''
  layer_norm_eps: Literal[-1] | bert.Epsilon = settings.rare(-1.0)
  dropout_rate: Literal[-1] | settings.Rate = -1.0
  attention_dropout_rate: Literal[-1] | settings.Rate = -1.0
  initializer_range: Literal[-1] | settings.NotNegative = settings.rare(-1.0)
  remat: bool = False  # recompute each layer in the backward pass
  dtype: settings.Dtype = 'float32'  # compute
  param_dtype: settings.Dtype = settings.rare('float32')  # parameters


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
  # True: records are blocks already
  whole_documents: bool = settings.rare(False)
  language: str = settings.rare('en')
  # regular expressions; documents whose title begins with a match are left out
  drop_titles: tuple[str, ...] = settings.rare(blocks_lib.DROPPED_TITLES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vectors:
  """Embedding of the blocks."""

  batch_tokens: settings.SizeOrZero = 0  # 0 chooses by device
  dtype: settings.Dtype = 'float32'  # on disk


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
  """Data, embedder, encoder and index of a run."""

  task: str = 'realm'
  data_dir: str = ''  # '' is <workdir>/data; name the folder to share it
  corpus: corpus_lib.CorpusConfig = corpus_lib.CorpusConfig()  # Z
  tokens: Tokens = Tokens()
  blocks: Blocks = Blocks()
  layout: examples.Lengths = examples.Lengths()
  model: config_lib.VectorConfig = config_lib.VectorConfig()
  embedder: BertSection = BertSection()
  encoder: BertSection = BertSection()
  # Runs that start this one: of ICT (or REALM) its embedder, of MLM (or REALM)
  # its encoder. 'packaged' is what comes with the package.
  embedder_from: str = ''
  encoder_from: str = ''
  vectors: Vectors = settings.rare(Vectors())
  # ScaNN never builds the same index twice, so that only exact search repeats a
  # run bit for bit.
  index: index_lib.IndexConfig = index_lib.IndexConfig(
    searcher='exact', metric='dot_product', recall_floor=0.9, num_queries=200
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lookup:
  """Blocks that are retrieved and read."""

  # blocks in the early loss (released); fewer where the corpus has fewer
  retriever_beam: settings.Size = 5000
  reader_beam: settings.Size = 5  # blocks that are read (released)
  # What counts as an answer in a block: substring (released), dpr, wordpiece;
  # questions whose answers are regular expressions go by these.
  rule: answers_lib.StringRule = 'substring'
  # wordpieces of question and block (released)
  row_length: reader_rows.RowLength = 320
  # of the embedder; longer questions are cut
  question_length: examples.QueryLength = 64
  bm25_scale: settings.NotNegative = 0.2  # factor on scores by words
  # of weighted: BM25's share; experiments.tune_hybrid measures shares
  words_weight: settings.Share = 0.4
  num_topics: settings.Size = lda.LdaConfig.num_topics  # of lda


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reranker:
  """A model that orders the first blocks of the retriever anew."""

  path: str = ''  # run of task cross_encoder; '': none
  candidates: settings.Size = 50  # blocks that it orders


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamConfig(RunConfig):
  """A run whose model reads the blocks that a retriever finds."""

  # Where the model starts: a run of REALM (both parts); `embedder_from` and
  # `encoder_from` go before it, but for 'packaged'. The index of that run is taken
  # over if it is of the same parameters and blocks, and also if the run trained the
  # questions' side alone, when the vectors are of earlier parameters. Only
  # train_blocks=True embeds the blocks anew.
  realm_from: str = ''
  retriever: Literal[names.FOR_TEXTS] = 'dense'
  reranker: Reranker = settings.rare(Reranker())
  lookup: Lookup = Lookup()
  train_blocks: bool = False
  # of the retriever 'colbert'
  colbert_index: late_interaction.ColbertConfig = settings.rare(
    late_interaction.ColbertConfig()
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReaderConfig(BeamConfig):
  """A reader of spans."""

  task: str = 'open_qa'
  reader: open_qa.SpanConfig = open_qa.SpanConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claims:
  """Claim sets, DATASET:SPLIT=FILE,... each, of one data set.

  Data sets are fever, hover and custom; see retrieval/questions/claims.py.
  """

  train: tuple[str, ...] = ()
  dev: tuple[str, ...] = ()
  labels: tuple[str, ...] = ()  # of custom, in the order of the classes
  max_train: settings.Count = 0  # of all; 0: all of them
  max_dev: settings.Count = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierConfig(BeamConfig):
  """A classifier of claims."""

  task: str = 'claims'
  claims: Claims = Claims()


def of_saved(saved: checkpoints.Saved) -> RunConfig:
  """Return what a checkpoint's config says; other fields are left out."""
  kinds = {'reader': ReaderConfig, 'classifier': ClassifierConfig}
  kind = next((kinds[x] for x in saved.params if x in kinds), RunConfig)
  config = saved.config
  fields = config.to_dict() if hasattr(config, 'to_dict') else config
  return settings.build(kind, fields, 'config', ignore_others=True)


def bert_config(section: BertSection, vocab_size: int) -> bert.BertConfig:
  """Return one BERT: its checkpoint's sizes, overridden by the fields set.

  Raises:
    ValueError: when the checkpoint has another vocabulary.
  """
  fields = vars(section).copy()
  path = fields.pop('checkpoint')
  given = {name: v for name, v in fields.items() if not _is_unset(v)}
  if not path:
    return bert.BertConfig(vocab_size=vocab_size, **given)
  folder = data_folder.checkpoint_path(path)
  config = bert_checkpoint.read_config(folder / 'config.json', **given)
  if config.vocab_size != vocab_size:
    raise ValueError(
      f'{folder}: a vocabulary of {config.vocab_size:,}, but the data were '
      f'tokenized with {vocab_size:,} wordpieces.'
    )
  return config


def _is_unset(value: int | float | str) -> bool:
  """Whether a field is left to the checkpoint; a rate of 0.0 is a choice."""
  return value < 0 if isinstance(value, float) else not value


def realm_config(config: RunConfig, vocab_size: int) -> config_lib.RealmConfig:
  """Return the retriever and encoder that a config names."""
  return config_lib.RealmConfig(
    embedder=bert_config(config.embedder, vocab_size),
    encoder=bert_config(config.encoder, vocab_size),
    **vars(config.model),
  )


def reader_config(
  config: BeamConfig, vocab_size: int
) -> open_qa.OpenQaConfig | claims.ClaimsConfig:
  """Return retriever and reader: of spans, or of classes for task 'claims'."""
  realm = realm_config(config, vocab_size)
  if isinstance(config, ClassifierConfig):
    return claims.ClaimsConfig(
      realm=realm, num_classes=len(claim_labels(config.claims))
    )
  return open_qa.OpenQaConfig(realm=realm, **vars(config.reader))


def claim_labels(sets: Claims) -> tuple[str, ...]:
  """Return the labels of the data set that claim sets are of.

  Raises:
    ValueError: for no set, or sets of several data sets.
  """
  if not sets.train:
    raise ValueError(
      "claims.train is empty: expected sets such as ('fever:train=train.jsonl',)."
    )
  names = set(map(claims_lib.dataset_of, (*sets.train, *sets.dev)))
  if len(names) > 1:
    raise ValueError(
      f'claims.train and claims.dev are of {sorted(names)}: expected one data '
      'set, whose labels are the classes.'
    )
  return claims_lib.check_labels(names.pop(), sets.labels)


def reader_layout(
  config: BeamConfig, data: data_folder.DataFolder
) -> reader_rows.ReaderLayout:
  """Return the lengths of the reader's rows and the tokenizer's specials."""
  reader = getattr(config, 'reader', open_qa.SpanConfig())  # claims: no spans
  return reader_rows.ReaderLayout(
    row_length=config.lookup.row_length,
    question_length=config.lookup.question_length,
    max_span_width=reader.max_span_width,
    cls_id=data.tokenizer.cls_id,
    sep_id=data.tokenizer.sep_id,
    pad_id=data.tokenizer.pad_id,
  )
