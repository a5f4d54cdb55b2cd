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

Samples, neighbors, leakage and tables of the run:

  C=--config=configs/retro_pretrain_small.py
  T=--config.evaluate.baseline_workdir=runs/simplewiki/baseline
  python -m experiments.retro.sample $C --workdir=runs/simplewiki/retro \
    --prompt='Berlin is the capital of' --stream
  python -m experiments.retro.inspect $C --workdir=runs/simplewiki/retro
  python -m experiments.retro.leakage $C --workdir=runs/simplewiki/retro $T
  python -m experiments.retro.sweep $C --workdir=runs/simplewiki/retro \
    --sweep=datastore
  python -m experiments.tables.tables --run=retro=runs/simplewiki/retro \
    --table=retro_13 --table=retro_14 --table=retro_leakage --output=tables

RETROfit of the baseline, 8.3 M frozen parameters and 1.9 M new ones (section 4.2 and
appendix B.2): the decoder is frozen; encoder and chunked cross-attention are new and
trained alone, under the schedule of pre-training, begun anew. In the paper 3 % of the
sequences of pre-training suffice. RETRO[OFF] and the baseline are then one row, to
the last digit:

  python -m experiments.retro.train --config=configs/retro_pretrain_small.py \
    --config.retrofit_from=runs/simplewiki/baseline \
    --config.data_dir=runs/simplewiki/data --workdir=runs/simplewiki/retrofit
  python -m experiments.retro.evaluate \
    --config=configs/retro_pretrain_small.py --workdir=runs/simplewiki/retrofit \
    --config.evaluate.baseline_workdir=runs/simplewiki/baseline
  python -m experiments.tables.tables --table=retro_retrofit --output=tables \
    --run=retrofit=runs/simplewiki/retrofit --run=scratch=runs/simplewiki/retro

Results go into --workdir; --config.evaluate.workdir names the evaluated run when the
results belong in another folder. Figures and times: docs/results_retro.md.
"""

import ml_collections

from configs.bases import retro_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; see retro_base for `arg`."""
  return retro_base.finish(retro_base.small(arg), arg)
