# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sections that the configs of all models share."""

from typing import Any


def corpus(kind: str) -> dict[str, Any]:
  """Where documents come from: fields of `retrieval.text.corpus.CorpusConfig`."""
  return {
    # vital, jsonl, text, squad, wikiextractor, tfds, orqa_blocks, orqa_corpus,
    # realm_pretraining
    'kind': kind,
    'path': '',  # file, glob or folder; TFDS: name or name/config
    'split': 'train',  # TFDS only
    'data_dir': '',  # TFDS only
    'id_field': 'id',
    'title_field': 'title',
    'text_field': 'text',
    'on_error': 'raise',  # or skip: bad records are counted and passed over
    'max_documents': 0,  # 0: all
  }


def scann() -> dict[str, Any]:
  """ScannConfig's fields; 0: chosen from the size of the data.

  What is left as it is here does not tell one index from another.
  """
  return {
    'num_leaves': 0,
    'num_leaves_to_search': 0,
    'training_sample_size': 0,
    'dimensions_per_block': 2,
    'anisotropic_threshold': 0.2,
    'num_to_rescore': 0,
    'rescore': 'float32',  # or bfloat16, int8, none
    'soar': False,  # for metric dot_product
    'num_threads': 0,
  }


def devices() -> dict[str, Any]:
  """The mesh, and logical axis -> mesh axis, several, or '' for none.

  The rules are retrieval.nn.sharding's own. As a flag:
  --config.sharding_rules.vocab=fsdp.
  """
  return {
    'mesh': {'data': -1, 'fsdp': 1, 'tensor': 1},
    'sharding_rules': {
      'batch': ('data', 'fsdp'),
      'length': '',
      'embed': 'fsdp',
      'heads': 'tensor',
      'kv': '',
      'mlp': 'tensor',
      'vocab': 'tensor',
    },
    'distributed': False,  # True: one process of several, each on its host
  }
