# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETROfit: retrieval for a decoder that was trained without (section 4.2).

Borgeaud et al. 2022, section 4.2 and appendix B.2: every weight of the decoder is
frozen; the neighbors' encoder and the chunked cross-attentions are new, and they
alone are trained. So RETRO[OFF] stays the decoder that it was, bit for bit.
"""

import dataclasses

from retro_jax.nn.config import RetroConfig

# Fields that the weights of a decoder were trained with, beside `decoder`.
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
  'projection_biases',
  'ff_biases',
  'scale_logits',
  'position_base',
)


def is_added(name: str) -> bool:
  """Whether a top-level part of RETRO's parameters is added to its decoder.

  The encoder's own embeddings are added; a shared table belongs to the decoder.
  """
  added = 'encoder', 'encoder_embedding', 'copy_gate'
  return name in added or name.endswith('_cca')


def check_fits(config: RetroConfig, baseline: RetroConfig) -> None:
  """Raise ValueError for a field in which a trained decoder and a RETRO's differ."""
  of_decoder = [f.name for f in dataclasses.fields(config.decoder)]
  for names, trained, wanted in (
    (DECODER_FIELDS, baseline, config),
    (of_decoder, baseline.decoder, config.decoder),
  ):
    for name in names:
      old, new = getattr(trained, name), getattr(wanted, name)
      if old != new:
        raise ValueError(
          f'its decoder was trained with {name}={old!r}, but this RETRO has '
          f'{name}={new!r}'
        )
