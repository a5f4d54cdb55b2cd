# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What every experiment in open-domain question answering shares.

Lee et al. 2019 (ORQA), sections 4 to 6; Guu et al. 2020 (REALM), section 4;
Karpukhin et al. 2020 (DPR). On top of realm_base, whose data stages, embedder and
index these are; config.encoder is the BERT of the reader. The files open_qa_*.py
set sizes. Argument of their get_config:

  base    ORQA: the blocks' side frozen, the questions' side trained
  blocks  the blocks' side trained, too, and the index refreshed
  bm25    blocks found by words; only the reader is trained
  random  random blocks: what the reader alone can do
  dpr     the retriever alone, by contrast (experiments.open_qa.dpr)
  test    ORQA at a size that runs on a CPU in seconds; bm25_test, ... likewise
"""

import ml_collections
from ml_collections import config_dict

from configs import realm_base

KINDS = ('base', 'blocks', 'bm25', 'random', 'dpr')
ARGS = (*KINDS, 'test', *(f'{kind}_test' for kind in KINDS[1:]))


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the shared configuration; sizes are those of the quickstart."""
  if arg not in ARGS:
    raise ValueError(f'Config argument {arg!r}: expected one of {ARGS}.')
  config = realm_base.get_config()

  config.task = 'open_qa'  # dpr, claims: what experiments.open_qa.train trains

  # Questions: NAME:SPLIT or NAME:SPLIT=FILE,... each; retrieval/questions/question_sets.py.
  config.questions = {
    'train': (),
    'dev': (),
    'max_train': 0,  # of all; 0: all of them
    'max_dev': 0,
    # Whether files may hold another number of questions than is published.
    'allow_other_counts': False,
  }

  # Where the model starts: a run of REALM (both parts), or of one part each; see
  # embedder_from and encoder_from of realm_base. The index that stands there is
  # taken over where it is of the same parameters and blocks; and where that run
  # trained the questions' side alone, its index is kept, whose vectors are not of
  # its own parameters. Only train_blocks=True embeds the blocks anew.
  # encoder_from='packaged' is the reader that comes with the package; a run named
  # here goes before it.
  config.realm_from = ''

  # What retrieves: dense, bm25, random.
  config.retriever = 'dense'
  config.lookup = {
    'retriever_beam': 5000,  # blocks that the early loss is over (released)
    'reader_beam': 5,  # blocks that are read (released)
    # What counts as an answer in a block: substring (released), dpr, wordpiece;
    # questions whose answers are regular expressions go by these.
    'rule': 'substring',
    'row_length': 320,  # wordpieces of question and block (released)
    'question_length': 64,  # of the embedder; longer questions are cut
    'bm25_scale': 0.2,  # what scores of BM25 are multiplied by
  }
  # Fields of OpenQaConfig, explained there.
  config.reader = {
    'span_hidden_size': 256,
    'max_span_width': 10,
    'span_norm_eps': 1e-3,
  }
  config.loss = {'early_weight': 1.0}
  config.train_blocks = False

  # Contrastive training of the retriever (experiments.open_qa.dpr).
  config.dpr = {
    'depth': 100,  # best blocks of BM25 that are looked through
    'num_hard_negatives': 1,  # best of them without an answer
    # Which block holds an answer: dpr, substring, wordpiece; answers that are
    # regular expressions are searched as such.
    'rule': 'dpr',
    'gradient_cache_parts': 1,  # a batch is encoded in so many parts
    'mask_duplicates': True,  # copies of a row's block are no negatives
    'examples': '',  # DPR's training JSON in place of what BM25 finds
    'export': '',  # where to write what was found in that form
  }
  config.warm_start.dpr = {
    'num_steps': 300,
    'batch_size': 16,
    'learning_rate': 2e-5,
  }

  config.refresh.schedule = 'frozen'
  config.optimizer.learning_rate = 1e-5
  config.optimizer.part_scales = {}
  config.masker = 'salient'
  config.prepare.stages = 'tokenizer,tokens,blocks'

  config.evaluate = {
    'workdir': config_dict.placeholder(str),  # '' or None: --workdir
    'questions': (),  # as questions.train
    'max_questions': 0,  # of each; 0: all
    'ks': (5, 10, 50, 100, 500, 1000, 5000),
    'rules': ('substring', 'dpr'),
    'retriever_beam': 0,  # 0: as trained
    'reader_beam': 0,
    'batch_size': 16,
    'read_at_once': 16,  # blocks, on one device
    'answers': 5,  # kept of each question
  }
  return config


def finish(
  config: ml_collections.ConfigDict, arg: str
) -> ml_collections.ConfigDict:
  """Applies the argument: the kind of retrieval, the test size."""
  kind = arg.removesuffix('_test') if arg != 'test' else 'base'
  if kind in ('bm25', 'random'):
    config.retriever = kind
  elif kind == 'blocks':
    config.train_blocks = True
    config.refresh.schedule = 'sync'
  elif kind == 'dpr':
    config.task = kind
    settings = config.warm_start.dpr
    config.num_steps = settings.num_steps
    config.batch_size = settings.batch_size
    config.optimizer.learning_rate = settings.learning_rate
    config.optimizer.part_scales = {}
    config.optimizer.accumulate_steps = 1  # its negatives are of the batch
  if arg.endswith('test'):
    _shrink(config)
  return config


def _shrink(config: ml_collections.ConfigDict) -> None:
  """Cuts everything to what a CPU does in seconds."""
  kept = config.evaluate.copy_and_resolve_references()
  realm_base.shrink(config)
  config.evaluate = kept
  config.lookup.update(
    retriever_beam=20, reader_beam=3, row_length=80, question_length=24
  )
  config.reader.update(span_hidden_size=16, max_span_width=4)
  config.evaluate.update(ks=(1, 5, 20), batch_size=8, read_at_once=8)
  config.dpr.update(depth=20)
  config.warm_start.dpr.update(num_steps=4, batch_size=8)
