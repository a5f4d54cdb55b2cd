# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The libraries compute the values that other tests of this folder expect.

Slow, and only where PYLATE_PYTHON or SENTENCE_TRANSFORMERS_PYTHON names a Python that
has the library.
"""

import json
import os
import pathlib
import subprocess

import jax
import numpy as np
import pytest

DATA = pathlib.Path(__file__).parents[2] / 'data'
ORACLES = [
  ('colbert_folders', 'pylate', 'colbert_pylate'),
  ('colbert_folders', 'sentence_transformers', 'colbert_sentence_transformers'),
  ('cross_folders', 'sentence_transformers', 'cross_scores'),
  ('modern_berts', 'sentence_transformers', 'modern_bert'),
  ('sentence_folders', 'sentence_transformers', 'sentence_vectors'),
]


@pytest.mark.slow
@pytest.mark.parametrize(('module', 'library', 'data'), ORACLES)
def test_the_library_computes_the_expected_values(module, library, data):
  python = os.environ.get(f'{library.upper()}_PYTHON')
  if not python:
    pytest.skip(f'{library.upper()}_PYTHON is not set')
  command = python, '-m', f'tests.retrieval.nn.{module}', library
  made = subprocess.run(command, check=True, capture_output=True)
  computed = json.loads(made.stdout)
  expected = json.loads((DATA / f'{data}.json').read_text())
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), computed, expected
  )
