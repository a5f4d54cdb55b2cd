# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Blocks and vectors of other projects as data folder and index version.

Nothing is embedded: row i of the vectors belongs to block i. Both stream from
disk to disk, so that memory does not grow with the number of blocks.
"""

import pathlib
import shutil
from typing import Any

from absl import logging
import numpy as np

from experiments.conversion import sources
from experiments.engine import configs, progress
from experiments.open_qa import config as config_lib
from experiments.realm import prepare as realm_prepare
from realm_jax.data import folder as realm_data
from realm_jax.trained import index_builder, model_configs
from retrieval import tokenization
from retrieval.formats import block_records, tfrecord
from retrieval.index import index_versions
from retrieval.text import blocks as blocks_lib

FOLDER = 'official'
_PER_SHARD = 65_536  # blocks; 13 million blocks make about 200 files


def place_files(data: pathlib.Path, blocks: str) -> None:
  """Link or write blocks and titles where the corpus reader finds both.

  Args:
    blocks: blocks.tfr, a folder with it, or block_records.npy. Without titles.tfr
      beside the blocks titles are empty.
  """
  source = pathlib.Path(blocks)
  if source.is_dir():
    names = ('blocks.tfr', 'blocks.tfr.gz', 'block_records.npy')
    there = [source / n for n in names if (source / n).is_file()]
    source = there[0] if there else source / names[0]
  if not source.is_file():
    raise FileNotFoundError(f'{source}: no such file.')
  folder = data / FOLDER
  folder.mkdir(parents=True, exist_ok=True)
  suffix = '.gz' if source.suffix == '.gz' else ''
  placed = folder / f'blocks.tfr{suffix}'
  if source.suffix != '.npy':
    _link(placed, source)
  elif not placed.exists():
    tfrecord.write(placed, block_records.read(source))
  titles = source.with_name(source.name.replace('blocks', 'titles'))
  target = folder / f'titles.tfr{suffix}'
  if source.suffix != '.npy' and titles.is_file():
    _link(target, titles)
  elif not target.exists():
    logging.info('No titles: blocks get empty ones.')
    tfrecord.write(target, (b'' for _ in tfrecord.read(placed)))


def _link(link: pathlib.Path, target: pathlib.Path) -> None:
  target = target.resolve()
  if link.resolve() != target:
    link.unlink(missing_ok=True)  # of a killed conversion
    link.symlink_to(target)


def _check_sizes(
  vectors: np.ndarray, name: str, num_blocks: int, width: int
) -> None:
  """Refuse vectors [n, d] for other blocks or of another width (ValueError)."""
  rows, columns = vectors.shape
  if rows != num_blocks or columns != width:
    raise ValueError(
      f'{name}: {rows:,} vectors of width {columns}, but there are {num_blocks:,} '
      f"blocks and the model's vectors are of width {width}."
    )


def make_data(
  config: config_lib.Config,
  read: sources.Sources,
  workdir: str,
  *,
  vocab: str = '',
  blocks: str = '',
) -> tuple[config_lib.Config, dict[str, str], blocks_lib.BlockStore | None]:
  """Make vocabulary and blocks of a data folder, or open finished ones.

  Args:
    vocab: as of `convert.convert`; '' is that of the checkpoints.
    blocks: as of `convert.convert`, too.

  Returns:
    The config that reads the data back, their fingerprints, and the blocks.
  """
  data = realm_data.DataFolder.of(config, workdir)
  prints, store = {}, None
  vocab = vocab or read.tokenizer
  if vocab:
    size = read.parts[0].sizes.bert.vocab_size
    count = tokenization.WordPieceTokenizer(vocab).vocab_size
    if count != size:
      raise ValueError(
        f'{vocab}: a vocabulary of {count:,}, but the checkpoint has {size:,} '
        'word embeddings.'
      )
    config = configs.replaced(config, **{'tokenizer.path': str(vocab)})
    realm_prepare.take_tokenizer(config, data)
    vocab = str(data.tokenizer_path.resolve())
    config = configs.replaced(config, **{'tokenizer.path': vocab})
    prints['tokenizer'] = data.tokenizer.fingerprint
  source = blocks or (read.records and str(read.records))
  if source:
    if not vocab:
      raise ValueError('--blocks needs a vocabulary: name it by --vocab.')
    width = config.model.projection_size
    if read.vectors is not None and source.endswith('.npy'):
      # Check the count in the header before millions of blocks are tokenized.
      count = block_records.count(source)
      _check_sizes(read.vectors, read.vectors_name, count, width)
    place_files(data.root, source)
    path = str(data.root.resolve() / FOLDER)
    config = configs.replaced(
      config,
      **{
        'corpus.kind': 'orqa_blocks',
        'corpus.path': path,
        # Each record is one block, so that its number is that of its vector.
        'blocks.whole_documents': True,
        'blocks.drop_titles': (),
        'tokens.documents_per_shard': _PER_SHARD,
      },
    )
    realm_prepare.tokenize(config, data)
    realm_prepare.cut_blocks(config, data)
    store = data.blocks
    prints['blocks'] = store.fingerprint
    if read.vectors is not None:
      _check_sizes(read.vectors, read.vectors_name, store.num_blocks, width)
  return config, prints, store


def build_index(
  vectors: np.ndarray,
  name: str,
  blocks: blocks_lib.BlockStore,
  params: Any,
  *,
  step: int,
  root: pathlib.Path,
  config: config_lib.Config,
) -> str:
  """Publish vectors as the index version of some parameters.

  Args:
    vectors: [num_blocks, d], memory-mapped; row i belongs to block i.

  Returns:
    The version's name.
  """
  embedder = index_builder.snapshot(params)
  if not embedder:
    raise ValueError(
      f'{name}: vectors of blocks, but parameters {sorted(params)}; expected an '
      'embedder, for the questions.'
    )
  # A killed conversion may have left a version of other vectors.
  shutil.rmtree(root, ignore_errors=True)
  folder = index_versions.VersionFolder(root)
  version_name = index_versions.version_name(step, embedder, blocks)

  def read(ids, update):
    if update:
      update(0, len(ids))
    rows = np.asarray(vectors[ids[0] : ids[-1] + 1], np.float32)
    if not np.isfinite(rows).all():
      raise ValueError(f'{name}: a vector that is not finite.')
    return rows

  with progress.bar('index', 'blocks') as update:
    # The size of the vocabulary is that of the parameters.
    model = model_configs.realm_config(config, 1)
    settings = index_builder.vector_settings(model)
    arguments = step, embedder, blocks, read, config.index
    folder.build(*arguments, settings=settings, progress=update)
  return version_name
