# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The packaged reader and its training; two CPU cores.

BM25 finds the blocks, so that the reader serves any corpus at once. Training has
three stages: masked language modelling beside a block (from all-MiniLM-L6-v2, 7
minutes); reading SQuAD's paragraphs (an hour, beside other runs); choosing among the
blocks that BM25 finds in these paragraphs and the packaged articles (20 minutes,
beside other runs). union.jsonl holds both, a line for each document:

  R=configs/realm_pretrain_small.py
  python -m experiments.realm.prepare --config=$R --workdir=runs/reader \
    --config.corpus.path=simplewiki.jsonl.xz \
    --config.prepare.stages=tokenizer,tokens,blocks
  python -m experiments.realm.train --config=$R:mlm --workdir=runs/reader/mlm \
    --config.corpus.path=simplewiki.jsonl.xz --config.data_dir=runs/reader/data
  S=dev-v1.1.json W=trainmodel.json,val.json,devtest.json
  python -m experiments.open_qa.train --config=configs/open_qa_reader.py \
    --config.corpus.kind=squad --config.corpus.path=$S \
    --config.encoder_from=runs/reader/mlm \
    --config.questions.train="('squad_open:train=$S',)" \
    --config.questions.dev="('squad_open:dev=$S',)" \
    --config.questions.allow_other_counts=True --config.lookup.reader_beam=2 \
    --config.optimizer.accumulate_steps=8 --workdir=runs/reader/squad
  python -m experiments.open_qa.train --config=configs/open_qa_reader.py \
    --config.corpus.kind=jsonl --config.corpus.path=union.jsonl \
    --config.encoder_from=runs/reader/squad --config.questions.max_train=20000 \
    --config.questions.train="('squad_open:train=$S','webquestions:train=$W', \
    'opentriviaqa:train=opentriviaqa.jsonl.xz')" \
    --config.questions.dev="('webquestions:dev=$W',)" \
    --config.questions.allow_other_counts=True --config.lookup.reader_beam=3 \
    --config.num_steps=200 --config.eval_every=100 --config.checkpoint_every=100 \
    --config.optimizer.learning_rate=5e-5 --config.optimizer.warmup_steps=20 \
    --workdir=runs/reader/union
  python -m experiments.pack --workdir=runs/reader/union --parts=reader \
    --output=realm_jax/packaged

Its scores: realm_jax/packaged/README.md.
"""

import ml_collections

from configs.bases import open_qa_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; see open_qa_base for `arg`."""
  config = open_qa_base.vital(arg)
  if arg in ('base', 'test'):
    config.retriever = 'bm25'
    config.loss.early_weight = 0.0  # no retriever learns from it
  config.lookup.retriever_beam = 50
  config.optimizer.update(
    warmup_steps=50,
    accumulate_steps=32,  # blocks without an answer are not read
  )
  config.update(
    batch_size=32, num_steps=450, eval_every=150, checkpoint_every=150
  )
  return open_qa_base.finish(config, arg)
