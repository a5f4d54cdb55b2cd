# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Write checkpoints and resume from them.

A step on disk, `<workdir>/checkpoints/<step>/`, holds the train state, the
position of the data iterator, metadata (config, pipeline fields, index version,
fingerprints of the data), and the checksums of all its files. Each step is
written and hashed under a hidden name and renamed when whole, so a killed save
leaves the previous step in place. Resuming checks every file and continues the
very same batches and losses, or refuses.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
import contextlib
import math
import os
import pathlib
import shutil
from typing import Any

from absl import logging
import jax
from jax.experimental import multihost_utils
import numpy as np
from orbax.checkpoint import v1 as ocp

from experiments.engine import metric_writer
from retrieval.store import checkpoint_steps, checkpoints, locks, space

_SAVING, _REMOVING = '.saving-', '.removing-'
# What a killed process may leave; the last are drafts of best.json.
_HIDDEN = (_SAVING, _REMOVING, f'.{checkpoint_steps.BEST}.')
_MAX_REASON = 300


class Checkpoints:
  """The checkpoints of one run; a context manager that waits for its saves."""

  def __init__(
    self,
    workdir: str,
    *,
    config: Mapping[str, Any],
    pipeline: Mapping[str, Any],
    index_version: str | None = '',
    fingerprints: Mapping[str, str] | None = None,
    keep: int = 2,
    best_metric: str = '',
    best_mode: str = 'min',
  ):
    """Open the folder, empty or not, and remove what killed saves left.

    Args:
      workdir: the run's folder.
      pipeline: values that decide the stream of batches (seed, batch size,
        workers, processes, data set fingerprint), JSON values; must be equal on
        resume.
      index_version: fingerprint of the index that the data come from; must be
        equal on resume. None if each step has its own, given to `save`.
      fingerprints: fingerprints of the data by name, for readers of the parameters.
      keep: number of newest steps that stay on disk; 0 keeps all.
      best_metric: name of a metric as in metrics.jsonl; the step in which it is
        best stays on disk, too. '' for none.
      best_mode: 'min' or 'max', what is best.

    Raises:
      ValueError: for another `keep` or `best_mode`.
    """
    if keep < 0:
      raise ValueError(
        f'config.keep_checkpoints={keep}: expected the number of newest '
        'checkpoints to keep; 0 keeps all.'
      )
    if best_mode not in ('min', 'max'):
      raise ValueError(
        f"config.best_mode={best_mode!r}: expected 'min' or 'max'."
      )
    self._folder = checkpoint_steps.folder_of(workdir)
    self._metadata = {
      'config': dict(config),
      'pipeline': dict(pipeline),
      'index_version': index_version,
      'fingerprints': dict(fingerprints or {}),
    }
    self._keep, self._metric, self._mode = keep, best_metric, best_mode
    self._values: dict[int, float] = {}  # of the best metric, by step
    self._background = futures.ThreadPoolExecutor(1, 'checkpoints')
    self._jobs: list[futures.Future] = []
    if not jax.process_index():
      _remove_leftovers(self._folder)
      self._read_values(workdir)

  def _read_values(self, workdir: str) -> None:
    """Take the best metric's values, of the steps there are, from the disk."""
    rows = metric_writer.read(workdir) if self._metric else ()
    for row in rows:
      if row['step'] <= (self.latest_step() or 0) and self._metric in row:
        self._note(row['step'], row[self._metric])

  def _note(self, step: int, value: float | None) -> None:
    if value is not None and math.isfinite(value):  # a NaN is never the best
      self._values[step] = value

  def __enter__(self) -> 'Checkpoints':
    return self

  def __exit__(self, kind, *unused_exception) -> None:
    try:
      self.wait()
    except OSError as error:
      if kind is None:
        raise
      logging.warning('%s', error)  # what stopped the run is told by itself
    finally:
      self._background.shutdown()
    if kind is None and jax.process_count() > 1:
      # Other processes may read the last step only after the first has named it.
      multihost_utils.sync_global_devices('checkpoints')

  def wait(self) -> None:
    """Wait for the saves so far.

    Raises:
      OSError: if a checkpoint could not be saved; names what was missing.
    """
    jobs, self._jobs = self._jobs, []
    for job in jobs:
      job.result()

  def latest_step(self) -> int | None:
    """Return the newest step, or None."""
    return max(checkpoint_steps.numbers(self._folder), default=None)

  def newest_whole_step(self) -> int | None:
    """Return the newest step that is not damaged, or None, after all saves."""
    self.wait()
    return checkpoint_steps.newest_whole(self._folder)

  def saved_index_version(self) -> str:
    """Return the index version that the newest step names, or ''."""
    if not self.latest_step():
      return ''
    path = checkpoint_steps.choose(self._folder)
    return checkpoints.metadata_of(path)['index_version']

  def save(
    self,
    step: int,
    state: Any,
    batches: Iterator,
    index_version: str | None = None,
  ) -> None:
    """Save a step in the background; `state` may be donated after the call.

    Args:
      index_version: version in use, if it changes from step to step.

    Raises:
      OSError: if the disk has no room; for this save or the one before.
    """
    self.wait()
    metadata = dict(self._metadata)
    if index_version is not None:
      metadata['index_version'] = index_version
    finish = _start_save(
      self._folder, step, {'state': state, 'data': batches}, metadata
    )
    self._jobs.append(self._background.submit(finish))
    self._jobs.append(self._background.submit(self._tidy))

  def measured(self, step: int, values: Mapping[str, float]) -> None:
    """Take note of metrics, in metrics.jsonl by now; the best step is kept.

    Raises:
      ValueError: if the best metric is not among the others of its kind.
    """
    kind = self._metric.partition('/')[0]
    if self._metric in values:
      self._note(step, values[self._metric])
      self._jobs.append(self._background.submit(self._tidy))
    elif kind in {name.partition('/')[0] for name in values}:
      raise ValueError(
        f'config.best_metric={self._metric!r}: expected one of '
        f'{sorted(values)}, which step {step} measures.'
      )

  def _tidy(self) -> None:
    """Name the best step on disk, and remove what is not to be kept."""
    if jax.process_index():
      return
    there = checkpoint_steps.numbers(self._folder)
    keep = {*(there[-self._keep :] if self._keep else there)}
    measured = [step for step in there if step in self._values]
    if measured:
      sign = -1 if self._mode == 'max' else 1
      best = min(measured, key=lambda step: (sign * self._values[step], step))
      facts = {'metric': self._metric, 'mode': self._mode}
      facts |= {'step': best, 'value': self._values[best]}
      checkpoint_steps.write_sealed(self._folder / checkpoint_steps.BEST, facts)
      keep.add(best)
    for step in there:
      if step not in keep:
        _remove(self._folder / str(step))

  def restore(self, abstract: Any, batches: Iterator) -> Any:
    """Load the newest step and move `batches` to its position.

    Args:
      abstract: the state, with `params`, as ShapeDtypeStructs with shardings
        (of any mesh).
      batches: a fresh iterator of the same pipeline; changed in place.

    Raises:
      ValueError: if a file is damaged, or the pipeline, the index or a
        parameter's shape differs.
    """
    path = checkpoint_steps.choose(self._folder, share=_share())
    saved = checkpoints.metadata_of(path)
    for part in ('pipeline', 'index_version'):
      if self._metadata[part] is not None:
        _check_same(path, part, saved[part], self._metadata[part])
    # process_index differs between processes; the first one reports.
    if not jax.process_index():
      now = self._metadata['config']
      for line in _differences(saved['config'], now, '.config'):
        logging.warning('Changed since %s was written: %s', path, line)
    _check_shapes(path, abstract)
    # Moments of parts that were frozen since then are skipped.
    with checkpoints.partial_loading():
      loaded = ocp.load_checkpointables(
        path, {'state': abstract, 'data': batches}
      )
    self._jobs.append(self._background.submit(self._tidy))
    return loaded['state']


