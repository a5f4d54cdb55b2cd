# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The base of every experiment in open-domain question answering.

Lee et al. 2019 (ORQA), sections 4 to 6; Guu et al. 2020 (REALM), section 4;
Karpukhin et al. 2020 (DPR). Data stages, embedder and index are those of
realm_sections; config.encoder is the BERT of the reader. The files open_qa_*.py
set sizes. Argument of their get_config:

  base    ORQA: the blocks' side frozen, the questions' side trained
  blocks  the blocks' side trained, too, and the index refreshed
  bm25    blocks found by words; only the reader is trained
  random  random blocks: the score of the reader alone
  dpr     the retriever alone, by contrast (Karpukhin et al. 2020)
  test    ORQA at a size that runs on a CPU in seconds; also bm25_test, ...
"""

import ml_collections

from configs.bases import realm_sections, sections
from experiments.engine import run_settings
from experiments.open_qa import settings
from experiments.realm import settings as realm_settings
from realm_jax.nn import open_qa
from retrieval.search import late_interaction

# Lists of Red-Trivia whose answers are often in the vital articles.
_LISTS = 'artandliterature,computers,elements,general,greekmyth,worldcapitals'
KINDS = ('base', 'blocks', 'bm25', 'random', 'dpr')
ARGS = (*KINDS, 'test', *(f'{kind}_test' for kind in KINDS[1:]))


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the shared configuration; sizes are those of the quickstart."""
  sections.check_arg(arg, ARGS)
  config = realm_sections.shared()
  config.task = 'open_qa'  # or dpr, claims; for experiments.open_qa.train
  config.questions = sections.of(run_settings.Questions)

  # Where the model starts: a run of REALM (both parts), or of one part each; see
  # embedder_from and encoder_from of realm_sections. The index of that run is taken
  # over if it is of the same parameters and blocks, and also if the run trained the
  # questions' side alone, when the vectors are of earlier parameters. Only
  # train_blocks=True embeds the blocks anew. encoder_from='packaged' is the reader
  # that comes with the package; a run named here goes before it.
  config.realm_from = ''

  config.retriever = 'dense'  # or another of realm_jax.serving.beams.KINDS
  config.reranker = sections.of(settings.Reranker)
  config.lookup = sections.of(settings.Lookup)
  config.reader = sections.of(
    open_qa.OpenQaConfig, without=('span_dropout_rate',)
  )
  config.loss = sections.of(settings.Loss)
  config.train_blocks = False

  # Contrastive training of the retriever.
  config.dpr = sections.of(settings.Dpr)
  config.warm_start.dpr = sections.of(
    realm_settings.WarmStart, num_steps=300, batch_size=16, learning_rate=2e-5
  )

  # Late interaction, for the retriever 'colbert'.
  config.colbert_index = sections.of(late_interaction.ColbertConfig)

  config.refresh.schedule = 'frozen'
  config.optimizer.learning_rate = 1e-5
  config.prepare.stages = 'tokenizer,tokens,blocks'

  config.evaluate = sections.of(
    settings.EvaluateQuestions, workdir=sections.workdir()
  )
  return config


def small(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return settings for a thousand short documents and two CPU cores."""
  config = get_config(arg)
  config.corpus.update(kind='jsonl', max_documents=1000)
  config.blocks.max_length = 64
  config.layout.query_length = 32
  config.lookup.update(question_length=32, row_length=88)
  realm_sections.no_dropout(config)
  realm_sections.start_from_minilm(config, embedder_scale=0.05)
  config.optimizer.update(warmup_steps=20, accumulate_steps=4)
  config.update(
    batch_size=16,
    num_steps=200,
    eval_every=100,
    eval_batches=8,
    checkpoint_every=100,
  )
  config.warm_start.dpr.num_steps = 150
  return config


def vital(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return small settings for the packaged vital articles and Red-Trivia."""
  config = small(arg)
  config.corpus.update(kind='vital', max_documents=0)
  config.blocks.max_length = 128
  config.lookup.row_length = 152
  config.questions.update(
    train=(f'red_trivia:train={_LISTS}',), dev=(f'red_trivia:dev={_LISTS}',)
  )
  config.evaluate.questions = (f'red_trivia:test={_LISTS}',)
  if not arg.endswith('test'):
    config.optimizer.part_scales = {'embedder': 0.2}
  return config


def finish(
  config: ml_collections.ConfigDict, arg: str
) -> ml_collections.ConfigDict:
  """Apply the argument: the kind of retrieval, the test size."""
  kind = arg.removesuffix('_test')
  if kind in ('bm25', 'random'):
    config.retriever = kind
  elif kind == 'blocks':
    config.train_blocks = True
    config.refresh.schedule = 'sync'
  elif kind == 'dpr':
    realm_sections.warm_start(config, kind)
  if arg.endswith('test'):
    _shrink(config)
  return config


def _shrink(config: ml_collections.ConfigDict) -> None:
  """Cut everything to a size that a CPU runs in seconds."""
  realm_sections.shrink(config)
  config.lookup.update(
    retriever_beam=20, reader_beam=3, row_length=80, question_length=24
  )
  config.reader.update(span_hidden_size=16, max_span_width=4)
  config.evaluate.update(ks=(1, 5, 20), batch_size=8)
  config.dpr.update(depth=20)
  config.warm_start.dpr.update(num_steps=4, batch_size=8)
