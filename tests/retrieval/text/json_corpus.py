# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A corpus of JSON lines that a test writes."""

from collections.abc import Iterable, Mapping
import json
import pathlib
from typing import Any

from retrieval.text import corpus as corpus_lib


def write(
  root: pathlib.Path, rows: Iterable[Mapping[str, Any]]
) -> corpus_lib.Corpus:
  """Writes documents into root/documents.jsonl and opens them."""
  root.mkdir(parents=True, exist_ok=True)
  path = root / 'documents.jsonl'
  path.write_text('\n'.join(map(json.dumps, rows)))
  return corpus_lib.Corpus(corpus_lib.CorpusConfig('jsonl', str(path)))
