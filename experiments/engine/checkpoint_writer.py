# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Write checkpoints and resumes from them.

A step on disk, `<workdir>/checkpoints/<step>/`, holds the train state, the
position of the data iterator, and metadata: config, pipeline fields, index
version, fingerprints of the data. Each step is written under a temporary name
and renamed when whole, so a killed save leaves the previous step in place.
Resuming continues the very same batches and losses, or refuses.
"""

from collections.abc import Iterator, Mapping
import pathlib
from typing import Any

from absl import logging
import jax
from orbax.checkpoint import v1 as ocp

from retrieval.store import checkpoints as checkpoint_reader


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
  ):
    """Open the folder, empty or not.

    Args:
      workdir: the run's folder.
      pipeline: values that decide the stream of batches (seed, batch size,
        workers, processes, data set fingerprint), JSON values; must be equal on
        resume.
      index_version: fingerprint of the index that the data come from; must be
        equal on resume. None if each step has its own, given to `save`.
      fingerprints: fingerprints of the data by name, for readers of the parameters.
      keep: number of newest steps that stay on disk.
    """
    self._path = checkpoint_reader.folder_of(workdir)
    self._metadata = {
      'config': dict(config),
      'pipeline': dict(pipeline),
      'index_version': index_version,
      'fingerprints': dict(fingerprints or {}),
    }
    self._checkpointer = ocp.training.Checkpointer(
      self._path,
      preservation_policy=ocp.training.preservation_policies.LatestN(keep),
      cleanup_tmp_directories=True,
    )

  def __enter__(self) -> 'Checkpoints':
    return self

  def __exit__(self, *unused_exception) -> None:
    self._checkpointer.close()

  def latest_step(self) -> int | None:
    """Return the newest whole step, or None."""
    latest = self._checkpointer.latest
    return None if latest is None else latest.step

  def saved_index_version(self) -> str:
    """Return the index version that the newest step names, or ''."""
    step = self.latest_step()
    return (
      checkpoint_reader.metadata_of(self._path / str(step))['index_version']
      if step
      else ''
    )

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
    """
    metadata = dict(self._metadata)
    if index_version is not None:
      metadata['index_version'] = index_version
    self._checkpointer.save_checkpointables_async(
      step,
      {'state': state, 'data': batches},
      force=True,
      custom_metadata=metadata,
    )

  def restore(self, abstract: Any, batches: Iterator) -> Any:
    """Load the newest step and moves `batches` to its position.

    Args:
      abstract: the state, with `params`, as ShapeDtypeStructs with shardings
        (of any mesh).
      batches: a fresh iterator of the same pipeline; changed in place.

    Raises:
      ValueError: if the pipeline, the index or a parameter's shape differs.
    """
    path = self._path / str(self.latest_step())
    saved = checkpoint_reader.metadata_of(path)
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
    with checkpoint_reader.partial_loading():
      loaded = self._checkpointer.load_checkpointables(
        self.latest_step(), {'state': abstract, 'data': batches}
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
  """
  path = checkpoint_reader.folder_of(workdir)
  converted = {'converted': True}  # not a run that could be continued
  with ocp.training.Checkpointer(path, cleanup_tmp_directories=True) as saver:
    there = saver.latest and checkpoint_reader.metadata_of(
      path / str(saver.latest.step)
    )
    replace = replace and there and there['pipeline'] == converted
    if there and not replace:
      raise ValueError(
        f'{path}: holds checkpoint {saver.latest.step} already; expected a new '
        '--workdir.'
      )
    metadata = {
      'config': dict(config),
      'pipeline': converted,
      'index_version': index_version,
      'fingerprints': dict(fingerprints or {}),
    }
    saver.save_checkpointables(
      step,
      {'state': {'params': params}},
      force=True,
      overwrite=bool(replace),
      custom_metadata=metadata,
    )


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
        tree, is_leaf=checkpoint_reader.is_array
      )
    }
    for tree in (stored, abstract.params)
  )
  for name in sorted({*saved, *wanted}):
    if saved.get(name) != wanted.get(name):
      raise ValueError(
        f'{path} does not fit this config: parameter {name} has shape '
        f'{saved.get(name, "(absent)")} there and '
        f'{wanted.get(name, "(absent)")} here.'
      )
