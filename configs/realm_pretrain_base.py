# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM as published: two BERTs base, 200,000 steps of 512 examples.

Paper: Guu et al. 2020, section 4.2 and Table 1 (exact match after fine-tuning on
NQ 39.2, WebQuestions 40.2, CuratedTREC 46.8); 64 TPUs there, not run here.

  B="--config=configs/realm_pretrain_base.py --config.data_dir=DATA
    --config.corpus.kind=wikiextractor --config.corpus.path=enwiki
    --config.tokenizer.path=BERT --config.embedder.checkpoint=BERT
    --config.encoder.checkpoint=BERT"
  python -m experiments.realm.prepare $B --workdir=runs/base
  python -m experiments.realm.train ${B/base.py/base.py:ict} --workdir=runs/base/ict
  python -m experiments.realm.train $B --config.embedder_from=runs/base/ict \
    --config.distributed=True --workdir=runs/base/realm

BERT is a folder with bert-base-uncased in the Hugging Face layout. With
--config.refresh.schedule=async --config.refresh.builder=external other hosts build
the index: python -m experiments.realm.refresh_worker, same flags and workdir.
"""

import ml_collections

from configs.bases import realm_base, realm_sections


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; see realm_base for `arg`."""
  config = realm_base.get_config(arg)
  config.corpus.kind = 'jsonl'
  config.tokens.num_processes = 16
  config.spans.num_processes = 16
  config.layout.query_length = 96
  config.model.update(
    pooling='pooler',
    projection_size=128,
    projection_init='normal',
    projection_norm_scale=1.0,
    projection_dropout_rate=0.1,
  )
  realm_sections.set_both_berts(
    config,
    checkpoint='',
    activation='gelu_tanh',
    dtype='bfloat16',
    remat=True,
  )
  config.index.searcher = 'scann'
  config.update(
    batch_size=512,
    num_steps=200_000,
    log_every=100,
    eval_every=5000,
    checkpoint_every=5000 if arg.startswith('ict') else 500,
  )
  config.mesh.fsdp = 4
  config.warm_start.update(needs_mlm=False)  # BERT has learned it
  config.warm_start.ict.update(num_steps=100_000, batch_size=4096)
  config.warm_start.mlm.update(num_steps=100_000, batch_size=256)
  config.ict.update(
    gradient_cache_parts=4,
    mask_duplicates=False,  # as released
  )
  return realm_base.finish(config, arg)
