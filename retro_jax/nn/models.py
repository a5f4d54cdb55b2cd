# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The model of a config: the paper's, or the one whose self-attention reads."""

from retro_jax.nn import joint, retro, retro_step
from retro_jax.nn.config import RetroConfig


def of(config: RetroConfig) -> retro.Retro:
  """Return the model, or the baseline without `cca_layers`."""
  return (joint.JointRetro if config.joint else retro.Retro)(config)


def step_of(model: retro.Retro) -> retro.Retro:
  """Return the model of one token at a time with the parameters of `model`."""
  kind = joint.JointStep if model.config.joint else retro_step.RetroStep
  return kind(model.config)
