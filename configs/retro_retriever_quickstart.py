# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""An embedder taught by the quickstart's RETRO.

Papers: Shi et al. 2023, arXiv 2301.12652 (REPLUG LSR); Sachan et al. 2021 (EMDR2);
Izacard et al. 2022, arXiv 2208.03299 (perplexity distillation). Two CPU cores, after
`make quickstart`; expected figures are in docs/results_retro.md.

  C="--config=configs/retro_retriever_quickstart.py"
  python -m experiments.taught.train_retriever $C \
    --config.retriever.language_model=runs/quickstart/retro --workdir=runs/taught
  python -m experiments.retro.prepare $C --workdir=runs/taught \
    --config.embedder.path=runs/taught/embedder
  python -m experiments.retro.compare $C --workdir=runs/taught \
    --row=frozen=runs/quickstart/retro \
    --row=taught=runs/quickstart/retro,data=runs/taught/data

The paper has gamma = beta = .1 for distances of whole passages and a learning rate
of 2e-5. Here gains of single neighbors differ by .05 nats a token and cosines by .04.
"""

import ml_collections

from configs import retro_pretrain_quickstart
from configs.bases import sections
from experiments.retro import settings


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration: `base`, or `test`, which runs in seconds."""
  sections.check_arg(arg, ('base', 'test'))
  config = retro_pretrain_quickstart.get_config(arg)
  config.retriever = sections.of(
    settings.Retriever, num_candidates=6, max_length=48
  )
  if arg == 'test':
    config.retriever.update(num_candidates=3, queries=2, max_length=16)
    return config
  config.optimizer.update(learning_rate=5e-5, warmup_steps=10)
  config.update(
    batch_size=2,
    num_steps=180,
    log_every=10,
    eval_every=90,
    eval_batches=16,
    checkpoint_every=45,
  )
  return config
