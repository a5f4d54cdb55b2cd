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

from retro_jax.nn.config import PublicDecoder, RetroConfig

# Fields that the weights of a decoder were trained with.
DECODER_FIELDS = (
  'vocab_size',
  'd_model',
  'd_ff',
  'num_heads',
  'head_dim',
  'num_layers',
  'tie_readout',
  'activation',
  'norm_epsilon',
  'final_norm',
  'position_biases',
  'projection_biases',
  'ff_biases',
  'scale_logits',
  'max_distance',
  'position_base',
  'decoder',
)


def is_added(name: str) -> bool:
  """Whether a top-level part of RETRO's parameters is added to its decoder.

  The encoder's own embeddings are added; a shared table belongs to the decoder.
  """
  added = 'encoder', 'encoder_embedding', 'copy_gate'
  return name in added or name.endswith('_cca')


def check_fits(config: RetroConfig, baseline: Mapping[str, Any]) -> None:
  """Compare a trained decoder with that of a RETRO.

  Args:
    baseline: fields of the RetroConfig that the decoder was trained with; a
      missing field has RetroConfig's default.

  Raises:
    ValueError: naming a field that differs, with both values.
  """
  defaults = {f.name: f.default for f in dataclasses.fields(RetroConfig)}
  names = [name for name in DECODER_FIELDS if name != 'decoder']
  pairs = [
    (name, baseline.get(name, defaults[name]), getattr(config, name))
    for name in names
  ]
  trained = dataclasses.asdict(PublicDecoder(**baseline.get('decoder', {})))
  wanted = dataclasses.asdict(config.decoder)
  pairs += [(name, trained[name], wanted[name]) for name in wanted]
  for name, trained, wanted in pairs:
    if trained != wanted:
      raise ValueError(
        f'its decoder was trained with {name}={trained!r}, but this RETRO has '
        f'{name}={wanted!r}'
      )
