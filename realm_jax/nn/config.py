# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sizes and choices of a REALM (Guu et al. 2020, section 3)."""

import dataclasses
from typing import Literal

from retrieval import settings
from retrieval.nn import bert

Pooling = Literal['pooler', 'cls', 'mean']


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorConfig:
  """A text's vector and its scores; "released" are checkpoints and code."""

  # One embedder for queries and blocks, as released; two in the paper, where
  # only W differs by name (W_input, W_doc).
  share_embedders: bool = True
  # 'pooler': BERT's tanh layer over [CLS], as released; 'cls': [CLS] itself, as
  # in the paper; 'mean': over tokens, for starts from Sentence-BERT.
  pooling: Pooling = 'pooler'
  # d of W, released; 0: no projection
  projection_size: Literal[0] | bert.Width = 128
  projection_init: Literal['normal', 'identity'] = 'normal'
  # Added to the variance: 1e-12 in released checkpoints and the port, 1e-3 in
  # the published code of ICT.
  projection_norm_eps: bert.Epsilon = 1e-12
  # Initial gamma; its square sets the size of initial scores. 1 as released.
  projection_norm_scale: settings.Positive = 1.0
  # Dropout of the vector while training: 0.1 in the published code, 0 in the
  # port.
  projection_dropout_rate: settings.Rate = 0.1

  __post_init__ = settings.check


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealmConfig(VectorConfig):
  """Two BERTs and a text's vector."""

  # Reads queries and blocks; all three BERTs are BERT base in the paper. The
  # released ones have activation 'gelu_tanh'. Both fields' `pooler` is ignored:
  # `embedder_bert` and `encoder_bert` have the poolers that `pooling` needs.
  embedder: bert.BertConfig
  encoder: bert.BertConfig  # reads query and block at once, predicts tokens
  # a LayerNorm follows W, as released; none in paper
  projection_norm: bool = True

  def __post_init__(self):
    settings.check(self)
    if self.embedder.vocab_size != self.encoder.vocab_size:
      raise ValueError(
        'Embedder and encoder read the same tokens, but their vocab_size is '
        f'{self.embedder.vocab_size} and {self.encoder.vocab_size}.'
      )
    if self.projection_init == 'identity' and (
      self.projection_size != self.embedder.d_model
    ):
      raise ValueError(
        "projection_init 'identity' needs projection_size == embedder.d_model; "
        f'got {self.projection_size} and {self.embedder.d_model}.'
      )

  @property
  def embedder_bert(self) -> bert.BertConfig:
    """The embedders' BERT, with a pooler where `pooling` needs one."""
    pooler = self.pooling == 'pooler'
    return dataclasses.replace(self.embedder, pooler=pooler)

  @property
  def encoder_bert(self) -> bert.BertConfig:
    """The encoder's BERT, without a pooler."""
    return dataclasses.replace(self.encoder, pooler=False)

  @property
  def vector_size(self) -> int:
    """Width of the vectors of queries and blocks."""
    return self.projection_size or self.embedder.d_model
