# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Corpora that a test writes: JSON lines, SQuAD."""

from collections.abc import Iterable, Mapping
import json
import pathlib
from typing import Any

from retrieval.text import corpus as corpus_lib

# Text is passed on to the byte: no end of it is trimmed, no newline changed.
DOCUMENTS = (
  corpus_lib.Document('1', 'Ants', ' Ants are small.\r\n\r\nThey work.\n'),
  corpus_lib.Document(
    '2', 'Bees \u2581', '\tBees fly\u2028far \x00 e\u0301 \U0001f41d  '
  ),
  corpus_lib.Document('3', '', '\ufeff{"not": "json"}'),
)


def line(document: corpus_lib.Document) -> bytes:
  """A document as a line of JSON."""
  return json.dumps(vars(document)).encode() + b'\n'


JSONL = b''.join(map(line, DOCUMENTS))


def opened(kind: str, path: Any, **fields: Any) -> corpus_lib.Corpus:
  """The corpus of a kind at a path."""
  return corpus_lib.Corpus(corpus_lib.CorpusConfig(kind, str(path), **fields))


def read(kind: str, path: Any, **fields: Any) -> list[corpus_lib.Document]:
  """All its documents."""
  return list(opened(kind, path, **fields))


def squad(*articles: Mapping[str, Any]) -> bytes:
  """A file of SQuAD."""
  return json.dumps({'version': '1.1', 'data': articles}).encode()


def article(title: str, *texts: str) -> dict[str, Any]:
  """An article of SQuAD."""
  paragraphs = [{'context': text, 'qas': []} for text in texts]
  return {'title': title, 'paragraphs': paragraphs}


def write(
  root: pathlib.Path, rows: Iterable[Mapping[str, Any]], **fields: Any
) -> corpus_lib.Corpus:
  """Writes documents into root/documents.jsonl and opens them."""
  root.mkdir(parents=True, exist_ok=True)
  path = root / 'documents.jsonl'
  path.write_text('\n'.join(map(json.dumps, rows)))
  return opened('jsonl', path, **fields)
