# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Training whose data lie on the device: many steps are one program.

For machines with an accelerator that are rented by the minute and have none of the
packages of the data pipeline. Batches are drawn and put together on the device.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import functools
import time
from typing import Any

from flax import traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.engine import optimizers

_WARMUP = 0.03  # of a run's seconds: growth of the learning rate


@dataclasses.dataclass(frozen=True)
class Program:
  """A loss with its batches and its optimizer; runs share what is compiled."""

  # (params, batch, key, train) -> (`means.Mean`, metrics)
  loss: Callable
  # (data, key) -> batch; traced. The data have the number of the 'step', too.
  batch: Callable
  optimizer: optimizers.OptimizerConfig
  # (path of a parameter) -> whether it keeps its start
  frozen: Callable[[str], bool] = lambda name: False
  steps: int = 25  # of one call of the program

  @functools.cached_property
  def _direction(self) -> optax.GradientTransformation:
    """The optimizer's updates at a learning rate of 1."""
    flat = dataclasses.replace(
      self.optimizer,
      schedule='cosine',
      learning_rate=1.0,
      warmup_steps=0,
      final_fraction=1.0,
    )
    return optimizers.make_optimizer(flat, 1)

  def _steps(self, fixed, carry, data, keys, rates, numbers):
    def step(carry, given):
      params, state = carry
      key, rate, number = given
      whole = {**data, 'step': number}
      batch = self.batch(whole, jax.random.fold_in(key, 0))

      def loss(params, batch, key):
        whole = traverse_util.unflatten_dict(fixed | params, sep='/')
        return self.loss(whole, batch, key, True)

      found, grads = optimizers.value_and_grad(
        loss, params, batch, jax.random.fold_in(key, 1)
      )
      updates, state = self._direction.update(grads, state, params)
      params = jax.tree.map(lambda x, y: x + rate * y, params, updates)
      return (params, state), found

    carry, found = jax.lax.scan(step, carry, (keys, rates, numbers))
    return carry, jax.tree.map(jnp.mean, found)

  @functools.cached_property
  def _run(self) -> Callable:
    return jax.jit(self._steps, donate_argnums=1)

  @functools.cached_property
  def _runs(self) -> Callable:
    """Several runs side by side."""
    axes = 0, 0, None, 0, None, None
    return jax.jit(jax.vmap(self._steps, axes), donate_argnums=1)

  def split(self, params: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the frozen and the trained parameters by path."""
    flat = traverse_util.flatten_dict(params, sep='/')
    fixed = {k: jnp.asarray(x) for k, x in flat.items() if self.frozen(k)}
    return fixed, {k: jnp.array(x) for k, x in flat.items() if k not in fixed}

  def train(
    self,
    params: Any,
    data: Mapping[str, jax.Array],
    *,
    seed: int | Sequence[int],
    num_steps: int = 0,
    seconds: float = 0.0,
  ) -> Iterator[tuple[int, Any, dict[str, Any]]]:
    """Train for a number of steps or of seconds.

    Several seeds are as many runs side by side: parameters and metrics have a leading
    axis of them.

    The learning rate is the optimizer's schedule over `num_steps`. Over `seconds`,
    which count from the end of the first call, it grows for 3 % of them and falls in a
    line to a tenth.

    Yields:
      After each call: the step, the parameters, and means of the metrics since the
      call before.
    """
    fixed, trained = self.split(params)
    one = isinstance(seed, int)
    run = self._run if one else self._runs
    init = self._direction.init if one else jax.vmap(self._direction.init)
    keys_of = jax.vmap(jax.random.fold_in, (None, 0))
    if one:
      root = jax.random.key(seed)
    else:
      root = jax.vmap(jax.random.key)(jnp.asarray(seed))
      keys_of = jax.vmap(keys_of, (0, None))
    carry = trained, init(trained)
    start, step, share = None, 0, 0.0
    schedule = num_steps and optimizers.learning_rate_schedule(
      self.optimizer, num_steps
    )
    while step < num_steps if num_steps else share < 1:
      numbers = jnp.arange(step, step + self.steps)
      if num_steps:
        rates = jax.vmap(schedule)(numbers)
        rates = jnp.where(numbers < num_steps, rates, 0.0)
      else:
        now = min(share / _WARMUP, 1 - 0.9 * share)
        rates = jnp.full(self.steps, now * self.optimizer.learning_rate)
      keys = keys_of(root, numbers)
      carry, found = run(fixed, carry, data, keys, rates, numbers)
      found = {k: np.asarray(x).tolist() for k, x in found.items()}
      step += self.steps
      start = start or time.monotonic()
      if not num_steps:
        share = (time.monotonic() - start) / seconds
      whole = traverse_util.unflatten_dict(fixed | carry[0], sep='/')
      yield step, whole, found
