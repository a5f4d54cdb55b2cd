# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""AdamW and BERT's Adam, learning rate schedules, gradient accumulation.

RETRO (Borgeaud et al. 2022, appendix C): AdamW, linear warm-up from 1e-7 to the
maximum, then a cosine down to a tenth of it at the last step. ICT, REALM and
ORQA: the optimizer of BERT's release (Devlin et al. 2018), Adam without bias
correction under a linear decay to 0.
"""

from collections.abc import Callable, Mapping
import dataclasses
import re
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from retrieval import settings
from retrieval.nn import means

TENTH = -1  # as `warmup_steps`: a tenth of the run
_B1 = 0.9  # decay of the first moment
_CLIP_NORM = 1.0  # global norm of gradients


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
  """An optimizer and its schedule; the defaults are AdamW under a cosine.

  BERT's: name 'bert_adam', schedule 'linear', warmup_steps -1, weight_decay 0.01,
  b2 0.999, eps 1e-6. Gradients are clipped to a global norm of 1.
  """

  name: Literal['adamw', 'bert_adam'] = 'adamw'  # bert_adam: no bias correction
  # linear: BERT's, down to 0 at the end of the run; all parameters but norms and
  # biases decay then, under a cosine the matrices
  schedule: Literal['cosine', 'linear'] = 'cosine'
  # Maximum of the cosine, at the end of the warm-up; the linear decay starts from
  # it at step 0, warm-up or not.
  learning_rate: settings.Positive = 2e-4
  # of linear growth; -1: a tenth of the run
  warmup_steps: Annotated[int, settings.Range(TENTH, 2**53)] = 750
  # start of the warm-up; linear: 0
  initial_learning_rate: settings.NotNegative = 1e-7
  # of the maximum, at the last step; linear: 0
  final_fraction: settings.Share = 0.1
  # decoupled, multiplied by the learning rate
  weight_decay: settings.NotNegative = 0.1
  b2: settings.Rate = 0.95  # decay of the second moment
  eps: settings.Positive = 1e-8  # added to the root of the second moment
  # Part of the model (a name at the top of the parameters) -> factor on its
  # learning rate, 1 by default. Factor 0 freezes the part: it has no gradients and
  # no moments. It may stand for a path, such as encoder/bert/embeddings, too.
  part_scales: Mapping[str, settings.NotNegative] = dataclasses.field(
    default_factory=dict
  )
  accumulate_steps: settings.Size = 1  # microbatches into which a batch is cut

  __post_init__ = settings.check


def warmup_steps(config: OptimizerConfig, num_steps: int) -> int:
  """Return the steps of warm-up; ValueError if there are too many for the run.

  -1 is the rule of REALM and ORQA: a tenth of the run, at least 100 and at most
  10,000 steps; here at most half of the run, so that a short run outlives it.
  """
  if config.warmup_steps == TENTH:
    return min(10_000, max(100, num_steps // 10), num_steps // 2)
  if config.warmup_steps >= num_steps:
    raise ValueError(
      f'optimizer.warmup_steps={config.warmup_steps} must be less than '
      f'num_steps={num_steps}.'
    )
  return config.warmup_steps


def learning_rate_schedule(
  config: OptimizerConfig, num_steps: int
) -> optax.Schedule:
  """Return the function step (from 0) -> learning rate."""
  warmup = warmup_steps(config, num_steps)
  if config.schedule == 'cosine':
    return optax.schedules.warmup_cosine_decay_schedule(
      init_value=config.initial_learning_rate,
      peak_value=config.learning_rate,
      warmup_steps=warmup,
      decay_steps=num_steps,
      end_value=config.final_fraction * config.learning_rate,
    )

  def linear(step):
    """BERT's schedule: warm-up and decay both start at step 0, do not meet."""
    grow = step / max(warmup, 1)
    decay = jnp.maximum(num_steps - step, 0) / num_steps
    return config.learning_rate * jnp.where(step < warmup, grow, decay)

  return linear


def decay_mask(params: Any) -> Any:
  """Mark the parameters that decay: matrices, not norms or biases."""

  def decays(path, x):
    name = jax.tree_util.keystr(path, simple=True, separator='/')
    # Those under layers_... have a leading axis of layers.
    return x.ndim >= (3 if name.startswith('layers_') else 2)

  return jax.tree_util.tree_map_with_path(decays, params)


