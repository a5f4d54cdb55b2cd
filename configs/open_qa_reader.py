# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The packaged reader and its training; two CPU cores.

BM25 finds the blocks, so that the reader serves any corpus at once. Training has
three stages: masked language modelling beside a block (from all-MiniLM-L6-v2, 7
minutes); reading SQuAD's paragraphs (an hour, beside other runs); choosing among the
blocks that BM25 finds in these paragraphs and the packaged articles (20 minutes,
beside other runs). union.jsonl holds both, a line for each document:

  R=configs/realm_pretrain_small.py
  python -m experiments.prepare --config=$R --workdir=runs/reader \
    --config.corpus.path=simplewiki.jsonl.xz \
    --config.prepare.stages=tokenizer,tokens,blocks
  python -m experiments.train --config=$R:mlm --workdir=runs/reader/mlm \
    --config.corpus.path=simplewiki.jsonl.xz --config.data_dir=runs/reader/data
  S=dev-v1.1.json W=trainmodel.json,val.json,devtest.json
  python -m experiments.train --config=configs/open_qa_reader.py \
    --config.corpus.kind=squad --config.corpus.path=$S \
    --config.encoder_from=runs/reader/mlm \
    --config.questions.train="('squad_open:train=$S',)" \
    --config.questions.dev="('squad_open:dev=$S',)" \
    --config.questions.allow_other_counts=True --config.lookup.reader_beam=2 \
    --config.optimizer.accumulate_steps=8 --workdir=runs/reader/squad
  python -m experiments.train --config=configs/open_qa_reader.py \
    --config.corpus.kind=jsonl --config.corpus.path=union.jsonl \
    --config.encoder_from=runs/reader/squad --config.questions.max_train=20000 \
    --config.questions.train="('squad_open:train=$S','webquestions:train=$W', \
    'opentriviaqa:train=opentriviaqa.jsonl.xz')" \
    --config.questions.dev="('webquestions:dev=$W',)" \
    --config.questions.allow_other_counts=True --config.lookup.reader_beam=3 \
    --config.num_steps=200 --config.eval_every=100 --config.checkpoint_every=100 \
    --config.optimizer.learning_rate=5e-5 --config.optimizer.warmup_steps=20 \
    --workdir=runs/reader/union
  python -m experiments.pack --workdir=runs/reader/union \
    --output=realm_jax/packaged

Its scores: realm_jax/packaged/README.md.
"""

import ml_collections

from experiments.engine import configs
from experiments.open_qa import config as config_lib


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; `config_lib.set_variant` lists the arguments."""
  c = configs.of(config_lib.Config)
  c.corpus.kind = 'vital'
  c.blocks.max_length = 128
  c.layout.query_length = 32
  c.lookup.question_length = 32
  c.lookup.row_length = 152
  lists = 'artandliterature,computers,elements,general,greekmyth,worldcapitals'
  c.questions.train = (f'red_trivia:train={lists}',)
  c.questions.dev = (f'red_trivia:dev={lists}',)
  configs.for_command(c, 'evaluate', questions=(f'red_trivia:test={lists}',))

  # The identity keeps the knowledge of all-MiniLM-L6-v2; 0.2 gives scores of a few
  # nats; 1 would give one block all the probability.
  c.model.pooling = 'mean'
  c.model.projection_size = 384
  c.model.projection_init = 'identity'
  c.model.projection_norm_scale = 0.2
  c.model.projection_dropout_rate = 0.0
  for bert in (c.embedder, c.encoder):
    bert.checkpoint = 'minilm'
    bert.dropout_rate = 0.0  # one short pass gives nothing to overfit
    bert.attention_dropout_rate = 0.0

  c.lookup.retriever_beam = 50
  if arg in ('base', 'test'):
    c.retriever = 'bm25'
    c.loss.early_weight = 0.0  # no retriever learns from it
  # BERT's Adam has no bias correction: its first steps are thrice as long, which a
  # run of thousands forgets and one of hundreds does not.
  c.optimizer.name = 'adamw'
  c.optimizer.b2 = 0.98
  c.optimizer.learning_rate = 2e-4
  c.optimizer.warmup_steps = 50
  c.optimizer.accumulate_steps = 32  # blocks without an answer are not read
  # all-MiniLM-L6-v2 retrieves well, and must not lose it at once.
  c.optimizer.part_scales = {'embedder': 0.2}

  c.batch_size = 32
  c.num_steps = 450
  c.eval_every = 150
  c.eval_batches = 8
  c.checkpoint_every = 150
  config_lib.set_variant(c, arg)
  return c