def _share() -> checkpoint_steps.Share:
  """Processes that restore together check a part of the files each."""
  return checkpoint_steps.Share(
    jax.process_index(),
    jax.process_count(),
    lambda here: bool(
      multihost_utils.process_allgather(np.array([here])).any()
    ),
  )


def save_params(
  workdir: str,
  params: Any,
  *,
  config: Mapping[str, Any],
  step: int = 0,
  fingerprints: Mapping[str, str] | None = None,
  index_version: str = '',
  replace: bool = False,
) -> None:
  """Save parameters that were trained elsewhere, for `load_params`.

  Args:
    workdir: folder without a checkpoint, unless `replace`.
    step: number of steps of the training elsewhere.
    fingerprints: fingerprints of the data that belong to the parameters, by name.
    index_version: version that the parameters retrieve from, if other
      parameters made it.
    replace: whether to replace parameters that an earlier call saved.

  Raises:
    ValueError: when there is a checkpoint already, or one of a training run.
    locks.WriterError: when another process writes there.
  """
  folder = checkpoint_steps.folder_of(workdir)
  converted = {'converted': True}  # not a run that could be continued
  metadata = {
    'config': dict(config),
    'pipeline': converted,
    'index_version': index_version,
    'fingerprints': dict(fingerprints or {}),
  }
  with locks.writer(workdir):
    _remove_leftovers(folder)
    there = checkpoint_steps.numbers(folder)
    if there:
      path = checkpoint_steps.choose(folder)
      made_by = checkpoints.metadata_of(path)['pipeline']
      if not replace or made_by != converted:
        raise ValueError(
          f'{folder}: holds checkpoint {path.name} already; expected a new '
          '--workdir.'
        )
    finish = _start_save(folder, step, {'state': {'params': params}}, metadata)
    finish(replace=True)
    for older in there:
      if older != step:
        _remove(folder / str(older))