def bert_decay_mask(params: Any) -> Any:
  """Mark all parameters but biases and norms, by their names.

  BERT's release searches for LayerNorm|layer_norm|bias. Embeddings decay.
  """

  def decays(path, unused_leaf):
    # Keys of other kinds are inside a parameter's box.
    names = (k.key for k in path if isinstance(k, jax.tree_util.DictKey))
    return not re.search('norm|bias$', '/'.join(names), re.IGNORECASE)

  return jax.tree_util.tree_map_with_path(decays, params)


def scale_by_uncorrected_adam(
  b1: float, b2: float, eps: float
) -> optax.GradientTransformation:
  """Make Adam's direction mu / (sqrt(nu) + eps) without bias correction.

  optax cannot switch the correction off. With b1 0.9 and b2 0.999 the first
  update is 0.1 / sqrt(0.001), about 3.2 times the corrected one.
  """

  def init(params):
    return UncorrectedAdamState(
      optax.tree.zeros_like(params), optax.tree.zeros_like(params)
    )

  def update(grads, state, params=None):
    del params
    mu = optax.tree.update_moment(grads, state.mu, b1, 1)
    nu = optax.tree.update_moment_per_elem_norm(grads, state.nu, b2, 2)
    updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu, nu)
    return updates, UncorrectedAdamState(mu, nu)

  return optax.GradientTransformation(init, update)


class UncorrectedAdamState(NamedTuple):
  """Running moments of the gradients, each like the parameters."""

  mu: Any
  nu: Any


def make_optimizer(
  config: OptimizerConfig, num_steps: int
) -> optax.GradientTransformation:
  """Clip all gradients of the trained parts together, then apply Adam."""
  adams = {'adamw': optax.scale_by_adam, 'bert_adam': scale_by_uncorrected_adam}
  masks = {'cosine': decay_mask, 'linear': bert_decay_mask}
  adam = optax.chain(
    adams[config.name](_B1, config.b2, config.eps),
    optax.add_decayed_weights(config.weight_decay, masks[config.schedule]),
    optax.scale_by_learning_rate(learning_rate_schedule(config, num_steps)),
  )
  steps = [optax.clip_by_global_norm(_CLIP_NORM), adam]
  scales = {name: x for name, x in config.part_scales.items() if x}

  def scale_parts(updates, unused_params):
    scaled = {x: optax.tree.scale(scales[x], updates[x]) for x in scales}
    return {**updates, **scaled}

  if scales:
    steps.append(optax.stateless(scale_parts))
  return optax.chain(*steps)


def value_and_grad(
  loss: Callable, params: Any, batch: Any, key: jax.Array, num_parts: int = 1
) -> tuple[dict[str, jax.Array], Any]:
  """Return metrics, 'loss' among them, and gradients of a batch.

  They are those of the whole batch however it is cut into microbatches, but for
  dropout: each term of the loss is divided by its count in the whole batch. The
  counts are taken beforehand; the compiler leaves out all else of that pass.

  Args:
    loss: (params, batch, key) -> (`means.Mean`, metrics, each a `means.Mean`).
    batch, key, num_parts: as of `add_parts`.
  """
  counts = None
  if num_parts > 1:
    counts = add_parts(
      lambda *part: loss(params, *part)[0].counts, batch, key, num_parts
    )

  def divided(params, batch, key):
    value, metrics = loss(params, batch, key)
    results = {'loss': value, **metrics}
    return value.replace(counts=counts or value.counts).value, results

  def part(batch, key):
    grads, results = jax.grad(divided, has_aux=True)(params, batch, key)
    return results, grads

  metrics, grads = add_parts(part, batch, key, num_parts)
  return means.values(metrics), grads


def add_parts(
  part: Callable, batch: Any, key: jax.Array, num_parts: int = 1
) -> Any:
  """Apply `part` to `num_parts` microbatches in turn, and add the results.

  Every microbatch takes rows from each device's share of the batch, so no data
  move between devices.

  Args:
    part: (batch, key) -> tree of sums over its batch.
    batch: tree of arrays [batch, ...].
    key: randomness; each microbatch folds in its number.
    num_parts: microbatches; must divide the batch.
  """
  if num_parts == 1:
    return part(batch, key)

  def body(total, inputs):
    index, batch = inputs
    new = part(batch, jax.random.fold_in(key, index))
    return jax.tree.map(jnp.add, total, new), None

  parts = jax.tree.map(
    lambda x: x.reshape(-1, num_parts, *x.shape[1:]).swapaxes(0, 1), batch
  )
  shapes = jax.eval_shape(part, jax.tree.map(lambda x: x[0], parts), key)
  zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
  return jax.lax.scan(body, zeros, (jnp.arange(num_parts), parts))[0]
