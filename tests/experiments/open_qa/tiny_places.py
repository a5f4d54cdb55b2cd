# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Places that each have a year of their own, and a text without one."""

import json
import pathlib

import numpy as np

from tests.retrieval.text import tiny_blocks


def make(root: pathlib.Path, names: str, others=(), **settings):
  """Write blocks of two documents a place, and a question for each year."""
  documents, rows = [], []
  for i, name in enumerate(names):
    year = 1100 + 7 * i
    for title, text in (
      (f'Mill {name}', f'The mill of {name} {name} {name} stood in {year}.'),
      (f'Crown {name}', f'The crown of {name} {name} {name} was in the river.'),
    ):
      documents.append({'id': title, 'title': title, 'text': text})
    question = f'when stood {name} {name} {name}'
    rows.append({'id': f'q{i}', 'question': question, 'answer': [str(year)]})
  lines = ''.join(json.dumps(row) + '\n' for row in (*rows, *others))
  (root / 'questions.jsonl').write_text(lines)
  rng = np.random.default_rng(0)
  return tiny_blocks.make(root, rng, given=documents, **settings)
