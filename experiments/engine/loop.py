# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The one training loop: resume, step, measure, save.

`train(task, config, workdir)` reads the fields of `run_settings.Loop`, and seed,
batch_size, optimizer and num_workers, which must not change on resume; of optimizer,
accumulate_steps and part_scales may.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import itertools
import json
import math
import pathlib
import signal
import time
from typing import Any

from absl import logging
import jax
from jax.experimental import multihost_utils
import numpy as np

from experiments.engine import (
  checkpoint_writer,
  metric_writer,
  program as program_lib,
  progress,
  signals,
  tasks,
)
from retrieval.nn import means, sharding
from retrieval.store import checkpoints, locks, output_files

_FIRST_PROFILED = 4  # step of the run, past compilation


class NotFiniteError(ValueError):
  """Loss or gradient became NaN or infinite."""


def validate(
  program: program_lib.Program,
  params: tasks.Params,
  task: tasks.Task,
  num_batches: int,
) -> dict[str, float]:
  """Pool the means of at most `num_batches` validation batches.

  The program's context is entered; `params` are sharded as the program's.

  Raises:
    ValueError: if there is no validation batch.
  """
  total = None
  with contextlib.closing(iter(task.dataset('valid'))) as batches:
    for batch in itertools.islice(batches, num_batches):
      batch, _ = _complete(task, params, batch)
      batch = sharding.global_batch(batch, program.rows)
      sums = jax.device_get(program.evaluate(params, batch))
      sums = jax.tree.map(np.float64, sums)
      total = jax.tree.map(np.add, total, sums) if total else sums
  if not total:
    raise ValueError(
      "The 'valid' split holds no whole batch: lower batch_size, hold out more, "
      'or set eval_batches=0.'
    )
  return {name: float(x) for name, x in means.values(total).items()}


def train(
  task: tasks.Task,
  config: Any,
  workdir: str,
  *,
  devices: Sequence[jax.Device] | None = None,
) -> program_lib.TrainState:
  """Train until `config.num_steps`, from the newest checkpoint if there is one.

  Args:
    config: dataclass with the fields that the module names.
    workdir: folder of config.json, metrics.jsonl, events and checkpoints/.

  Raises:
    ValueError: for a config that does not fit devices, batch or checkpoint.
    locks.WriterError: if another process trains in this folder.
    NotFiniteError: if loss or gradient is NaN; no such state is saved.
    signals.Saved: after Ctrl-C or SIGTERM in a command, when the state is saved.
  """
  _check_best(config)
  program = program_lib.make_program(task, config, devices=devices)
  num_steps, index_refresher = config.num_steps, task.index_refresher
  fields = json.loads(json.dumps(dataclasses.asdict(config)))
  with contextlib.ExitStack() as stack:
    enter = stack.enter_context
    enter(locks.writer(workdir, process_index=jax.process_index()))
    signaled = enter(signals.first_saves())
    enter(program.context())
    saver = enter(
      checkpoint_writer.Checkpoints(
        workdir,
        config=fields,
        pipeline=_pipeline(task, config),
        index_version=None if index_refresher else task.index_version,
        fingerprints=task.fingerprints,
        keep=config.keep_checkpoints,
        best_metric=config.best_metric,
        best_mode=config.best_mode,
      )
    )
    batches = enter(contextlib.closing(iter(task.dataset('train'))))
    if index_refresher:
      enter(contextlib.closing(index_refresher))
    start = saver.latest_step() or 0
    if start:
      logging.info('Continuing %s after step %d.', workdir, start)
      state = saver.restore(program.abstract, batches)
    else:
      state = program.init(jax.random.key(config.seed))
    if not jax.process_index():  # not before the restore may refuse
      path = pathlib.Path(workdir) / 'config.json'
      output_files.write(path, json.dumps(fields, indent=2) + '\n')
    _log_plan(program, config, state, workdir)
    writer = enter(metric_writer.MetricWriter(workdir, start, config.log_every))
    profile = enter(_profiler(workdir, config.profile_steps))
    meter = progress.Throughput(
      task.tokens_per_step, task.flops_per_step, program.mesh.devices.ravel()
    )
    if index_refresher:
      saved = checkpoints.find(workdir).index_version if start else ''
      index_refresher.start(start, state.params, saved)
    show = enter(progress.bar('train', 'steps'))
    show(start, num_steps)

    def finish(
      step: int, metrics: tasks.Metrics, extra: Mapping[str, float]
    ) -> None:
      """Fetch a step's metrics; this waits for its end."""
      values = jax.tree.map(float, jax.device_get(metrics)) | extra
      _check_finite(step, values, saver)
      meter.tick()
      show(step, num_steps)
      if step % config.log_every == 0 or step == num_steps:
        _report(writer, step, values | meter.read())

    def measure(step: int) -> None:
      """Run validation where it is due, once a step."""
      due = step == num_steps or (step and step % config.eval_every == 0)
      if due and config.eval_batches and not writer.written(step, 'valid/'):
        measured = validate(program, state.params, task, config.eval_batches)
        values = {f'valid/{name}': value for name, value in measured.items()}
        _report(writer, step, values)
        saver.measured()
        if (best := config.best_metric) and best not in values:
          raise ValueError(
            f'config.best_metric={best!r}: expected one of {sorted(values)}.'
          )
      meter.pause()

    measure(start)  # a run that was killed while it measured still owes this
    pending = None
    for step in range(start + 1, num_steps + 1):
      profile(step - start)
      with meter.waiting():
        rows = next(batches)
      if task.complete and pending is not None:
        finish(*pending)  # the newest parameters are waited for anyway
        pending = None
      rows, extra = _complete(task, state.params, rows)
      batch = sharding.global_batch(rows, program.rows)
      with jax.profiler.StepTraceAnnotation('train', step_num=step):
        state, metrics = program.step(state, batch)
      if pending is not None:
        finish(*pending)
      if index_refresher:
        index_refresher.after_step(step, state.params)
        extra |= index_refresher.metrics(step, rows)
      pending = (step, metrics, extra)
      ending = _agreed(signaled, step)
      saving = ending or step % config.checkpoint_every == 0
      saving |= step == num_steps
      if saving or step % config.eval_every == 0:
        finish(*pending)
        pending = None
        if saving:
          version = index_refresher and index_refresher.version_to_save()
          saver.save(step, state, batches, version)
        if ending:
          saver.wait()
          raise signals.Saved(step, ending)
        measure(step)
  return state


