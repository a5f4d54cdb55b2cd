# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ORQA as released: BERT base, blocks of 288 wordpieces, beams of 5000 and 5.

Lee et al. 2019, section 6; Guu et al. 2020, section 4: fine-tuning one question at a
time at 1e-5, 20 to 60 epochs of the small question sets, 2 to 4 of NQ-open. Starts
from a run or a converted checkpoint of REALM:

  python -m experiments.convert.convert --from=cc_news_pretrained --workdir=CONVERTED
  python -m experiments.open_qa.train --config=configs/open_qa_released.py \
    --config.realm_from=CONVERTED --config.data_dir=DATA \
    --config.questions.train="('nq_open:train',)" --workdir=DIR
"""

import ml_collections

from configs.bases import open_qa_base, realm_sections


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; see open_qa_base for `arg`."""
  config = open_qa_base.get_config(arg)
  realm_sections.set_both_berts(
    config, checkpoint='', max_length=512, activation='gelu_tanh'
  )
  config.fit_head = False
  config.model.update(
    pooling='pooler',
    projection_size=128,
    projection_init='normal',
    projection_norm_scale=1.0,
  )
  config.questions.update(train=('nq_open:train',), dev=('nq_open:dev',))
  config.update(
    batch_size=1,
    num_steps=300_000,
    eval_every=5000,
    eval_batches=500,
    checkpoint_every=5000,
    log_every=100,
  )
  return open_qa_base.finish(config, arg)
