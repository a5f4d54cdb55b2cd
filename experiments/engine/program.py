# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The train state, the pure step, and both compiled for a mesh."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import os
from typing import Any

from flax import linen as nn, struct, traverse_util
import jax
import jax.numpy as jnp
import optax

from experiments.engine import optimizers, tasks
from retrieval.nn import sharding

_WARM_STEPS, _TIMED_STEPS = 5, 25


@struct.dataclass
class TrainState:
  """The values that a step changes."""

  step: jax.Array  # [] int32. Steps taken
  params: Any
  opt_state: Any  # the optimizer's state of the trained parts
  rng: jax.Array  # key from which each step folds in its number


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
  """A task compiled for a mesh; built by `make_program`."""

  mesh: jax.sharding.Mesh
  rules: Any  # logical to mesh axes
  rows: jax.sharding.NamedSharding  # of batches
  abstract: TrainState  # shapes, dtypes and shardings
  frozen: tuple[str, ...]  # paths of parameters that are not trained
  init: Callable[[jax.Array], TrainState]  # from a key
  # (state, batch) -> (state, metrics); the old state is donated.
  step: Callable[[TrainState, tasks.Batch], tuple[TrainState, tasks.Metrics]]
  evaluate: Callable[[tasks.Params, tasks.Batch], tasks.Means]

  @contextlib.contextmanager
  def context(self) -> Iterator[None]:
    """Make the mesh and the rules current, as all its functions need."""
    with jax.set_mesh(self.mesh), nn.logical_axis_rules(self.rules):
      yield


def split_parts(
  params: tasks.Params, frozen: Collection[str]
) -> tuple[tasks.Params, tasks.Params]:
  """Split parameters into trained ones and frozen ones, at the paths in `frozen`."""
  paths, halves = tuple(f'{path}/' for path in frozen), ({}, {})
  for name, x in traverse_util.flatten_dict(params, sep='/').items():
    halves[f'{name}/'.startswith(paths)][name] = x
  trained, others = (traverse_util.unflatten_dict(x, '/') for x in halves)
  return trained, others


def _joined(trained: tasks.Params, others: tasks.Params) -> tasks.Params:
  flat = [traverse_util.flatten_dict(x) for x in (trained, others)]
  return traverse_util.unflatten_dict(flat[0] | flat[1])


def frozen_parts(
  task: tasks.Task, scales: Mapping[str, float], params: tasks.Params
) -> tuple[str, ...]:
  """Return the paths of frozen parameters.

  Args:
    scales: the optimizer's `part_scales`.
    params: parameters of the whole model, one of which must be trained.
  """
  if task.frozen is None and not scales:
    return ()
  known = {x for x, scale in scales.items() if not scale} & {
    '/'.join(path[:depth])
    for path in traverse_util.flatten_dict(params)
    for depth in range(2, len(path) + 1)
  }
  if unknown := sorted(set(scales) - set(params) - known):
    raise ValueError(
      f'optimizer.part_scales names {unknown}; the model has the parts '
      f'{sorted(params)}.'
    )
  frozen = tuple(
    name
    for name in sorted({*params, *scales})
    if scales.get(name) == 0 or (task.frozen and task.frozen(name))
  )
  if not split_parts(params, frozen)[0]:
    raise ValueError(f'All parts are frozen, none is trained: {list(frozen)}.')
  return frozen


def _first_state(params, rng, tx, frozen) -> TrainState:
  opt_state = tx.init(split_parts(params, frozen)[0])
  return TrainState(jnp.zeros((), jnp.int32), params, opt_state, rng)


def _make_init(
  task: tasks.Task,
  tx: optax.GradientTransformation,
  frozen: Collection[str],
  shardings: TrainState,
) -> Callable[[jax.Array], TrainState]:
  """Compile the first state; after loaded parameters, the rest of it only."""
  finish = functools.partial(_first_state, tx=tx, frozen=frozen)

  def init(key):
    params_key, rng = jax.random.split(key)
    return sharding.unbox(finish(task.init(params_key), rng))

  def load(key):
    params_key, rng = jax.random.split(key)
    params = sharding.unbox(task.init(params_key))
    make = jax.jit(finish, out_shardings=shardings)
    return make(sharding.place(params, shardings.params), rng)

  return load if task.init_on_host else jax.jit(init, out_shardings=shardings)