def _start_save(
  folder: pathlib.Path,
  step: int,
  parts: Mapping[str, Any],
  metadata: Mapping[str, Any],
) -> Callable[..., None]:
  """Begin to write a step; return what waits for it, hashes and names it."""
  needed = sum(getattr(x, 'nbytes', 0) for x in jax.tree.leaves(parts['state']))
  path, hidden = folder / str(step), folder / f'{_SAVING}{step}'
  with _explained(path, needed):
    space.check(folder, needed)
    response = ocp.save_checkpointables_async(
      hidden, dict(parts), custom_metadata=dict(metadata)
    )

  def finish(replace: bool = False) -> None:
    with _explained(path, needed):
      response.result()  # all processes have written
      if jax.process_index():
        return
      checkpoint_steps.seal(hidden, step)
      if replace and path.exists():
        _remove(path)
      hidden.rename(path)

  return finish


@contextlib.contextmanager
def _explained(path: pathlib.Path, needed: int) -> Iterator[None]:
  """Turn any failure of a save into one line, and free what it has written."""
  try:
    yield
  except Exception as error:
    left = f'{needed:,} bytes needed, {space.left(path):,} left'
    if not jax.process_index():
      _remove_leftovers(path.parent)
    if isinstance(error, space.NoSpaceError):
      raise
    why = ' '.join(str(error).split())[:_MAX_REASON] or type(error).__name__
    kind = space.NoSpaceError if space.is_full(error) else OSError
    raise kind(
      f'{path}: not saved ({left}): {why}; earlier checkpoints are kept.'
    ) from error


def _remove(path: pathlib.Path) -> None:
  """Remove a step, under another name first: a kill leaves no half step."""
  hidden = path.with_name(f'{_REMOVING}{path.name}')
  path.rename(hidden)
  shutil.rmtree(hidden, ignore_errors=True)


def _remove_leftovers(folder: pathlib.Path) -> None:
  names = os.listdir(folder) if folder.is_dir() else ()
  for name in names:
    if name.startswith(_HIDDEN):
      path = folder / name
      shutil.rmtree(
        path, ignore_errors=True
      ) if path.is_dir() else path.unlink()


def _differences(saved: Any, now: Any, name: str) -> list[str]:
  """Describe each leaf in which two JSON values differ: 'a.b: 1 -> 2'."""
  if isinstance(saved, Mapping) and isinstance(now, Mapping):
    return [
      line
      for key in sorted({*saved, *now})
      for line in _differences(saved.get(key), now.get(key), f'{name}.{key}')
    ]
  return [] if saved == now else [f'{name[1:]}: {saved!r} -> {now!r}']


def _check_same(path: pathlib.Path, part: str, saved: Any, now: Any) -> None:
  changed = _differences(saved, now, f'.{part}')
  if changed:
    raise ValueError(
      f'{path} was made by other data and cannot be continued exactly '
      f'({"; ".join(changed)}): restore these values, or use a new --workdir.'
    )


def _check_shapes(path: pathlib.Path, abstract: Any) -> None:
  stored = ocp.metadata(path, checkpointable_name='state').metadata['params']
  saved, wanted = (
    {
      jax.tree_util.keystr(key): tuple(x.shape)
      for key, x in jax.tree_util.tree_leaves_with_path(
        tree, is_leaf=checkpoints.is_array
      )
    }
    for tree in (stored, abstract.params)
  )
  stacked = [
    any(name.startswith("['layers_") for name in x) for x in (saved, wanted)
  ]
  if stacked[0] != stacked[1]:
    raise ValueError(
      f'{path} holds the parameters of equal layers '
      f'{"stacked" if stacked[0] else "one by one"}, but training here does not: '
      'it goes on with --config.model.layers='
      f'{"scanned" if stacked[0] else "unrolled"}.'
    )
  for name in sorted({*saved, *wanted}):
    if saved.get(name) != wanted.get(name):
      raise ValueError(
        f'{path} does not fit this config: parameter {name} has shape '
        f'{saved.get(name, "(absent)")} there and '
        f'{wanted.get(name, "(absent)")} here.'
      )
