# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A RETRO of 10.3 M parameters for two CPU cores, on any JSON lines.

Paper: Borgeaud et al. 2021, at a hundredth of its size and less. With the documents
of Simple English Wikipedia, of which the first 16,000 make 205,456 chunks:

  C=--config=configs/retro_pretrain_small.py R=runs/simplewiki
  B=--config.evaluate.baseline_workdir=$R/baseline
  python -m experiments.prepare $C --workdir=$R \
    --config.corpus.path=documents.jsonl.xz --config.corpus.max_documents=16000
  python -m experiments.train $C --config.data_dir=$R/data --workdir=$R/retro
  python -m experiments.train $C:baseline \
    --config.data_dir=$R/data --workdir=$R/baseline
  python -m experiments.evaluate $C $B --config.evaluate.oracle=True --workdir=$R/retro \
    --config.evaluate.evaluators="('bits_per_byte','leakage')" \
    --config.evaluate.rows="('share=.5','share=.2','share=.1','share=.05')"
  python -m experiments.sample $C 'Berlin is the capital of' --workdir=$R/retro
  python -m experiments.tables.show --run=retro=$R/retro \
    --table=retro_13 --table=retro_14 --table=retro_leakage --output=tables

RETROfit of the baseline (section 4.2 and appendix B.2): 8.3 M parameters are frozen,
1.9 M new ones are trained. RETRO[OFF] and the baseline are one row, to the last digit:

  python -m experiments.train $C --config.retrofit_from=$R/baseline \
    --config.data_dir=$R/data --workdir=$R/retrofit
  python -m experiments.evaluate $C $B --workdir=$R/retrofit

Figures and times: docs/lab-notes/retro.md.
"""

from configs import retro_variants
from experiments.engine import configs
from experiments.retro.config import Config


def get_config(arg: str = 'base') -> configs.Config:
  c = configs.of(Config)
  # Data.
  c.corpus.kind = 'jsonl'
  c.tokenizer.vocab_size = 1024  # few tokens, each soon well known
  c.valid_fraction = 0.005
  c.test_fraction = 0.005
  # Model.
  c.model.d_model = 320
  c.model.d_ff = 1280
  c.model.num_heads = 10
  c.model.head_dim = 32
  c.model.num_layers = 6
  c.model.cca_layers = (3, 6)
  c.model.encoder_d_model = 320
  c.model.encoder_d_ff = 640
  c.model.encoder_num_heads = 5
  c.model.encoder_head_dim = 32
  c.model.encoder_num_layers = 1
  c.model.share_embeddings = True
  c.model.copy_init = True  # 10^7 tokens are too few to learn to copy
  c.model.position_base = 100.0  # wavelengths up to 628 tokens, about a row
  c.model.init_scale = 0.055  # of 320 rows: activations keep their size
  # Training.
  c.sequence_chunks = 8  # 512 tokens
  c.batch_size = 4
  c.num_steps = 2000
  c.optimizer.learning_rate = 1.2e-3
  c.optimizer.warmup_steps = 100
  c.log_every = 25
  c.eval_every = c.checkpoint_every = 200
  c.eval_batches = 30
  configs.for_command(c, 'evaluate', num_neighbors=(2, 1, 4))
  return retro_variants.finish(c, arg)
