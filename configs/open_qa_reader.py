# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A reader of spans that serves any corpus at once; two CPU cores.

BM25 finds the blocks, and the reader learns from all questions: where no block that
it reads holds an answer, "no answer" is right. The config is also that of the packaged
reader, whose data, commands and scores realm_jax/packaged/README.md has.

  S=train-v1.1.json W=trainmodel.json,val.json,devtest.json
  python -m experiments.train --config=configs/open_qa_reader.py --workdir=runs/reader \
    --config.corpus.kind=squad --config.corpus.path=$S \
    --config.encoder_from=packaged --config.questions.allow_other_counts=True \
    --config.questions.train="('squad_open:train=$S','webquestions:train=$W')" \
    --config.questions.dev="('webquestions:dev=$W',)" --config.lookup.reader_beam=2

With the argument reading, questions come with their passages, as docs/questions.md
says; a block with an answer is read, and reading.blocks - 1 others.

  python -m experiments.train --config=configs/open_qa_reader.py:reading \
    --workdir=runs/reader --config.reading.train="('squad.jsonl','found.json')" \
    --config.reading.valid="('dev.jsonl',)"
"""

from configs import open_qa_quickstart
from experiments.engine import configs
from experiments.open_qa import config as config_lib


def get_config(arg: str = 'base') -> configs.Config:
  c = open_qa_quickstart.get_config()
  c.encoder_from = ''
  c.lookup.update(retriever_beam=50, row_length=168, title_length=12)
  c.reader.null_answer = True
  c.reader.coverage_weight = 4.0  # as of the packaged reader
  if arg in ('base', 'test'):
    c.retriever = 'bm25'
  c.optimizer.learning_rate = 2e-4
  c.optimizer.warmup_steps = 50
  c.optimizer.accumulate_steps = 32  # blocks without an answer are not read
  c.batch_size = 32
  c.num_steps = 450
  c.eval_every = c.checkpoint_every = 150
  if arg.startswith('reading'):
    c.encoder_from = '' if arg.endswith('test') else 'packaged'
    c.encoder.dtype = 'bfloat16'
    c.optimizer.accumulate_steps = 1
    c.optimizer.part_scales = {'reader/bert/embeddings/word': 0.0}
    arg = arg.replace('reading', 'bm25')
  config_lib.set_variant(c, arg)
  return c
