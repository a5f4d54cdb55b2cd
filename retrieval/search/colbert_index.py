# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The index of a trained ColBERT, as the section config.colbert_index describes it."""

import dataclasses
import os
import pathlib

from absl import logging
import ml_collections

from retrieval import settings
from retrieval.nn import colbert_encoder
from retrieval.search import (
  late_interaction,
  sparse_index,
  token_store,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section(token_store.IndexConfig):
  """Model, index and search of retriever or source 'colbert'."""

  # run of experiments.open_qa.train with task colbert; '': the one that made the
  # index, which must be there
  model: str = ''
  search: late_interaction.SearchConfig = late_interaction.SearchConfig()

  @property
  def made(self) -> token_store.IndexConfig:
    """The settings that decide the index of a model."""
    return token_store.config_of(dataclasses.asdict(self))


def section_of(config: ml_collections.ConfigDict) -> Section:
  """Return config.colbert_index; the defaults in checkpoints without one.

  Raises:
    ValueError: for a value that does not fit.
  """
  given = config.get('colbert_index', ml_collections.ConfigDict()).to_dict()
  return settings.build(Section, given, 'config.colbert_index')


def named(section: Section, path: str | os.PathLike) -> Section:
  """Return the section with a model: by default the one that made the index."""
  if section.model or not (pathlib.Path(path) / 'tokens').is_dir():
    return section
  found, _ = token_store.open_store(path)
  return dataclasses.replace(section, model=found.meta.get('model', ''))


def load_encoder(section: Section) -> token_store.Encoder:
  """Load the model of a section.

  Raises:
    FileNotFoundError: if it is missing.
    ValueError: if the section names none, or one of another kind.
  """
  if not section.model:
    raise ValueError(
      "config.colbert_index.model='': late interaction needs the folder of a run "
      'of experiments.open_qa.train with configs/colbert_small.py.'
    )
  try:
    return colbert_encoder.load(section.model)
  except FileNotFoundError as error:
    raise FileNotFoundError(
      f'config.colbert_index.model={section.model!r}: {error}'
    ) from None


def build(
  path: str | os.PathLike,
  section: Section,
  encoder: token_store.Encoder,
  texts: sparse_index.Texts,
  *,
  known: token_store.Known | None = None,
  **how,
) -> late_interaction.LateInteraction:
  """Write the index of texts, or what a killed build has left to write, and open it.

  Args:
    encoder: model of the section.
    known: see `token_store.build`.
    how: executor and progress of `shards.build_store`.

  Raises:
    ValueError: for no text, and where `path` holds another index.
  """
  token_store.build(
    path,
    encoder,
    texts,
    section.made,
    known=known,
    meta={'model': os.path.abspath(section.model)},
    **how,
  )
  index = late_interaction.LateInteraction(path, encoder, section.search)
  stored, plain = index.sizes()
  logging.info(
    '%s: %d texts in %.1f MB; the vectors of their tokens in float32 take %.1f MB.',
    path,
    index.num_blocks,
    stored / 1e6,
    plain / 1e6,
  )
  return index


def load(
  path: str | os.PathLike, section: Section
) -> late_interaction.LateInteraction:
  """Open an index that `build` wrote.

  Raises:
    FileNotFoundError: if the index or its model is missing.
    ValueError: if one of them is damaged, or the index is of another model.
  """
  token_store.open_store(path)  # the index is missed before its model
  section = named(section, path)
  try:
    encoder = load_encoder(section)
  except FileNotFoundError as error:
    raise FileNotFoundError(
      f'{error} Expected the ColBERT that made {path}.'
    ) from None
  return late_interaction.LateInteraction(path, encoder, section.search)
