# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Write checkpoints and resume from them.

A step (`retrieval/store/checkpoints.py`) holds the train state, the position of the
data iterator and metadata: config, pipeline fields, index version, fingerprints of
the data. Orbax writes it in the background under a hidden name; it is hashed and
renamed when whole, so a killed save leaves the previous step in place. Resuming
continues the very same batches and losses, or refuses.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
import json
import pathlib
import shutil
from typing import Any

from absl import logging
import jax
from jax.experimental import multihost_utils
from orbax.checkpoint import v1 as ocp

from experiments.engine import metric_writer
from retrieval.store import checkpoints, locks, manifests, output_files, packed

_HIDDEN = ('.saving-', '.removing-', f'.{checkpoints.BEST}.')
_MAY_CHANGE = ('accumulate_steps', 'part_scales')  # fields of the optimizer
# The pipeline of parameters that were not trained here.
_CONVERTED = {'converted': True}


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
    """Open the folder, empty or not, and delete leftovers of killed saves.

    Args:
      pipeline: JSON values that decide the stream of batches, equal on resume.
      index_version: of the index that the data come from, equal on resume. None if
        `save` gets one for each step.
      fingerprints: of the data by name, for readers of the parameters.
      keep: number of newest steps that stay on disk; 0 keeps all.
      best_metric: name of a metric as in metrics.jsonl, whose best step stays on
        disk, too; '' keeps no best step.
      best_mode: 'min' or 'max', what is best.

    Raises:
      ValueError: when the folder holds a packed model.
    """
    self._workdir, self._folder = workdir, _folder(workdir)
    self._metadata = _metadata(config, pipeline, index_version, fingerprints)
    self._keep, self._metric = keep, best_metric
    self._sign = -1 if best_mode == 'max' else 1
    self._background = futures.ThreadPoolExecutor(1, 'checkpoints')
    self._jobs: list[futures.Future] = []
    if not jax.process_index():
      _remove_leftovers(self._folder)

  def __enter__(self) -> 'Checkpoints':
    return self

  def __exit__(self, kind, *unused_exception) -> None:
    try:
      self.wait()
      self._tidy()
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
    """Wait for the saves so far; OSError if one failed."""
    jobs, self._jobs = self._jobs, []
    for job in jobs:
      job.result()

  def latest_step(self) -> int | None:
    """Return the newest step, or None."""
    return max(checkpoints.numbers(self._folder), default=None)

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
      OSError: if this save cannot begin, or the one before failed.
    """
    self.wait()
    metadata = dict(self._metadata)
    if index_version is not None:
      metadata['index_version'] = index_version
    parts = {'state': state, 'data': batches}
    finish = _start_save(self._folder, step, parts, metadata)
    self._jobs.append(self._background.submit(finish))
    self._jobs.append(self._background.submit(self._tidy))

  def measured(self) -> None:
    """Choose the best step again, after a row was added to metrics.jsonl."""
    if self._metric:
      self._jobs.append(self._background.submit(self._tidy))

  def _tidy(self) -> None:
    """Name the best step on disk, and delete superseded steps."""
    if jax.process_index():
      return
    there = checkpoints.numbers(self._folder)
    keep = there[-self._keep :] if self._keep else there
    rows = metric_writer.read(self._workdir) if self._metric else ()
    measured = [
      (self._sign * row[self._metric], row['step'])
      for row in rows
      if row.get(self._metric) is not None and row['step'] in there
    ]
    path = self._folder / checkpoints.BEST
    if best := [n for _, n in sorted(measured)][:1]:
      text = json.dumps({'metric': self._metric, 'step': best[0]})
      output_files.write(path, text.encode())
    elif not self._metric and path.exists():  # named before, by another config
      best = [manifests.read_object(path).get('step')]
    for step in {*there} - {*keep, *best}:
      _remove(self._folder / str(step))

  def restore(self, abstract: Any, batches: Iterator) -> Any:
    """Load the newest step and move `batches` to its position.

    Args:
      abstract: the state, with `params`, as ShapeDtypeStructs with shardings
        (of any mesh).
      batches: a fresh iterator of the same pipeline; changed in place.

    Raises:
      ValueError: if a file is damaged, or the pipeline, the index, the
        optimizer or a parameter's shape differs.
    """
    path = checkpoints.choose(
      self._folder, index=jax.process_index(), count=jax.process_count()
    )
    metadata = ocp.metadata(path, checkpointable_name='state')
    saved, now = dict(metadata.custom_metadata), dict(self._metadata)
    saved['params'] = _shapes(metadata.metadata['params'])
    now['params'] = _shapes(abstract.params)
    for one, two in ((saved, now), (now, saved)):
      one['optimizer'] = _fixed(one['config'], two['config'])
    parts = ('pipeline', 'index_version', 'params', 'optimizer')
    parts = [x for x in parts if now[x] is not None]
    changed = [y for x in parts for y in _differences(saved[x], now[x], x)]
    if changed:
      raise ValueError(
        f'{path} cannot be continued exactly ({"; ".join(changed[:4])}): '
        'restore these values, or use a new --workdir (layers are stacked or not '
        'as config.model.layers says).'
      )
    if not jax.process_index():
      for line in _differences(saved['config'], now['config'], 'config'):
        logging.warning('Changed since %s was written: %s', path, line)
    # Moments of parts that were frozen since then are skipped.
    with checkpoints.partial_loading():
      loaded = ocp.load_checkpointables(
        path, {'state': abstract, 'data': batches}
      )
    return loaded['state']


def save_params(
  workdir: str,
  params: Any,
  *,
  config: Mapping[str, Any],
  step: int = 0,
  fingerprints: Mapping[str, str] | None = None,
  index_version: str = '',
) -> None:
  """Save parameters that were trained elsewhere, for `load_params`.

  Args:
    workdir: folder without a checkpoint.
    step: number of steps of the training elsewhere.
    fingerprints: of the data that belong to the parameters, by name.
    index_version: that the parameters retrieve from, if other parameters made it.

  Raises:
    ValueError: when there is a checkpoint already, or a packed model.
    locks.WriterError: when another process writes there.
  """
  folder = _folder(workdir)
  metadata = _metadata(config, _CONVERTED, index_version, fingerprints)
  with locks.writer(workdir):
    _remove_leftovers(folder)
    if checkpoints.numbers(folder):
      raise ValueError(
        f'{folder}: holds checkpoint {checkpoints.choose(folder).name} already; '
        'expected a new --workdir.'
      )
    _start_save(folder, step, {'state': {'params': params}}, metadata)()


def _folder(workdir: str) -> pathlib.Path:
  """Return the folder of checkpoints; ValueError in that of a packed model."""
  if packed.is_packed(workdir):
    raise ValueError(
      f'{workdir}: holds a packed model; expected another --workdir.'
    )
  return checkpoints.folder_of(workdir)


def _metadata(config, pipeline, index_version, fingerprints) -> dict[str, Any]:
  return {
    'config': dict(config),
    'pipeline': dict(pipeline),
    'index_version': index_version,
    'fingerprints': dict(fingerprints or {}),
  }


def _start_save(
  folder: pathlib.Path,
  step: int,
  parts: Mapping[str, Any],
  metadata: Mapping[str, Any],
) -> Callable[[], None]:
  """Begin to write a step; return a function that waits, hashes and renames it."""
  path, hidden = folder / str(step), folder / f'.saving-{step}'
  size = sum(x.nbytes for x in jax.tree.leaves(parts['state']))
  response = ocp.save_checkpointables_async(
    hidden, dict(parts), custom_metadata=dict(metadata)
  )

  def finish() -> None:
    try:
      response.result()  # all processes have written
      if not jax.process_index():
        checkpoints.seal(hidden, step)
        if path.exists():
          _remove(path)
        hidden.rename(path)
    except Exception as error:
      if not jax.process_index():
        _remove_leftovers(folder)
      why = ' '.join(str(error).split()) or type(error).__name__
      raise OSError(
        f'{path}: not saved, of {size:,} bytes; earlier checkpoints stay ({why}).'
      ) from error

  return finish


def _remove(path: pathlib.Path) -> None:
  """Remove a step, under another name first: a kill leaves no half step."""
  hidden = path.with_name(f'.removing-{path.name}')
  path.rename(hidden)
  shutil.rmtree(hidden, ignore_errors=True)


def _remove_leftovers(folder: pathlib.Path) -> None:
  for path in folder.glob('.*'):
    if path.name.startswith(_HIDDEN):
      if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
      else:
        path.unlink()


def _differences(saved: Any, now: Any, name: str) -> list[str]:
  """Describe the leaves that differ between two JSON values: 'a.b: 1 -> 2'."""
  if isinstance(saved, Mapping) and isinstance(now, Mapping):
    return [
      line
      for key in sorted({*saved, *now})
      for line in _differences(saved.get(key), now.get(key), f'{name}.{key}')
    ]
  return [] if saved == now else [f'{name}: {saved!r} -> {now!r}']


def _fixed(config: Mapping[str, Any], other: Mapping[str, Any]) -> Any:
  """Return the optimizer's fields that both know and that must not change."""
  fields, others = (x.get('optimizer') or {} for x in (config, other))
  names = {*fields} & {*others} - {*_MAY_CHANGE}
  return {name: fields[name] for name in names}


def _shapes(params: Any) -> dict[str, tuple[int, ...]]:
  leaves = jax.tree_util.tree_leaves_with_path(
    params, is_leaf=checkpoints.is_array
  )
  return {jax.tree_util.keystr(key): tuple(x.shape) for key, x in leaves}
