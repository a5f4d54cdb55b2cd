# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Claims classified by the blocks retrieved for them, as in FEVER and HoVer.

Lee et al.'s code has this head beside the reader of spans. Data, retriever and
beams are those of open_qa_base. Retriever and classifier start from
all-MiniLM-L6-v2. On the small set of the tests, three minutes of one CPU core (60
steps):

  DATA=tests/data/claims
  python -m experiments.open_qa.train --config=configs/claims_base.py \
    --config.corpus.path=$DATA/documents.jsonl \
    --config.claims.train="('fever:train=$DATA/train.jsonl',)" \
    --config.claims.dev="('fever:dev=$DATA/dev.jsonl',)" \
    --config.lookup.reader_beam=2 --workdir=runs/claims
  python -m experiments.open_qa.evaluate --config=configs/claims_base.py \
    --config.evaluate.claims="('fever:dev=$DATA/dev.jsonl',)" --workdir=runs/claims

This run shows the commands, not a result: the evidence comes first for all 13
held-out claims that have evidence, but 8 of all 18 claims are classified right, no
better than chance after 36 training claims (7 are of the commonest class).

Argument: base, blocks, bm25, random, test, blocks_test, ...; see open_qa_base.
"""

import ml_collections

from configs.bases import open_qa_base, realm_sections, sections
from experiments.open_qa import settings

KINDS = tuple(kind for kind in open_qa_base.KINDS if kind != 'dpr')
ARGS = (*KINDS, 'test', *(f'{kind}_test' for kind in KINDS[1:]))


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; sizes are those of all-MiniLM-L6-v2."""
  sections.check_arg(arg, ARGS)
  config = open_qa_base.get_config(arg)
  config.task = 'claims'
  config.corpus.kind = 'jsonl'
  config.blocks.max_length = 96
  config.lookup.row_length = 112
  realm_sections.start_from_minilm(config, embedder_scale=0.05)
  config.optimizer.warmup_steps = 10
  config.update(num_steps=60, batch_size=8, eval_every=30, checkpoint_every=30)
  config = open_qa_base.finish(config, arg)
  for name in ('questions', 'reader', 'dpr'):  # of answers that are spans
    del config[name]
  del config.lookup.rule

  config.claims = sections.of(settings.Claims)
  config.evaluate = sections.of(
    settings.EvaluateClaims, workdir=sections.workdir()
  )
  return config
