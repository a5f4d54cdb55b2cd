# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A trained RETRO or baseline as a library offers it: sample, score, neighbors."""

from collections.abc import Sequence
import os
from typing import Any

import numpy as np

from retro_jax.decoding import growing_text
from retro_jax.trained import inspection, loading, passage as passages, sampling
from retro_jax.views import (
  page as page_lib,
  prompts as prompts_lib,
  samples as views,
)


class Scores(views.Listing):
  """Scored texts: each item has `on` and `off`, nats of each token."""

  @property
  def bits_per_byte(self) -> float:
    """Bits per byte of all texts, with retrieval if the model retrieves."""
    return self._mean('on')

  @property
  def bits_per_byte_off(self) -> float:
    """Bits per byte of all texts without neighbors."""
    return self._mean('off')

  def _mean(self, name: str) -> float:
    nats = sum(sum(getattr(page, name)) for page in self)
    return nats / np.log(2) / max(sum(page.num_bytes for page in self), 1)


class LanguageModel:
  """A trained RETRO, or its baseline, with its tokenizer and datastore.

  Attributes:
    trained: config, data folder, flax module and parameters.
  """

  def __init__(self, trained: loading.TrainedRetro):
    """Wrap a loaded checkpoint; `load` does both."""
    self.trained = trained

  def __repr__(self) -> str:
    """Kind, step, sizes and data folder."""
    c = self.trained.model.config
    kind = 'RETRO' if c.cca_layers else 'baseline'
    return (
      f'<{kind} of step {self.trained.step}: {c.num_layers} layers of width '
      f'{c.d_model}, data {self.trained.data.root}>'
    )

  def sample(
    self,
    prompts: str | Sequence[str | prompts_lib.TextPrompt],
    *,
    neighbors: Sequence[Any] | None = None,
    num_samples: int = 1,
    seed: int = 0,
    **settings: Any,
  ) -> views.Listing:
    """Continue prompts, and retrieve whenever a chunk is complete.

    Args:
      prompts: one text or several; '' begins a document.
      neighbors: texts that replace retrieval: a list read by every chunk, or a
        list of lists, one for each chunk. An empty list turns retrieval off.
      **settings: max_new_tokens, temperature, top_p, top_k, num_neighbors,
        stop_strings and other fields of SamplingConfig, and the arguments of
        `sampling.sample`; the model's config holds the defaults.

    Returns:
      A list of TextSample, those of the first prompt first.

    Raises:
      ValueError: for settings out of range, or neighbors for a baseline.
    """
    return sampling.sample(
      self.trained,
      prompts_lib.as_prompts(prompts, neighbors),
      num_samples=num_samples,
      seed=seed,
      **settings,
    )

  def score(
    self,
    texts: str | Sequence[str],
    *,
    num_neighbors: int | None = None,
    explain: bool = False,
  ) -> Scores:
    """Measure the loss of texts with and without neighbors.

    Args:
      texts: one text or several, each a document of its own.
      num_neighbors: neighbors of each chunk; default the config's. They are
        retrieved now.
      explain: whether to measure the attention and worth of every neighbor.

    Returns:
      A list of pages, one for each text, with the bits per byte of all.

    Raises:
      ValueError: for an empty text, or `explain` of a baseline.
    """
    texts = [texts] if isinstance(texts, str) else texts
    k = self._num_neighbors(num_neighbors)
    return Scores(
      inspection.inspect(
        self.trained, passages.of_text(self.trained, text, k), explain=explain
      )
      for text in texts
    )

  def neighbors(
    self, text: str, num_neighbors: int | None = None
  ) -> views.Listing:
    """Retrieve the neighbors of each chunk of a text.

    Args:
      num_neighbors: neighbors of each chunk; default the config's.

    Returns:
      A list of TextChunk: each chunk's text, and its neighbors' texts, titles,
      ids and scores, best first. A baseline's chunks have none.

    Raises:
      ValueError: for an empty text, or fewer neighbors than one.
    """
    k = self._num_neighbors(num_neighbors)
    found = passages.of_text(self.trained, text, k)
    tokenizer = self.trained.data.tokenizer
    pieces = ['', *growing_text.pieces(tokenizer.decode, found.tokens[1:])]
    m = self.trained.model.config.chunk_length
    return views.Listing(
      views.chunk_text(
        ''.join(pieces[u * m : (u + 1) * m]), '', chunk, tokenizer
      )
      for u, chunk in enumerate(found.found)
    )

  def inspect(
    self,
    document: str = '',
    split: str = 'valid',
    *,
    num_neighbors: int | None = None,
    explain: bool = True,
  ) -> page_lib.Page:
    """Score a document of the data folder with its stored neighbors.

    Args:
      document: title or id; '' for the first document of two chunks.
      split: 'train', 'valid', 'test' or the name of an evaluation set.
      num_neighbors: neighbors of each chunk; default the config's.
      explain: whether to measure the attention and worth of every neighbor.

    Returns:
      The page, which shows itself in a notebook.

    Raises:
      ValueError: for an unknown document or split, or a baseline.
    """
    first = passages.find(self.trained, document, split)
    k = self._num_neighbors(num_neighbors)
    passage = passages.of_store(self.trained, first, split, k)
    return inspection.inspect(self.trained, passage, explain=explain)

  def _num_neighbors(self, k: int | None) -> int:
    return self.trained.config.num_neighbors if k is None else k


def load(
  workdir: str | os.PathLike,
  data_dir: str = '',
  *,
  source: str = '',
  reranker: str = '',
  step: int | str = '',
) -> LanguageModel:
  """Load a checkpoint of a training run.

  Args:
    data_dir: folder of the data; default the one that the run was trained with.
    source: source of the neighbors, of `sources.NAMES`; '' is that of training.
    reranker: folder of the re-ranker of the source; see `loading.load`.
    step: a number, 'best' (by config.best_metric), or '' for the newest.

  Returns:
    The model, on this process's first device.

  Raises:
    FileNotFoundError: when there is no checkpoint or no data.
    ValueError: when the checkpoint is damaged, or the data are of another
      tokenizer than the model.
  """
  return LanguageModel(
    loading.load(workdir, data_dir, source=source, reranker=reranker, step=step)
  )
