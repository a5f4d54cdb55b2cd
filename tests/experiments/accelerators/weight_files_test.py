# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Weights come back from files of bounded size."""

import jax
import numpy as np

from experiments.accelerators import weight_files
from retrieval.store import packed


def test_parameters_come_back_from_small_files(tmp_path):
  draws = np.random.default_rng(0)
  shapes = {'embedding': (300, 16), 'kernel': (16, 40), 'bias': (40,), 'g': ()}
  tree = {'a': {k: draws.normal(size=x) for k, x in shapes.items()}}
  wanted = packed.dequantize(packed.quantize(tree))
  for max_bytes, least in ((4000, 4), (weight_files.MAX_BYTES, 1)):
    weight_files.write(tmp_path, 'x', tree, max_bytes)
    files = [*tmp_path.iterdir()]
    assert len(files) >= least and (least > 1 or len(files) == 1)
    assert max(x.stat().st_size for x in files) <= max_bytes
    found = weight_files.read(tmp_path, 'x')
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
