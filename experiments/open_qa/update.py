# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Change the documents that a model retrieves by experiments.update, without training.

DATA/index is of the same parameters: only blocks whose title or text is new are
embedded (none, where --workdir retrieves by BM25). Salient spans, which only training
and evaluation need, are tagged by experiments.prepare with --config.data_dir=DATA and
--config.prepare.stages=spans.
"""

from collections.abc import Sequence
import dataclasses
import functools
import os
import pathlib

import numpy as np

from experiments.engine import changed_documents, progress
from experiments.realm import config as config_lib, prepare
from realm_jax.data import folder as realm_data
from realm_jax.trained import index_builder, loading, model_configs, realm
from retrieval.index import snapshots, text_index, vectors as vectors_lib
from retrieval.text import corpus as corpus_lib


def change(
  workdir: str | os.PathLike,
  documents: Sequence[corpus_lib.Document],
  delete: Sequence[str],
  root: str | os.PathLike,
  *,
  data_dir: str = '',
) -> dict[str, int]:
  """Write a changed corpus and its index; continue after a kill.

  Args:
    workdir: run whose newest checkpoint embeds, and whose data change.
    documents: documents that replace those of the same id, or are added.
    delete: ids of documents to delete.
    root: the new data folder.
    data_dir: data that change in place of the run's.

  Returns:
    Documents added, changed and deleted; blocks reused and embedded by this call
    (0 where the index was there already), and removed.
  """
  trained = loading.load(workdir, data_dir, part='realm')
  old, tokens = trained.data, trained.data.blocks.tokens
  with changed_documents.changing(
    root, old, tokens, tokens.text, documents, delete
  ) as (root, counts):
    data = _prepare(trained.config, root, old)
    if getattr(trained.config, 'retriever', 'dense') == 'dense':
      counts |= _build_index(trained, data)
    before, after = (
      text_index.TextIndices(x.root, x.blocks) for x in (old, data)
    )
    with progress.bar('texts', 'blocks') as shown:
      after.build_those_of(before, progress=shown)
  hashes, remaining = old.blocks.all_hashes(), data.blocks.all_hashes()
  counts['blocks removed'] = int(np.isin(hashes, remaining, invert=True).sum())
  return counts


def _prepare(
  config: model_configs.RunConfig,
  root: pathlib.Path,
  old: realm_data.DataFolder,
) -> realm_data.DataFolder:
  """Write tokens and blocks like the old ones; the masked corpus stays."""
  data, made = realm_data.DataFolder(root), old.blocks.store.fields
  names = [x.name for x in dataclasses.fields(model_configs.Blocks)]
  blocks = {x: made[x] for x in names}
  blocks['drop_titles'] = tuple(made['drop_titles'])
  fields = changed_documents.settings_of(
    config, root, old.blocks.tokens, wikipedia=bool(made['drop_titles'])
  )
  fields['blocks'] = model_configs.Blocks(**blocks)
  config = dataclasses.replace(config, **fields)
  prepare.tokenize(config, data)
  prepare.cut_blocks(config, data)
  if old.path('masked').exists():
    for name in ('masked', 'spans'):
      if old.path(name).exists() and not data.path(name).exists():
        data.path(name).symlink_to(old.path(name).resolve())
  return data


def _build_index(
  trained: realm.TrainedRealm, data: realm_data.DataFolder
) -> dict[str, int]:
  """Build the index of the new blocks with vectors of the old one."""
  old_blocks, blocks = trained.data.blocks, data.blocks
  builder = index_builder.make_builder(trained.config, data, data.root)
  params = index_builder.snapshot(trained.params)
  embed = builder.embedder(params)
  made_of = {
    'blocks': old_blocks.fingerprint,
    'params': snapshots.fingerprint(params),
  }
  known = vectors_lib.KnownVectors(
    old_blocks, trained.index.version.stored, made_of
  )
  with progress.bar('new index', 'blocks') as shown:
    builder.publish(
      trained.step,
      params,
      lambda ids, done: known.fill(blocks, ids, embed, done),
      shown,
    )
  return {
    'blocks reused': known.num_reused,
    'blocks embedded': known.num_embedded,
  }


def update(config: config_lib.Run, workdir: str) -> None:
  """Apply --documents and --delete to the newest checkpoint's data."""
  changed_documents.run(
    config.corpus,
    functools.partial(change, workdir, data_dir=config.data_dir),
  )
