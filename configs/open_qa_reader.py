# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The packaged reader and its training; two CPU cores.

BM25 finds the blocks, so that the reader serves any corpus at once. Training has
three stages: masked language modelling beside a block (from all-MiniLM-L6-v2, 7
minutes); reading SQuAD's paragraphs (an hour, beside other runs); choosing among the
blocks that BM25 finds in these paragraphs and the packaged articles (20 minutes).
union.jsonl holds both, a line for each document. Scores: realm_jax/packaged/README.md.

  R="--config.corpus.path=simplewiki.jsonl.xz --config.data_dir=runs/reader/data"
  M=--config=configs/realm_pretrain_small.py
  python -m experiments.prepare $M $R --workdir=runs/reader \
    --config.prepare.stages=tokenizer,tokens,blocks
  python -m experiments.train $M:mlm $R --workdir=runs/reader/mlm
  S=dev-v1.1.json W=trainmodel.json,val.json,devtest.json
  C="--config=configs/open_qa_reader.py --config.questions.allow_other_counts=True"
  python -m experiments.train $C --workdir=runs/reader/squad \
    --config.corpus.kind=squad --config.corpus.path=$S \
    --config.encoder_from=runs/reader/mlm \
    --config.questions.train="('squad_open:train=$S',)" \
    --config.questions.dev="('squad_open:dev=$S',)" \
    --config.lookup.reader_beam=2 --config.optimizer.accumulate_steps=8
  python -m experiments.train $C --workdir=runs/reader/union \
    --config.corpus.kind=jsonl --config.corpus.path=union.jsonl \
    --config.corpus.wikipedia=True \
    --config.encoder_from=runs/reader/squad --config.questions.max_train=20000 \
    --config.questions.train="('squad_open:train=$S','webquestions:train=$W', \
    'opentriviaqa:train=opentriviaqa.jsonl.xz')" \
    --config.questions.dev="('webquestions:dev=$W',)" \
    --config.lookup.reader_beam=3 --config.num_steps=200 \
    --config.eval_every=100 --config.checkpoint_every=100 \
    --config.optimizer.learning_rate=5e-5 --config.optimizer.warmup_steps=20
  python -m experiments.pack --workdir=runs/reader/union --output=realm_jax/packaged
"""

from configs import open_qa_quickstart
from experiments.engine import configs
from experiments.open_qa import config as config_lib


def get_config(arg: str = 'base') -> configs.Config:
  c = open_qa_quickstart.get_config()
  c.encoder_from = ''
  c.lookup.retriever_beam = 50
  if arg in ('base', 'test'):
    c.retriever = 'bm25'
    c.loss.early_weight = 0.0  # no retriever learns from it
  c.optimizer.learning_rate = 2e-4
  c.optimizer.warmup_steps = 50
  c.optimizer.accumulate_steps = 32  # blocks without an answer are not read
  c.batch_size = 32
  c.num_steps = 450
  c.eval_every = c.checkpoint_every = 150
  config_lib.set_variant(c, arg)
  return c
