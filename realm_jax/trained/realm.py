# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A trained REALM with its data: retrieves, predicts, explains."""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import os

import numpy as np

from realm_jax.trained import (
  embedders,
  explain as explain_lib,
  index_builder,
  model_configs,
)
from retrieval import arguments, settings
from retrieval.index import index_versions


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TrainedRealm(model_configs.TrainedModel):
  """A trained REALM with its data."""

  def open_index(
    self,
    folder: str | os.PathLike = '',
    progress: Callable[[int, int], None] | None = None,
  ) -> embedders.BlockIndex:
    """Open the index of these parameters in a folder ('': `index_folder`).

    A missing index is built; progress(blocks done, blocks in all).
    """
    versions = index_versions.VersionFolder(folder or self.index_folder)
    builder = index_builder.Builder(
      config=self.config, data=self.data, folder=versions
    )
    params = index_builder.snapshot(self.params)
    name = builder.build(self.step, params, progress)
    version = versions.open(name, self.data.blocks)
    return embedders.BlockIndex(version, self.model.config)

  @functools.cached_property
  def index(self) -> embedders.BlockIndex:
    """The index in `index_folder`, opened once."""
    return self.open_index()

  def retrieve(self, texts: str | Sequence[str], k: int = 5) -> np.ndarray:
    """Return [len(texts), k] ids of blocks, best first; -1 for none.

    Raises:
      ValueError: for anything else than texts, or k < 1.
    """
    texts = arguments.texts(texts, 'texts')
    settings.check_value('k', k, settings.Size)
    return self.index.retrieve_texts(texts, k, self.data.tokenizer, self.layout)

  def explain(
    self, cloze: str, answer: str = '', *, top: int = 5
  ) -> explain_lib.Explained:
    """Predict masked words and measure the effect of each document.

    Args:
      cloze: text with at least one [MASK].
      answer: words whose probability is explained; '' is the prediction.
      top: number of words to name for each mask.

    Raises:
      ValueError: for a text that does not fit, or a model without an encoder.
    """
    return explain_lib.explain(self, cloze, answer, top=top)
