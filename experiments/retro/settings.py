# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The configs of RETRO: their fields, and what these accept."""

import dataclasses
from typing import Annotated, Literal

import ml_collections

from experiments.engine import run_settings
from retrieval import settings
from retrieval.index import (
  index as index_lib,
  sources,
)
from retrieval.search import colbert_index, lda
from retrieval.text import corpus as corpus_lib
from retro_jax.data import qa_rows
from retro_jax.decoding import drawing
from retro_jax.nn import config as config_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenizer:
  """The tokenizer."""

  path: str = ''  # '' trains a SentencePiece model on the corpus
  vocab_size: settings.Size = 8192
  max_documents: settings.Count = 20_000  # that it is trained on; 0: all


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokens:
  """The token store."""

  with_title: bool = True  # the title heads its document's text
  documents_per_shard: settings.Size = 1024
  num_processes: Annotated[int, settings.Range(1, 4096)] = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deduplicate:
  """Leaves out training documents that resemble a held-out one.

  `retrieval.text.near_duplicates.Settings` with a threshold that may be 0.
  """

  threshold: settings.Share = 0.0  # least Jaccard similarity; 0: all stay
  ngram: settings.Size = 13  # words of a gram
  num_permutations: Annotated[int, settings.Range(1, 2**16)] = 128
  seed: settings.Seed = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedder:
  """The frozen embedder of the chunks."""

  path: str = ''  # '' is the packaged all-MiniLM-L6-v2
  max_length: settings.Size = 128  # wordpieces of a chunk
  normalize: bool = True
  # '': of the checkpoint
  dtype: Literal['', settings.Dtype] = 'float32'
  vectors_dtype: settings.Dtype = 'float32'  # as stored