def train_step(
  state: TrainState,
  batch: tasks.Batch,
  *,
  task: tasks.Task,
  tx: optax.GradientTransformation,
  schedule: optax.Schedule,
  accumulate_steps: int = 1,
  frozen: Collection[str] = (),
) -> tuple[TrainState, tasks.Metrics]:
  """Take one update; frozen parts have neither gradients nor moments."""
  trained, others = split_parts(state.params, frozen)

  def loss(trained, batch, key):
    return task.loss(_joined(trained, others), batch, key, True)

  key = jax.random.fold_in(state.rng, state.step)
  metrics, grads = optimizers.value_and_grad(
    loss, trained, batch, key, accumulate_steps
  )
  updates, opt_state = tx.update(grads, state.opt_state, trained)
  metrics |= {
    'grad_norm': optax.tree.norm(grads),
    'learning_rate': jnp.asarray(schedule(state.step), jnp.float32),
  }
  state = state.replace(
    step=state.step + 1,
    params=_joined(optax.apply_updates(trained, updates), others),
    opt_state=opt_state,
  )
  return state, metrics


def eval_step(
  params: tasks.Params,
  batch: tasks.Batch,
  *,
  task: tasks.Task,
  accumulate_steps: int = 1,
) -> tasks.Means:
  """Measure one batch without dropout, in the microbatches of training."""

  def part(batch, key):
    loss, metrics = task.loss(params, batch, key, False)
    return {'loss': loss, **metrics}

  key = jax.random.key(0)
  return optimizers.add_parts(part, batch, key, accumulate_steps)


def mesh_and_rules(
  config: Any, devices: Sequence[jax.Device] | None = None
) -> tuple[jax.sharding.Mesh, Any]:
  """The mesh of a config over all or some devices, and its sharding rules."""
  rules = sharding.make_rules(getattr(config, 'sharding_rules', None))
  mesh = sharding.make_mesh(**vars(config.mesh), devices=devices)
  return mesh, rules


def make_program(
  task: tasks.Task,
  config: Any,
  *,
  devices: Sequence[jax.Device] | None = None,
) -> Program:
  """Bind task and optimizer, and jit them with their shardings.

  Args:
    config: seed, mesh, optimizer, batch_size, num_steps, perhaps sharding_rules.

  Raises:
    ValueError: for a config that does not fit the devices or the batch.
  """
  mesh, rules = mesh_and_rules(config, devices)
  settings = config.optimizer
  parts = settings.accumulate_steps
  num_rows = task.batch_rows or config.batch_size
  rows = sharding.batch_sharding(mesh, num_rows, parts)
  tx = optimizers.make_optimizer(settings, config.num_steps)
  key = jax.random.key(config.seed)
  # Parameters may be of another form on other devices.
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    boxed = jax.eval_shape(task.shapes or task.init, key)
  frozen = frozen_parts(task, settings.part_scales, boxed)
  boxed = jax.eval_shape(
    functools.partial(_first_state, tx=tx, frozen=frozen), boxed, key
  )
  shardings = sharding.tree_shardings(boxed, mesh, rules)
  everywhere = sharding.replicated(mesh)
  return Program(
    mesh=mesh,
    rules=rules,
    rows=rows,
    abstract=sharding.abstract(boxed, shardings),
    frozen=frozen,
    init=_make_init(task, tx, frozen, shardings),
    step=jax.jit(
      functools.partial(
        train_step,
        task=task,
        tx=tx,
        schedule=optimizers.learning_rate_schedule(settings, config.num_steps),
        accumulate_steps=parts,
        frozen=frozen,
      ),
      in_shardings=(shardings, rows),
      out_shardings=(shardings, everywhere),
      donate_argnums=0,
    ),
    evaluate=jax.jit(
      functools.partial(eval_step, task=task, accumulate_steps=parts),
      in_shardings=(shardings.params, rows),
      out_shardings=everywhere,
    ),
  )


def cpu_seconds() -> float:
  """CPU seconds of this process and of children that have ended."""
  return sum(os.times()[:4])


def time_step(task: tasks.Task, config: Any) -> float:
  """Return the mean CPU seconds of a few steps of training, once they are compiled."""
  made = make_program(task, config)
  batches = contextlib.closing(iter(task.dataset('train')))
  with made.context(), batches as rows:
    state = made.init(jax.random.key(config.seed))
    for i in range(_WARM_STEPS + _TIMED_STEPS):
      if i == _WARM_STEPS:
        began = cpu_seconds()
      batch = sharding.global_batch(next(rows), made.rows)
      state, metrics = made.step(state, batch)
      jax.block_until_ready(metrics)
  jax.clear_caches()
  return (cpu_seconds() - began) / _TIMED_STEPS
