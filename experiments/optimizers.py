# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""AdamW, the learning rate schedule and gradient accumulation.

Borgeaud et al. 2022, appendix C: linear warm-up from 1e-7 to the maximum, then a
cosine down to a tenth of it at the last step.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax

WEIGHT = 'weight'


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
  """AdamW with warm-up and cosine decay.

  Attributes:
    learning_rate: the maximum, reached at the end of the warm-up.
    warmup_steps: steps of linear growth.
    initial_learning_rate: where the warm-up starts.
    final_fraction: learning rate at the last step over the maximum.
    weight_decay: decoupled decay of matrices; norms and biases have none.
    b1: decay of the first moment.
    b2: decay of the second moment.
    eps: added to the root of the second moment.
    clip_norm: global norm to which gradients are clipped; 0 for no clipping.
    accumulate_steps: microbatches into which a batch is cut.
  """

  learning_rate: float = 2e-4
  warmup_steps: int = 750
  initial_learning_rate: float = 1e-7
  final_fraction: float = 0.1
  weight_decay: float = 0.1
  b1: float = 0.9
  b2: float = 0.95
  eps: float = 1e-8
  clip_norm: float = 1.0
  accumulate_steps: int = 1

  def __post_init__(self):
    if self.accumulate_steps < 1:
      raise ValueError(
        f'optimizer.accumulate_steps={self.accumulate_steps}: expected >= 1.'
      )
    if self.warmup_steps < 0 or self.learning_rate <= 0:
      raise ValueError(
        f'optimizer: expected warmup_steps >= 0 and learning_rate > 0, got '
        f'{self.warmup_steps} and {self.learning_rate}.'
      )


def make_config(fields: Any) -> OptimizerConfig:
  """Builds an OptimizerConfig from a config's `optimizer` section.

  Raises:
    ValueError: for a field that does not exist.
  """
  known = {field.name for field in dataclasses.fields(OptimizerConfig)}
  unknown = sorted(set(fields) - known)
  if unknown:
    raise ValueError(
      f'optimizer has no field(s) {unknown}; known: {sorted(known)}.'
    )
  return OptimizerConfig(**dict(fields))


def learning_rate_schedule(
  config: OptimizerConfig, num_steps: int
) -> optax.Schedule:
  """Step (from 0) -> learning rate.

  Raises:
    ValueError: if the warm-up is longer than the run.
  """
  if config.warmup_steps >= num_steps:
    raise ValueError(
      f'optimizer.warmup_steps={config.warmup_steps} must be less than '
      f'num_steps={num_steps}.'
    )
  return optax.schedules.warmup_cosine_decay_schedule(
    init_value=config.initial_learning_rate,
    peak_value=config.learning_rate,
    warmup_steps=config.warmup_steps,
    decay_steps=num_steps,
    end_value=config.final_fraction * config.learning_rate,
  )


def decay_mask(params: Any) -> Any:
  """True for the parameters that decay: matrices, not norms or biases."""
  return jax.tree.map(lambda x: x.ndim >= 2, params)


def make_optimizer(
  config: OptimizerConfig, num_steps: int
) -> optax.GradientTransformation:
  """Clipping, then AdamW under the schedule."""
  clip = (
    optax.clip_by_global_norm(config.clip_norm)
    if config.clip_norm
    else optax.identity()
  )
  return optax.chain(
    clip,
    optax.adamw(
      learning_rate_schedule(config, num_steps),
      b1=config.b1,
      b2=config.b2,
      eps=config.eps,
      weight_decay=config.weight_decay,
      mask=decay_mask,
    ),
  )


def value_and_grad(
  loss: Callable, params: Any, batch: Any, key: jax.Array, num_parts: int = 1
) -> tuple[dict[str, jax.Array], Any]:
  """Loss, metrics and gradients of a batch, taken in `num_parts` microbatches.

  Args:
    loss: (params, batch, key) -> (scalar, metrics).
    params: any tree.
    batch: tree of arrays [batch, ...].
    key: randomness of this step; each microbatch folds in its number.
    num_parts: microbatches; must divide the batch.

  Returns:
    Metrics, 'loss' among them, and the gradients of the mean loss; see
    `weighted_mean`.
  """
  grad_fn = jax.value_and_grad(loss, has_aux=True)

  def part(batch, key):
    (value, metrics), grads = grad_fn(params, batch, key)
    return {'loss': value, **metrics}, grads

  return weighted_mean(part, batch, key, num_parts)


def weighted_mean(
  part: Callable, batch: Any, key: jax.Array, num_parts: int = 1
) -> tuple[dict[str, jax.Array], Any]:
  """Applies `part` to `num_parts` microbatches in turn, and averages.

  Every microbatch takes rows from each device's share of the batch, so nothing
  moves between devices. Means are weighted by the metric 'weight' (1 where there
  is none): the result is the whole batch's, whatever the masks.

  Args:
    part: (batch, key) -> (metrics, tree), both means over its batch.
    batch: tree of arrays [batch, ...].
    key: randomness; each microbatch folds in its number.
    num_parts: microbatches; must divide the batch.

  Returns:
    Metrics ('weight' is summed, all else averaged) and the averaged tree.
  """
  if num_parts == 1:
    return part(batch, key)

  def weighted(batch, key):
    metrics, tree = part(batch, key)
    weight = jnp.asarray(metrics.pop(WEIGHT, 1.0), jnp.float32)
    scaled = jax.tree.map(lambda x: x * weight, (metrics, tree))
    return weight, *scaled

  def body(total, inputs):
    index, batch = inputs
    new = weighted(batch, jax.random.fold_in(key, index))
    return jax.tree.map(jnp.add, total, new), None

  parts = jax.tree.map(
    lambda x: x.reshape(-1, num_parts, *x.shape[1:]).swapaxes(0, 1), batch
  )
  shapes = jax.eval_shape(weighted, jax.tree.map(lambda x: x[0], parts), key)
  zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
  total, _ = jax.lax.scan(body, zeros, (jnp.arange(num_parts), parts))
  weight, metrics, tree = total
  metrics, tree = jax.tree.map(
    lambda x: x / jnp.maximum(weight, 1e-9), (metrics, tree)
  )
  return {**metrics, WEIGHT: weight}, tree
