# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that are no RETRO are refused by name."""

import ml_collections
import pytest

from retrieval.store import checkpoints
from retro_jax.data import folder
from retro_jax.trained import loading


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
  data = folder.DataFolder(tmp_path)
  saved = checkpoints.Saved(
    config=ml_collections.ConfigDict({'task': 'realm'}),
    step=4,
    fingerprints={},
    params={'retriever': None, 'encoder': None},
  )
  line = (
    "^runs/realm: a checkpoint with .'encoder', 'retriever'., expected RETRO"
  )
  with pytest.raises(ValueError, match=line):
    loading.check_data('runs/realm', saved, data)
