# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETROfit: retrieval for a decoder that was trained without (section 4.2).

Borgeaud et al. 2022, section 4.2 and appendix B.2: every weight of the decoder is
frozen; the neighbors' encoder and the chunked cross-attentions are new, and they
alone are trained. So RETRO[OFF] stays the decoder that it was, bit for bit.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from retro_jax.nn.config import RetroConfig

# What the weights of a decoder were trained with.
DECODER_FIELDS = (
  'vocab_size',
  'd_model',
  'd_ff',
  'num_heads',
  'head_dim',
  'num_layers',
  'tie_readout',
  'activation',
  'norm',
  'norm_epsilon',
  'final_norm',
  'position_biases',
  'projection_biases',
  'ff_biases',
  'scale_logits',
  'max_distance',
  'position_base',
  'positions',
  'rotary_base',
  'max_positions',
  'num_kv_heads',
  'gated',
)


def is_added(name: str) -> bool:
  """Whether a part at the top of RETRO's parameters is none of its decoder's.

  Embeddings of the encoder's own are: they are trained with it. A shared table is
  the decoder's.
  """
  return name in ('encoder', 'encoder_embedding') or name.endswith('_cca')


def check_fits(config: RetroConfig, baseline: Mapping[str, Any]) -> None:
  """Refuses a decoder that is another than the one of a RETRO.

  Args:
    config: of the RETRO.
    baseline: fields of the RetroConfig that the decoder was trained with; what is
      not there is RetroConfig's default.

  Raises:
    ValueError: naming a field that differs, with both values.
  """
  defaults = {f.name: f.default for f in dataclasses.fields(RetroConfig)}
  for name in DECODER_FIELDS:
    trained, wanted = baseline.get(name, defaults[name]), getattr(config, name)
    if trained != wanted:
      raise ValueError(
        f'its decoder was trained with {name}={trained!r}, but this RETRO has '
        f'{name}={wanted!r}'
      )
