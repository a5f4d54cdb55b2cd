# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Re-ranking by a trained cross-encoder (Nogueira and Cho 2019)."""

from collections.abc import Sequence
import dataclasses
import functools
import os
from typing import Any

import jax
import ml_collections
import numpy as np

from retrieval import settings, tokenization
from retrieval.nn import (
  batch_encoder,
  bert,
  cross_encoder,
  trained_encoders,
)
from retrieval.store import store

TASK = 'cross_encoder'  # config.task of the run that trained the model


def bert_config(config: ml_collections.ConfigDict) -> bert.BertConfig:
  """Return the BERT of a run's config.

  Raises:
    ValueError: naming the field that does not fit.
  """
  fields = {**config.model, 'pooler': False}
  return settings.build(bert.BertConfig, fields, 'config.model')


def pair_layout(
  config: ml_collections.ConfigDict,
) -> cross_encoder.PairLayout:
  """Return the lengths of a run's pairs; ValueError as `bert_config`."""
  layout = settings.build(
    cross_encoder.PairLayout, config.layout.to_dict(), 'config.layout'
  )
  if layout.row_length > config.model.max_length:
    raise ValueError(
      f'config.layout.row_length={layout.row_length}: expected at most '
      f'config.model.max_length={config.model.max_length}.'
    )
  return layout


def _encode(model, sep_id, params, ids, lengths):
  mask, types = cross_encoder.segments(ids, lengths, sep_id)
  return model.apply({'params': params}, ids, mask, types)[:, None]


class CrossReranker:
  """A cross-encoder on all local devices; see `rerank.TextScorer`."""

  def __init__(
    self,
    config: bert.BertConfig,
    params: Any,
    tokenizer: tokenization.WordPieceTokenizer,
    layout: cross_encoder.PairLayout,
    *,
    devices: Sequence[jax.Device] | None = None,
  ):
    """Place the parameters on the devices; compile at the first pairs.

    Args:
      params: of `cross_encoder.CrossEncoder`.
      devices: devices that score; None is all local devices.
    """
    self._tokenizer, self._layout = tokenizer, layout
    sizes = {k: str(v) for k, v in dataclasses.asdict(config).items()}
    self.fingerprint = store.fingerprint(
      [
        sizes,
        dataclasses.asdict(layout),
        tokenizer.fingerprint,
        trained_encoders.hash_params(params),
      ]
    )
    model = cross_encoder.CrossEncoder(config)
    self._encoder = batch_encoder.BatchEncoder(
      functools.partial(_encode, model, tokenizer.sep_id),
      params,
      dimension=1,
      max_length=layout.row_length,
      devices=devices,
    )

  def score(
    self, queries: Sequence[str], passages: Sequence[Sequence[str]]
  ) -> list[np.ndarray]:
    """See `rerank.TextScorer`."""
    rows = cross_encoder.pair_rows(
      self._tokenizer, self._layout, queries, passages
    )
    scores = self._encoder(rows, len(rows))[:, 0]
    ends = np.cumsum([len(found) for found in passages])
    return np.split(scores, ends)[:-1]


def load(path: str | os.PathLike, step: str = '') -> CrossReranker:
  """Load a run of experiments.train.

  Raises:
    FileNotFoundError: if there is no checkpoint.
    ValueError: if the checkpoint is damaged, or of another tokenizer.
  """
  params, config, tokenizer = trained_encoders.load(path, TASK, step)
  return CrossReranker(
    bert_config(config), params, tokenizer, pair_layout(config)
  )
