# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A corpus that changes: documents added, replaced and deleted."""

import collections
from collections.abc import Iterable, Sequence
import dataclasses
import json
import pathlib

from absl import flags
import numpy as np

from retrieval.store import store
from retrieval.text import corpus as corpus_lib, tokens as tokens_lib

FILE = 'documents.jsonl'


def check(
  tokens: tokens_lib.TokenStore,
  documents: Sequence[corpus_lib.Document],
  delete: Sequence[str],
) -> dict[str, int]:
  """Check changes of a corpus and count them.

  Args:
    documents: added, or in place of documents of the same id.

  Raises:
    ValueError: for no change, a repeated id, an unknown id to delete, or an
      empty text.
  """
  if not documents and not delete:
    raise ValueError('Nothing to change: no document and no id to delete.')
  given = collections.Counter([*(d.id for d in documents), *delete])
  twice = [name for name, count in given.items() if count > 1]
  if twice:
    raise ValueError(f'Ids {twice}: given more than once.')
  empty = [d.id for d in documents if not d.text.strip()]
  if empty:
    raise ValueError(f'Documents {empty}: the text is empty.')
  known = tokens.id_hash[:]

  def are_known(ids):
    return np.isin([tokens_lib.hash_id(i) for i in ids], known).tolist()

  found = are_known(delete)
  missing = [name for name, x in zip(delete, found, strict=True) if not x]
  if missing:
    raise ValueError(f'{tokens.path}: no document {missing} to delete.')
  changed = sum(are_known([d.id for d in documents]))
  return {
    'documents added': len(documents) - changed,
    'documents changed': changed,
    'documents deleted': len(delete),
  }


def write(
  root: pathlib.Path,
  before: Iterable[corpus_lib.Document],
  documents: Sequence[corpus_lib.Document],
  delete: Sequence[str],
) -> None:
  """Write the whole new corpus as JSON lines, in the old order, into ROOT/FILE.

  Args:
    documents: in place of documents of the same id, or added at the end.

  Raises:
    ValueError: if the folder holds another corpus already.
  """
  file = root / FILE
  new, gone = {d.id: d for d in documents}, set(delete)
  with store.open_atomically(file, 'w') as f:
    for document in before:
      if document.id not in gone:
        f.write(_line(new.pop(document.id, document)))
    f.writelines(_line(document) for document in new.values())
    f.flush()
    if file.exists() and store.hash_files([file]) != store.hash_files([f.name]):
      raise ValueError(
        f'{root}: holds another corpus already; name another folder.'
      )


def _line(document: corpus_lib.Document) -> str:
  return json.dumps(dataclasses.asdict(document)) + '\n'


def read(
  corpus: corpus_lib.CorpusConfig, path: str
) -> list[corpus_lib.Document]:
  """Read changed documents, JSON lines with the fields of a corpus.

  Raises:
    ValueError: for a bad record, by file and line.
  """
  settings = dataclasses.replace(
    corpus,
    kind='jsonl',
    path=path,
    on_error='raise',
    max_documents=0,
  )
  return list(corpus_lib.Corpus(settings))


def define_flags() -> None:
  """Define --documents, --delete and --output."""
  flags.DEFINE_string('documents', '', 'JSON lines: added or changed.')
  flags.DEFINE_multi_string('delete', [], 'Id of a document; may repeat.')
  flags.DEFINE_string('output', '', 'The new data folder.')
