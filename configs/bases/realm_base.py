# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The base of every REALM and ICT experiment (Guu et al. 2020, Lee et al. 2019).

The files realm_pretrain_*.py set sizes. Argument of their get_config:

  base     REALM: salient spans, a fresh index
  uniform  random tokens masked (Table 2)
  span     random spans masked (Table 2)
  stale    an index refreshed 30 times less often (Table 2)
  frozen   the first index to the end
  async    an index built by another process while training goes on
  ict      the inverse cloze task, ORQA's warm start of the embedder
  mlm      masked language modelling, a warm start of the encoder
  test     REALM at a size that runs on a CPU in seconds; also uniform_test,
           ict_test, ...
"""

import ml_collections

from configs.bases import realm_sections, sections

WARM_STARTS = ('ict', 'mlm')
KINDS = ('base', 'uniform', 'span', 'stale', 'frozen', 'async', *WARM_STARTS)
ARGS = (*KINDS, 'test', *(f'{kind}_test' for kind in KINDS[1:]))


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the shared configuration; sizes are those of the quickstart."""
  sections.check_arg(arg, ARGS)
  return realm_sections.shared()


def finish(
  config: ml_collections.ConfigDict, arg: str
) -> ml_collections.ConfigDict:
  """Apply the argument: the ablation, the test size."""
  kind = arg.removesuffix('_test')
  if kind in ('uniform', 'span'):
    config.masker = kind
  elif kind == 'stale':
    config.refresh.staleness = 30
  elif kind in ('frozen', 'async'):
    config.refresh.schedule = kind
  elif kind in WARM_STARTS:
    realm_sections.warm_start(config, kind)
  if arg.endswith('test'):
    realm_sections.shrink(config)
    config.evaluate.num_batches = 1
  return config
