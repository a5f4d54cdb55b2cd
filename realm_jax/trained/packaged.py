# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The reader, the retriever and the REALM that come with the package.

One packed model (`retrieval.store.packed`) with vectors of the packaged articles'
blocks, 8 bits a value; realm_jax/packaged/README.md documents it.
"""

from collections.abc import Iterable, Mapping
import os
import pathlib
from typing import Any

from absl import logging
import numpy as np

from realm_jax.data import folder as data_folder
from retrieval.index import snapshots
from retrieval.store import packed, safetensors_files
from retrieval.text import blocks as blocks_lib, corpus as corpus_lib

FOLDER = pathlib.Path(__file__).parents[1] / 'packaged'
VECTORS = 'vectors.safetensors'
# blocks that are embedded without being asked, in less than a minute
_FEW = 4096
# sections that decide what is found
_COMPARED = ('blocks', 'index', 'lookup', 'embedder', 'encoder', 'vectors')


def take(
  workdir: str | os.PathLike = '',
  *,
  documents: Iterable[Mapping[str, str]] | None = None,
  corpus: corpus_lib.Corpus | corpus_lib.CorpusConfig | None = None,
  settings: Mapping[str, Any] | None = None,
) -> pathlib.Path:
  """Make the packaged model's run over documents, as `packed_runs.take`.

  lookup.title_length and all of embedder and encoder but their dtype stay those of
  the package. Blocks whose vectors come with the package are found by these; up to
  4,096 others by vectors and BM25 ('weighted'), and more of them by BM25.
  """
  from retrieval.text import packed_runs  # no training takes the package

  settings, packaged = dict(settings or {}), packed.read_config(FOLDER)
  if 'lookup' in settings:
    title_length = packaged['lookup'].get('title_length', 0)
    settings['lookup'] = {**settings['lookup'], 'title_length': title_length}
  for part in {'embedder', 'encoder'} & {*settings}:
    settings[part] = {**packaged[part], 'dtype': settings[part]['dtype']}

  def prepare(config, folder):
    blocks = _prepare(config, folder)
    made = packed.read_facts(FOLDER).vectors
    if made.get('blocks') == blocks.fingerprint:
      return config | {'retriever': 'dense'}
    if blocks.num_blocks <= _FEW:
      return config | {'retriever': 'weighted'}
    logging.info(
      "%d blocks are found by BM25; the retriever 'weighted' embeds them first "
      'and finds more.',
      blocks.num_blocks,
    )
    return config

  return packed_runs.take(
    FOLDER,
    workdir,
    'realm_jax',
    prepare,
    documents=documents,
    corpus=corpus,
    settings=settings,
    compared=_COMPARED,
  )


def _prepare(
  config: Mapping[str, Any], workdir: pathlib.Path
) -> blocks_lib.BlockStore:
  """Write tokens and blocks unless the config names prepared data."""
  root = pathlib.Path(config['data_dir'] or workdir / 'data')
  data = data_folder.DataFolder(root)
  if config['data_dir'] or data.path('blocks').exists():
    return data.blocks
  corpus = corpus_lib.CorpusConfig(**config['corpus'])
  titles = blocks_lib.titles_to_drop(config['blocks']['drop_titles'], corpus)
  data_folder.build_blocks(
    root,
    corpus_lib.Corpus(corpus),
    data.tokenizer_path,
    tokens=config['tokens'],
    blocks=config['blocks']
    | {
      'drop_titles': titles,
      'num_processes': config['tokens']['num_processes'],
    },
  )
  return data.blocks


def vectors_of(params: Any, blocks: blocks_lib.BlockStore) -> np.ndarray | None:
  """Read the vectors [n, d] float32 of blocks by `embedders.embedder_params`.

  None where the package holds those of other blocks or of other parameters.
  """
  made = packed.read_facts(FOLDER).vectors
  if made.get('blocks') != blocks.fingerprint or (
    made.get('params') != snapshots.fingerprint(params)
  ):
    return None
  arrays = safetensors_files.read(packed.checked(FOLDER, VECTORS))
  return arrays['levels'].astype(np.float32) * arrays['scale']
