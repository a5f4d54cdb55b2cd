# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Encoders that differ from BERT in their positions: RoBERTa and MPNet.

RoBERTa (Liu et al. 2019; XLM-RoBERTa and CamemBERT are of its form) numbers the
tokens from the id of its padding + 1. MPNet (Song et al. 2020) does so, too, has no
segments, and adds a learned bias for the distance of two tokens to the logits of
every layer.
"""

import dataclasses
import math

from flax import linen as nn
from jaxtyping import Array, Float, Int
import numpy as np

from retrieval import settings
from retrieval.nn import bert, modern_bert, partitioning

ROBERTA = ('roberta', 'xlm-roberta', 'camembert')
MPNET = 'mpnet'
BUCKETS, _FARTHEST = 32, 128  # MPNet's code has no other numbers


@dataclasses.dataclass(frozen=True)
class FamilyConfig(bert.BertConfig):
  """Sizes as of `bert.BertConfig`; `max_length` counts positions of tokens."""

  model_type: str = ROBERTA[0]
  # rows of a checkpoint's position table before that of the first token
  first_position: settings.SizeOrZero = 2


class Mpnet(bert.Bert):
  """`bert.Bert` with a bias by distance; its token types are one row of zeros."""

  def setup(self):
    """Create BERT's layers, and the biases of each bucket of distances."""
    super().setup()
    normal = nn.initializers.normal(self.config.initializer_range)
    self.relative_bias = nn.Embed(
      BUCKETS,
      self.config.num_heads,
      embedding_init=partitioning.partitioned(normal, None, None),
    )

  def attention_bias(self, length: int) -> Float[Array, 'h l l']:
    """See `bert.Bert`."""
    return self.relative_bias(buckets(length)).transpose(2, 0, 1)


def is_mpnet(config: bert.BertConfig) -> bool:
  """Whether a config is MPNet's."""
  return getattr(config, 'model_type', 'bert') == MPNET


Encoder = bert.Bert | modern_bert.ModernBert


def module(config: bert.BertConfig) -> Encoder:
  """Return the module of a config, which is called as `bert.Bert` is."""
  if isinstance(config, modern_bert.ModernBertConfig):
    return modern_bert.ModernBert(config)
  return (Mpnet if is_mpnet(config) else bert.Bert)(config)


def buckets(length: int) -> Int[np.ndarray, 'l l']:
  """Return the bucket of the distance from each token to each other one.

  Half of the buckets are for keys on the right. Half of each half are for single
  distances; the others grow by a constant factor up to 128 tokens.
  """
  positions = np.arange(length)
  distance = positions - positions[:, None]
  half = BUCKETS // 2
  exact = half // 2
  far = np.maximum(np.abs(distance), 1).astype(np.float32) / exact
  far = np.log(far) / math.log(_FARTHEST / exact) * (half - exact)
  far = np.minimum(exact + far.astype(int), half - 1)
  near = np.abs(distance)
  return half * (distance > 0) + np.where(near < exact, near, far)
