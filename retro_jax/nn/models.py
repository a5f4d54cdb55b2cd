# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Choose the model of a config: the paper's RETRO or a variant."""

from retro_jax.nn import joint, ngram_memory, retro, retro_step
from retro_jax.nn.config import RetroConfig


def of(config: RetroConfig) -> retro.Retro:
  """Return the model, or the baseline without `cca_layers`.

  Raises:
    ValueError: for a RETRO with n-grams.
  """
  if config.ngrams.layers and config.cca_layers:
    raise ValueError(
      f'model.ngrams.layers={config.ngrams.layers}: expected a baseline '
      f'(retrieval=False), not cca_layers={config.cca_layers}.'
    )
  if config.ngrams.layers:
    return ngram_memory.NgramRetro(config)
  return (joint.JointRetro if config.joint else retro.Retro)(config)


def step_of(model: retro.Retro) -> retro.Retro:
  """Return the model of one token at a time with the parameters of `model`."""
  c, kind = model.config, retro_step.RetroStep
  if c.joint:
    kind = joint.JointStep
  if c.ngrams.layers:
    kind = ngram_memory.NgramStep
  return kind(c)