def _agreed(signaled: Callable[[], int], step: int) -> int:
  """Return the signal on which all processes end with this step, or 0."""
  if jax.process_count() > 1:
    ending = jax.config.jax_enable_preemption_service and (
      multihost_utils.reached_preemption_sync_point(step)
    )
    return signal.SIGTERM if ending else 0
  return signaled()  # from the first call on, signals wait for a save


def _check_best(config: Any) -> None:
  """Refuse a best metric that is not measured, or not where a step is saved."""
  best = config.best_metric
  if best and not (config.eval_batches and best.startswith('valid/')):
    raise ValueError(
      f'config.best_metric={best!r}: expected a metric of validation, such as '
      "'valid/loss' (eval_batches=0 goes without validation)."
    )
  if best and config.eval_every % config.checkpoint_every:
    raise ValueError(
      f'config.eval_every={config.eval_every}: expected a multiple of '
      f'checkpoint_every={config.checkpoint_every}, so that each step that is '
      'measured for config.best_metric is saved.'
    )


def _complete(
  task: tasks.Task, params: tasks.Params, batch: tasks.Batch
) -> tuple[tasks.Batch, dict[str, float]]:
  """Complete the batch if the task does so, and measure the time."""
  if not task.complete:
    return batch, {}
  began = time.monotonic()
  batch = task.complete(params, batch)
  return batch, {'retrieval_sec': time.monotonic() - began}


def _check_finite(
  step: int, values: Mapping[str, float], saver: checkpoint_writer.Checkpoints
) -> None:
  loss, grad_norm = values['loss'], values['grad_norm']
  if not (math.isfinite(loss) and math.isfinite(grad_norm)):
    saver.wait()
    raise NotFiniteError(
      f'Stopped at step {step}: loss {loss}, gradient norm {grad_norm}. '
      f'Newest checkpoint: {saver.latest_step() or "none"}. Lower '
      'optimizer.learning_rate in a new --workdir, or look at the data.'
    )


def _pipeline(task: tasks.Task, config: Any) -> dict[str, Any]:
  """Values that decide the stream of batches and must not change on resume."""
  return {
    'dataset': task.pipeline_fingerprint,
    'seed': config.seed,
    'batch_size': config.batch_size,
    'num_workers': getattr(config, 'num_workers', 0),
    'process_count': jax.process_count(),
  }


def _log_plan(
  program: program_lib.Program,
  config: Any,
  state: program_lib.TrainState,
  workdir: str,
) -> None:
  trained, frozen = (
    sum(x.size for x in jax.tree.leaves(part))
    for part in program_lib.split_parts(state.params, program.frozen)
  )
  logging.info(
    'Training %s parameters (%s more are frozen) for %d steps of batch %d on a '
    'mesh of %s, %s; everything is written to %s.',
    f'{trained:,}',
    f'{frozen:,}',
    config.num_steps,
    config.batch_size,
    program.mesh.devices.flat[0].device_kind,
    dict(program.mesh.shape),
    workdir,
  )


def _report(
  writer: metric_writer.MetricWriter, step: int, values: Mapping[str, float]
) -> None:
  writer.write(step, values)
  shown = (f'{name} {value:.5g}' for name, value in values.items())
  logging.info('step %d: %s', step, ', '.join(shown))


@contextlib.contextmanager
def _profiler(workdir: str, num_steps: int) -> Iterator[Callable[[int], None]]:
  """Trace a few steps into <workdir>/profile; yield a function to call before each step."""
  with contextlib.ExitStack() as tracing:

    def before(index: int) -> None:
      if num_steps and index == _FIRST_PROFILED:
        folder = pathlib.Path(workdir) / 'profile'
        tracing.enter_context(jax.profiler.trace(str(folder)))
      elif index == _FIRST_PROFILED + num_steps:
        tracing.close()

    yield before
