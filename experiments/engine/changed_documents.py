# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A corpus that changes: documents added, replaced and deleted.

`experiments.update` writes the changed corpus into a new data folder and prepares it;
the functions of the rooms reuse the vectors of texts that stay.
"""

import collections
from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import filecmp
import json
import os
import pathlib
from typing import Any

from absl import flags, logging
import numpy as np

from experiments.engine import reports
from retrieval.readers import base
from retrieval.store import locks, output_files
from retrieval.text import corpus as corpus_lib, tokens as tokens_lib

FILE = 'documents.jsonl'

# (documents, ids to delete, new folder) -> counts
Change = Callable[
  [Sequence[corpus_lib.Document], Sequence[str], str], dict[str, int]
]


@contextlib.contextmanager
def changing(
  root: str | os.PathLike,
  old: Any,
  tokens: tokens_lib.TokenStore,
  text: Callable[[int], str],
  documents: Sequence[corpus_lib.Document],
  delete: Sequence[str],
) -> Iterator[tuple[pathlib.Path, dict[str, int]]]:
  """Write a changed corpus and its tokenizer into a new data folder; lock it.

  Args:
    root: the new folder.
    old: the data folder before.
    tokens: its documents.
    text: returns the text of a document by its number.
    documents: added, or in place of documents of the same id.
    delete: ids of other documents.

  Yields:
    The new folder, and the counts of `check`.
  """
  root = pathlib.Path(root).resolve()
  if root == old.root.resolve():
    raise ValueError(f'{root}: is the old data folder; name another one.')
  counts = check(tokens, documents, delete)
  with locks.writer(root, locks.DATA):
    _write(root, tokens, text, documents, delete)
    data = type(old)(root)
    if not data.has_tokenizer:
      old.tokenizer.save(data.tokenizer_path)
    yield root, counts


def settings_of(
  config: Any,
  root: pathlib.Path,
  tokens: tokens_lib.TokenStore,
  wikipedia: bool = False,
) -> dict[str, Any]:
  """Return the fields of a config that prepare a changed corpus like the old one.

  Args:
    config: of the old data, perhaps with other settings by now.
    root: folder of the changed corpus.
    tokens: the old documents.
    wikipedia: as of `CorpusConfig`.
  """
  names, known = tokens.store.fields, vars(config.tokens)
  return {
    'corpus': corpus_lib.CorpusConfig(
      kind='jsonl',
      path=str(root / FILE),
      metadata=','.join(tokens.metadata.names),
      wikipedia=wikipedia,
    ),
    'tokens': dataclasses.replace(
      config.tokens, **{x: names[x] for x in known if x in names}
    ),
  }


def check(
  tokens: tokens_lib.TokenStore,
  documents: Sequence[corpus_lib.Document],
  delete: Sequence[str],
) -> dict[str, int]:
  """Count the changes of a corpus.

  Raises:
    ValueError: for no change, a repeated id, an unknown id to delete, an
      empty text, or metadata that are no text, number or boolean.
  """
  if not documents and not delete:
    raise ValueError('Nothing to change: no document and no id to delete.')
  ids = [d.id for d in documents]
  counts = collections.Counter([*ids, *delete])
  if twice := [name for name, count in counts.items() if count > 1]:
    raise ValueError(f'Ids {twice}: expected each once.')
  if empty := [d.id for d in documents if not d.text.strip()]:
    raise ValueError(f'Documents {empty}: the text is empty.')
  for document in documents:
    names = tokens.metadata.names
    values = {x: y for x, y in document.metadata.items() if x in names}
    base.check_metadata(values, f'document {document.id}')
  known = tokens.id_hash[:]
  is_known = np.isin(tokens_lib.hash_ids(delete), known)
  if missing := [x for x, y in zip(delete, is_known, strict=True) if not y]:
    raise ValueError(f'{tokens.path}: no document {missing} to delete.')
  changed = int(np.isin(tokens_lib.hash_ids(ids), known).sum())
  return {
    'documents added': len(documents) - changed,
    'documents changed': changed,
    'documents deleted': len(delete),
  }


def _write(root, tokens, text, documents, delete) -> None:
  """Write the new corpus into ROOT/FILE, added documents last."""
  file, names = root / FILE, tokens.metadata.names
  new, gone = {d.id: d for d in documents}, set(delete)
  with output_files.writing(file, 'w') as f:
    for i, row in enumerate(tokens.metadata.rows(range(tokens.num_documents))):
      if (name := tokens.document_id(i)) not in gone:
        if (document := new.pop(name, None)) is None:
          document = corpus_lib.Document(name, tokens.title(i), text(i), row)
        f.write(_line(document, names))
    f.writelines(_line(document, names) for document in new.values())
    f.flush()
    if file.exists() and not filecmp.cmp(file, f.name, shallow=False):
      raise ValueError(
        f'{root}: holds another corpus already; name another folder.'
      )


def _line(document: corpus_lib.Document, names: Sequence[str]) -> str:
  """Return a document as a line of JSON, with the metadata of some names."""
  fields = dataclasses.asdict(document)
  values = fields.pop('metadata')
  if some := {x: values[x] for x in names if values.get(x) is not None}:
    fields['metadata'] = some
  return json.dumps(fields) + '\n'


def run(corpus: corpus_lib.CorpusConfig, change: Change) -> None:
  """Make the changes that the flags name, and print their counts."""
  values, documents = flags.FLAGS, []
  if not values.output:
    raise ValueError('--output is empty: expected the new data folder.')
  if values.documents:  # JSON lines with the fields of the corpus
    fields = {'kind': 'jsonl', 'path': values.documents, 'metadata': ''}
    fields |= {'on_error': 'raise', 'max_documents': 0}
    changes = corpus_lib.Corpus(dataclasses.replace(corpus, **fields))
    # `write` chooses those of the data folder.
    changes.fields = dataclasses.replace(changes.fields, metadata=None)
    documents = [*changes]
  counts = change(documents, values.delete, values.output)
  rows = [(name, f'{count:,}') for name, count in counts.items()]
  reports.print_table(('part', 'number'), rows)
  logging.info('The new data and their index are in %s.', values.output)
