# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A RETRO of 10.3 M parameters for two CPU cores, on any JSON lines.

Paper: Borgeaud et al. 2021, at a hundredth of its size and less. With the
documents of Simple English Wikipedia in documents.jsonl.xz, of which the first
16,000 make 205,456 chunks:

  python -m experiments.retro.prepare --config=configs/retro_pretrain_small.py \
    --config.corpus.path=documents.jsonl.xz \
    --config.corpus.max_documents=16000 --workdir=runs/simplewiki
  python -m experiments.retro.train --config=configs/retro_pretrain_small.py \
    --config.data_dir=runs/simplewiki/data --workdir=runs/simplewiki/retro
  python -m experiments.retro.train \
    --config=configs/retro_pretrain_small.py:baseline \
    --config.data_dir=runs/simplewiki/data --workdir=runs/simplewiki/baseline
  python -m experiments.retro.evaluate \
    --config=configs/retro_pretrain_small.py --workdir=runs/simplewiki/retro \
    --config.evaluate.baseline_workdir=runs/simplewiki/baseline \
    --config.evaluate.oracle=True

What there is to see in it:

  C=--config=configs/retro_pretrain_small.py
  T=--config.evaluate.baseline_workdir=runs/simplewiki/baseline
  python -m experiments.retro.sample $C --workdir=runs/simplewiki/retro \
    --prompt='Berlin is the capital of' --stream
  python -m experiments.retro.inspect $C --workdir=runs/simplewiki/retro
  python -m experiments.retro.leakage $C --workdir=runs/simplewiki/retro $T
  python -m experiments.retro.sweep $C --workdir=runs/simplewiki/retro \
    --sweep=datastore
  python -m experiments.tables.retro_tables --run=retro=runs/simplewiki/retro \
    --table=13 --table=14 --table=leakage --output=tables

Results go into --workdir; --config.evaluate.workdir names the run where they
should not stand beside it.
"""

import ml_collections

from configs import retro_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the configuration; see retro_base for `arg`."""
  return retro_base.finish(retro_base.small(arg), arg)
