# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Change the datastore of a trained RETRO by experiments.update, without any training.

Documents that are added go into the datastore even where their id would be held out.
Evaluation also needs the neighbors of the held-out documents: experiments.prepare with
--config.data_dir=DATA and --config.prepare.stages=vectors,neighbors finds them.
"""

from collections.abc import Callable, Sequence
import dataclasses
import os

import numpy as np

from experiments.engine import changed_documents, progress
from experiments.retro import config as config_lib, prepare
from retrieval import tokenization
from retrieval.index import (
  published_index as index_lib,
  vectors as vectors_lib,
)
from retrieval.text import (
  chunks as chunks_lib,
  corpus as corpus_lib,
  near_duplicates,
  tokens as tokens_lib,
)
from retro_jax.data import datastore as datastore_lib, folder as retro_data
from retro_jax.trained import loading


def change(
  config: config_lib.Config,
  old: retro_data.DataFolder,
  root: str | os.PathLike,
  documents: Sequence[corpus_lib.Document] = (),
  delete: Sequence[str] = (),
) -> dict[str, int]:
  """Write a changed datastore and its index; a killed update continues.

  Returns:
    Documents added, changed and deleted; chunks reused and embedded by this call.
  """
  with changed_documents.changing(
    root, old, old.tokens, text_of(old), documents, delete
  ) as (root, counts):
    data = dataclasses.replace(old, root=root)
    config = dataclasses.replace(
      config, **changed_documents.settings_of(config, root, old.tokens)
    )
    _cut(config, old, data, [document.id for document in documents])
    with progress.bar('texts', 'chunks') as shown:
      data.datastore.text_indices(config).build_those_of(
        old.datastore.text_indices(config), progress=shown
      )
    if not old.path('vectors-train').exists():
      return counts
    embedder = datastore_lib.load_embedder(config.embedder)
    chunks, stored = old.chunks('train'), old.datastore.vectors('train')
    made_of = {
      'passages': chunks.fingerprint,
      'embedder': embedder.fingerprint,
    }
    known = vectors_lib.KnownVectors(chunks, stored, made_of)
    with progress.bar('vectors', 'chunks') as shown:
      vectors = vectors_lib.build_vector_store(
        data.path('vectors-train'),
        data.chunks('train'),
        embedder,
        known=known,
        progress=shown,
      )
    index_lib.build_index(
      data.path('index'),
      vectors.array('vectors'),
      vectors.fingerprint,
      vectors_lib.index_config(config.index, vectors),
    )
    return counts | {
      'chunks reused': known.num_reused,
      'chunks embedded': known.num_embedded,
    }


def text_of(data: retro_data.DataFolder) -> Callable[[int], str]:
  """Return a function from a document's number to its text."""
  tokens, tokenizer = data.tokens, data.tokenizer
  if isinstance(tokenizer, tokenization.WordPieceTokenizer):
    raise ValueError(
      f'{data.tokenizer_path}: WordPiece loses letter case and spaces, so the '
      'documents cannot be read from their tokens; expected SentencePiece or '
      'byte pairs.'
    )
  with_title = tokens.store.fields['with_title']

  def read(i: int) -> str:
    title = tokens.title(i)
    text = tokenizer.decode(np.asarray(tokens.document(i)[1:]))
    if with_title and title:
      empty = corpus_lib.Document(tokens.document_id(i), title, '')
      text = text.removeprefix(tokens_lib.document_text(empty, True))
    return text

  return read


def _cut(config, old, data, added) -> None:
  """Build tokens and chunks of all splits with the settings of the old ones."""
  tokens = prepare.tokens_of(config, data, 'tokens', config.corpus)
  fields = old.chunks('train').store.fields
  test_fraction = fields.get('test_fraction', 0.0)
  new = sorted({*fields.get('added', ()), *added})
  there = np.isin(tokens_lib.hash_ids(new), tokens.id_hash[:])
  new = [x for x, stands in zip(new, there, strict=True) if stands]
  if 'dropped' in fields:
    near_duplicates.build_duplicate_store(
      data.path('duplicates'),
      tokens,
      data.tokenizer,
      valid_fraction=fields['valid_fraction'] + test_fraction,
      settings=config.deduplicate,
      evaluation=_evaluation_sets(old, data),
      added=new,
    )
  for split in old.corpus_splits:
    leaves_out = split == 'train' and 'dropped' in fields
    chunks_lib.build_chunk_store(
      data.path(f'chunks-{split}'),
      tokens,
      chunk_length=fields['chunk_length'],
      split=split,
      valid_fraction=fields['valid_fraction'],
      test_fraction=test_fraction,
      dropped=data.duplicates if leaves_out else None,
      added=new,
    )


def _evaluation_sets(old, data) -> list[tokens_lib.TokenStore]:
  """Link the evaluation sets of the old deduplication into the new data."""
  names = near_duplicates.compared_with(old.duplicates)
  for name in names:
    if not data.path(name).exists():
      data.path(name).symlink_to(old.path(name).resolve())
  return [tokens_lib.TokenStore(data.path(name)) for name in names]


def update(config: config_lib.Config, workdir: str) -> None:
  """Apply --documents and --delete to the data of a run."""
  _, saved = loading.find_run(workdir, config_lib.Config)
  saved = dataclasses.replace(
    loading.merged(saved, config),
    index=config.index,
    data_dir=config.data_dir or saved.data_dir,
  )
  old = retro_data.DataFolder.of(saved, workdir)

  def apply(documents, delete, output):
    return change(saved, old, output, documents, delete)

  changed_documents.run(config.corpus, apply)
