# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The index of a trained ColBERT over a data folder's blocks."""

from collections.abc import Callable
import dataclasses

from absl import logging
import ml_collections

from realm_jax.data import folder as data_folder
from retrieval import settings
from retrieval.nn import colbert, colbert_encoder
from retrieval.store import store
from retrieval.text_search import (
  late_interaction,
  token_store,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColbertSection(token_store.IndexConfig):
  """Retriever 'colbert': its model, index and search."""

  model: str = ''  # run of experiments.open_qa.train with task colbert
  search: late_interaction.SearchConfig = late_interaction.SearchConfig()


def model_of(config: ml_collections.ConfigDict) -> str:
  """Return config.colbert_index.model; '' in checkpoints without this section."""
  return config.get('colbert_index', ml_collections.ConfigDict()).get(
    'model', ''
  )


def open_index(
  config: ml_collections.ConfigDict,
  data: data_folder.DataFolder,
  progress: Callable[[int, int], None] | None = None,
) -> late_interaction.LateInteraction:
  """Open the index of config.colbert_index, built once a folder, model and setting.

  Args:
    progress: called with (blocks done, blocks in all) while it is built.

  Raises:
    FileNotFoundError: if the model is missing.
    ValueError: if config.colbert_index names no model, or a value does not fit.
  """
  given = config.get('colbert_index', ml_collections.ConfigDict()).to_dict()
  section = settings.build(ColbertSection, given, 'config.colbert_index')
  if not section.model:
    raise ValueError(
      "config.colbert_index.model='': retriever 'colbert' needs the folder of a run "
      'of experiments.open_qa.train with configs/colbert_small.py.'
    )
  encoder, blocks = colbert_encoder.load(section.model), data.blocks
  names = [x.name for x in dataclasses.fields(token_store.IndexConfig)]
  made = {name: getattr(section, name) for name in names}
  key = store.fingerprint([encoder.fingerprint, blocks.fingerprint, made])
  path = data.root / f'colbert-{key[:12]}'

  def texts(low, limit):
    ids = range(low, limit)
    pairs = zip(blocks.titles(ids), blocks.texts(ids), strict=True)
    return [colbert.titled(*pair) for pair in pairs]

  token_store.build(
    path,
    encoder,
    texts,
    blocks.num_blocks,
    blocks.fingerprint,
    token_store.IndexConfig(**made),
    progress,
  )
  index = late_interaction.LateInteraction(path, encoder, section.search)
  stored, plain = index.sizes()
  logging.info(
    '%s: %d blocks in %.1f MB; their vectors in float32 take %.1f MB.',
    path,
    index.num_blocks,
    stored / 1e6,
    plain / 1e6,
  )
  return index
