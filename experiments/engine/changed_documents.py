# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A corpus that changes: documents added, replaced and deleted."""

import collections
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import json
import pathlib

from absl import flags
import ml_collections
import numpy as np

from retrieval.store import store
from retrieval.text import corpus as corpus_lib
from retrieval.text import tokens as tokens_lib

FILE = 'documents.jsonl'


def check(
  tokens: tokens_lib.TokenStore,
  documents: Sequence[corpus_lib.Document],
  delete: Sequence[str],
) -> dict[str, int]:
  """Refuses changes that make no sense; counts the others.

  Args:
    tokens: of the corpus that changes.
    documents: replace those of the same id, or are added.
    delete: ids of documents to leave out.

  Returns:
    How many documents are added, changed and deleted.

  Raises:
    ValueError: for no change, an id that is given twice or cannot be deleted, or a
      text that is empty.
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

  def stand(ids):
    return np.isin([tokens_lib.hash_id(i) for i in ids], known).tolist()

  there = stand(delete)
  missing = [name for name, x in zip(delete, there, strict=True) if not x]
  if missing:
    raise ValueError(f'{tokens.path}: no document {missing} to delete.')
  changed = sum(stand([d.id for d in documents]))
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
  """Writes the whole new corpus as JSON lines, in the old order, into ROOT/FILE.

  Args:
    root: the new data folder.
    before: every document of the corpus that changes.
    documents: replace those of the same id, or are added at the end.
    delete: ids of documents to leave out.

  Raises:
    ValueError: where another corpus stands already.
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
  config: ml_collections.ConfigDict, path: str
) -> list[corpus_lib.Document]:
  """Reads changed documents, JSON lines with the fields of config.corpus.

  Raises:
    ValueError: for a bad record, by file and line.
  """
  settings = dataclasses.replace(
    corpus_lib.CorpusConfig(**config.corpus),
    kind='jsonl',
    path=path,
    on_error='raise',
    max_documents=0,
  )
  return list(corpus_lib.Corpus(settings))


def define_flags() -> None:
  """--documents, --delete and --output."""
  flags.DEFINE_string('documents', '', 'JSON lines: added or changed.')
  flags.DEFINE_multi_string('delete', [], 'Id of a document; may repeat.')
  flags.DEFINE_string('output', '', 'The new data folder.')
