# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A corpus of 60 short documents that share a dozen words."""

import json
import pathlib

_WORDS = 'the river ran past an old mill where nobody had ground corn'.split()


def write(folder: pathlib.Path, num_words: int) -> pathlib.Path:
  """Writes documents.jsonl, each text of `num_words`, and returns its path."""
  path = folder / 'documents.jsonl'
  with open(path, 'w') as f:
    for i in range(60):
      text = ' '.join(
        _WORDS[(i * j + j // 3) % len(_WORDS)] for j in range(num_words)
      )
      f.write(json.dumps({'id': i, 'title': f'Mill {i}', 'text': text}) + '\n')
  return path