@dataclasses.dataclass(frozen=True, kw_only=True)
class Neighbors:
  """The neighbors of every chunk."""

  # how they are found; see retrieval/index/sources.py
  source: sources.Name = 'dense'
  # of weighted: BM25's share; experiments.retro.tune_hybrid measures shares
  words_weight: settings.Share = sources.WORDS_WEIGHT
  num_topics: settings.Size = lda.LdaConfig.num_topics  # of lda
  # run whose model orders the first candidates of the source anew; '': none
  reranker: str = ''
  candidates: Annotated[int, settings.Range(1, 2**16)] = 50  # that it orders
  stored: Annotated[int, settings.Range(1, 2**16)] = 10  # for each chunk
  validate: settings.Share = 0.01  # share recomputed and compared


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
  """Another corpus to evaluate on, beside the documents held out."""

  name: str = ''  # '': no other corpus
  corpus: corpus_lib.CorpusConfig = corpus_lib.CorpusConfig(kind='jsonl')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate:
  """Evaluation: whole documents, every token scored once."""

  workdir: str | None = None  # '' or None: --workdir
  step: str = ''  # a number, 'best' (by best_metric), or '' for the newest
  baseline_workdir: str = ''
  baseline_step: str = ''
  split: str = 'test'  # valid, or the name of an evaluation set
  source: Literal['', sources.Name] = ''  # of the neighbors; '': as trained
  reranker: str = ''  # of `source`, as neighbors.reranker
  num_neighbors: tuple[Annotated[int, settings.Range(0, 2**16)], ...] = (2,)
  shuffled: bool = True
  oracle: bool = False  # a diagnostic: the text to be predicted as neighbor
  stride_chunks: settings.SizeOrZero = 0  # 0: half a sequence
  # Or the share of a sequence that is context to the scored part: 0.75 or 0.875
  # for Wikitext103.
  overlap: settings.Rate | None = None
  max_documents: settings.Count = 0  # 0: all
  batch_size: settings.Size = 8
  # Of retro_qa: sets as in config.questions.
  questions: tuple[str, ...] = ()
  max_questions: settings.Count = 0  # of each set; 0: all


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leakage:
  """Leakage: r(C) of the evaluation's chunks (section 2.6 of the paper)."""

  # nearest training chunks that a chunk is compared with
  num_neighbors: Annotated[int, settings.Range(1, 2**16)] = 10
  alphas: tuple[settings.Share, ...] = (
    0.125,
    0.25,
    0.375,
    0.5,
    0.625,
    0.75,
    0.875,
    1.0,
  )
  # tokens shared with the neighbors that are read: lowest of each row
  runs: tuple[settings.SizeOrZero, ...] = (0, 1, 2, 3, 4, 6, 8, 12, 16)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
  """Sweeps at evaluation (Table 14 of the paper)."""

  # of the datastore
  shares: tuple[settings.Share, ...] = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
  # at most neighbors.stored
  num_neighbors: tuple[Annotated[int, settings.Range(0, 2**16)], ...] = (
    0,
    1,
    2,
    3,
    4,
    5,
    10,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
  """JSON lines for experiments.retro.examples."""

  path: str = ''
  max_examples: settings.Count = 0  # 0: all
  batch_size: settings.Size = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Qa(qa_rows.QaLayout):
  """Rows of questions, with the passages that are read."""

  # What reads the passages:
  #   retro        RETRO, or its baseline closed book: the start's own model
  #   fid          Fusion-in-Decoder
  #   closed_book  the same encoder and decoder, with the question alone
  reader: Literal['retro', 'fid', 'closed_book'] = 'retro'
  # Results of any retriever in DPR's JSON form; (): the nearest chunks of the
  # run's own datastore.
  passages: tuple[str, ...] = ()
  num_passages: Annotated[int, settings.Range(0, 2**16)] = 20  # k
  dropout_rate: settings.Rate = 0.1  # of the decoder alone [open]
  # Of fid and closed_book: tokens of a question with its passage; 0: the start's
  # neighbor_length.
  passage_length: settings.SizeOrZero = 0
  # Of both: layers of the decoder that read passages, from 1; (): all.
  cross_layers: tuple[config_lib.Layers, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retriever:
  """An embedder taught by a language model; see experiments.taught.train_retriever."""

  # workdir of the model that teaches: a RETRO reads neighbors by cross-attention, a
  # baseline or an imported decoder as a prefix
  language_model: str = ''
  # One of `retrieval.nn.objectives`.
  objective: Literal['replug_lsr', 'emdr2', 'pdist'] = 'replug_lsr'
  # K; at most the neighbors stored
  num_candidates: Annotated[int, settings.Range(2, 2**16)] = 8
  queries: settings.Size = 4  # chunks of a row that ask for candidates
  # REPLUG's gamma; cosines are divided by it
  temperature: settings.Positive = 0.05
  # REPLUG's beta; nats a token are divided by it
  lm_temperature: settings.Positive = 0.05
  max_length: Annotated[int, settings.Range(3, 2**17)] = (
    64  # wordpieces of a text
  )
  # steps between two indices; 0: the first one serves to the end
  refresh_every: settings.Count = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(run_settings.Run):
  """All fields of a RETRO config."""

  task: Literal['retro', 'retro_qa']
  test_fraction: settings.Rate = 0.0  # held out beside valid_fraction
  retrieval: bool = True  # False: the baseline
  # Workdir of a baseline whose decoder is frozen and given retrieval (RETROfit); ''
  # trains all weights from the start.
  retrofit_from: str = ''
  tokenizer: Tokenizer
  tokens: Tokens
  deduplicate: Deduplicate
  embedder: Embedder
  index: index_lib.IndexConfig
  neighbors: Neighbors
  colbert_index: colbert_index.Section  # of the source colbert
  evaluation: Evaluation
  model: config_lib.RetroConfig  # the tokenizer gives vocab_size
  # Batches.
  # l; a sequence has l * m tokens
  sequence_chunks: Annotated[int, settings.Range(1, 2**20)] = 8
  # k in training
  num_neighbors: Annotated[int, settings.Range(0, 2**16)] = 2
  # [N, F]; or neighbor, continuation
  neighbor_part: Literal['full', 'neighbor', 'continuation'] = 'full'
  num_workers: Annotated[int, settings.Range(0, 256)] = 0  # loader processes
  evaluate: Evaluate
  leakage: Leakage
  sweep: Sweep
  examples: Examples
  sample: drawing.SamplingConfig
  # Of retro_qa alone.
  retro_from: str  # workdir of a RETRO, or of a baseline: closed book
  questions: run_settings.Questions
  qa: Qa
  # Of train_retriever alone.
  retriever: Retriever = Retriever()


def take_models(
  trained: ml_collections.ConfigDict, given: ml_collections.ConfigDict
) -> None:
  """Set a run's models of retrieval to those of a command's config.

  The ColBERT stays where the command names none.
  """
  with trained.unlocked():
    trained.embedder = given.embedder
    if given.get('colbert_index', {}).get('model'):
      trained.colbert_index = given.colbert_index
