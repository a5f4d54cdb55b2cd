# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ORQA on Simple English Wikipedia's first thousand documents; two CPU cores.

The small baseline of REALM's Table 1, on the blocks of realm_pretrain_small. The
commands of all rows are in docs/results_open_qa.md.
"""

import ml_collections

from configs.bases import open_qa_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; see open_qa_base for `arg`."""
  return open_qa_base.finish(open_qa_base.small(arg), arg)
