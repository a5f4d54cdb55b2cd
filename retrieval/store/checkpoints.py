# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of training runs: the steps on disk, their parameters and facts.

  <workdir>/checkpoints/<step>/                an Orbax checkpoint
  <workdir>/checkpoints/<step>/checksums.json  hash of each of its files
  <workdir>/checkpoints/best.json              the step that measured best

`experiments/engine/checkpoint_writer.py` writes a step under a hidden name and renames
it when it is whole; whoever reads a step compares its files first.
"""

from collections.abc import Collection, Mapping
import contextlib
import dataclasses
import json
import os
import pathlib
from typing import Any

import jax
import ml_collections

from retrieval.store import checksums, manifests, output_files, packed

CHECKSUMS, BEST = 'checksums.json', 'best.json'
_ADVICE = 'remove this step, and the same command continues from the one before'

Step = int | str | None  # a number, 'best', or the newest: None or ''


@dataclasses.dataclass(frozen=True)
class Saved:
  """Facts of a checkpoint, without its arrays."""

  config: ml_collections.ConfigDict  # that the run was trained with
  step: int
  # hashes of the data it was trained on, by name; may be empty
  fingerprints: dict[str, str]
  params: Any  # tree of the parameters' shapes and dtypes
  # name of the index version that it retrieves from, or ''
  index_version: str = ''


class DamagedError(ValueError):
  """A file of a checkpoint is missing, changed or not part of it."""


def folder_of(workdir: str | os.PathLike) -> pathlib.Path:
  """Folder of a run's checkpoints."""
  return pathlib.Path(workdir).absolute() / 'checkpoints'


def numbers(folder: pathlib.Path) -> list[int]:
  """Return the visible steps, oldest first; other names are passed over."""
  names = os.listdir(folder) if folder.is_dir() else ()
  digits = (x for x in names if x.isascii() and x.isdigit())
  return sorted(int(x) for x in digits if x == str(int(x)))


def seal(path: pathlib.Path, step: int) -> None:
  """Write the checksums of a finished step, even under a hidden name."""
  files = {x: checksums.of_file(path / x) for x in sorted(_files(path))}
  text = json.dumps({'step': step, 'files': files}, indent=1)
  output_files.write(path / CHECKSUMS, text.encode())


def check(path: pathlib.Path, index: int = 0, count: int = 1) -> None:
  """Compare the files of a step with their checksums, once a process.

  Args:
    index: of this process, which hashes every `count`-th file.

  Raises:
    DamagedError: for a file that is missing, cut, changed or not of the step.
  """
  file = path / CHECKSUMS
  try:
    sealed = json.loads(file.read_bytes())
    step, files = sealed['step'], dict(sealed['files'])
  except OSError as error:
    raise DamagedError(f'{file}: {error.strerror}; {_ADVICE}.') from None
  except (ValueError, LookupError, TypeError):
    raise DamagedError(f'{file}: damaged; {_ADVICE}.') from None
  if str(step) != path.name:
    raise DamagedError(f'{path}: holds checkpoint {step}, renamed.')
  for name in sorted(_files(path) - {*files}):
    raise DamagedError(f'{path / name}: no file of this step; {_ADVICE}.')
  for name, checksum in list(files.items())[index::count]:
    try:
      checksums.check(path / name, checksum, _ADVICE)
    except ValueError as error:
      raise DamagedError(str(error)) from None


def choose(
  folder: pathlib.Path, step: Step = None, index: int = 0, count: int = 1
) -> pathlib.Path:
  """Return the folder of a step, after a check of its files.

  Args:
    folder: of all checkpoints, from `folder_of`.
    step: a number, 'best' (by config.best_metric), or None or '' for the newest.
    index: as of `check`.

  Raises:
    FileNotFoundError: if there is no such checkpoint.
    DamagedError: for a damaged step; names the file.
  """
  while True:
    path = folder / str(_number(folder, step))
    try:
      check(path, index, count)
    except DamagedError:
      if step not in (None, '') or int(path.name) in numbers(folder):
        raise
      continue  # the run saved others meanwhile and removed this one
    return path


def find(workdir: str, *, step: Step = None) -> Saved:
  """Read the facts of a step, after a check of its files.

  Args:
    workdir: folder of a run or of a packed model (`packed`), which has one step.
    step: a number, 'best' (by config.best_metric), or None or '' for the newest.

  Raises:
    FileNotFoundError: if there is no such checkpoint.
    ValueError: if the checkpoint is damaged.
  """
  if packed.is_packed(workdir):
    facts = packed.read_facts(workdir)
    return Saved(
      config=ml_collections.ConfigDict(_tuples(packed.read_config(workdir))),
      step=facts.step,
      fingerprints=facts.fingerprints,
      params=packed.param_shapes(workdir),
    )
  path = choose(folder_of(workdir), step)
  from orbax.checkpoint import v1 as ocp

  metadata = ocp.metadata(path, checkpointable_name='state')
  facts = metadata.custom_metadata
  return Saved(
    config=ml_collections.ConfigDict(_tuples(facts['config'])),
    step=int(path.name),
    fingerprints=dict(facts['fingerprints']),
    params=metadata.metadata['params'],
    index_version=facts['index_version'] or '',
  )


def load_params(
  workdir: str,
  *,
  step: Step = None,
  shardings: Any = None,
  parts: Collection[str] = (),
) -> tuple[Any, Saved]:
  """Load the parameters of a step, after a check of its files.

  Args:
    workdir, step: as of `find`.
    shardings: a sharding, or a tree of them like the parameters (from
      `sharding.tree_shardings`); the first local device by default, host memory
      for a packed model.
    parts: names of the first level of a packed model's parameters; all by default.

  Returns:
    The parameters, and the facts of their checkpoint.

  Raises:
    FileNotFoundError: if there is no such checkpoint.
    ValueError: if the checkpoint is damaged.
  """
  saved = find(workdir, step=step)
  if packed.is_packed(workdir):
    params = packed.load_params(workdir, parts)
    if shardings is not None:
      params = jax.device_put(params, shardings)
    return params, saved
  from orbax.checkpoint import v1 as ocp

  one = shardings or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  if isinstance(one, jax.sharding.Sharding):
    shardings = jax.tree.map(lambda x: one, saved.params, is_leaf=is_array)
  abstract = jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
    saved.params,
    shardings,
    is_leaf=is_array,
  )
  path = folder_of(workdir) / str(saved.step)
  with partial_loading():
    loaded = ocp.load(path, {'params': abstract}, checkpointable_name='state')
  return loaded['params'], saved


def partial_loading() -> contextlib.AbstractContextManager:
  """Context in which a part of a checkpoint may be loaded."""
  from orbax.checkpoint import v1 as ocp

  context = ocp.Context()
  context.pytree.loading.partial_load = True
  return context


def is_array(x: Any) -> bool:
  """Whether a leaf has a shape and a dtype."""
  return hasattr(x, 'shape') and hasattr(x, 'dtype')


def _number(folder: pathlib.Path, step: Step) -> int:
  there, number = numbers(folder), None
  if step in (None, ''):
    step, number = 'of any step', max(there, default=None)
  elif step == 'best':
    if (folder / BEST).exists():
      number = manifests.read_object(folder / BEST).get('step')
  elif str(step).isascii() and str(step).isdigit():
    number = int(step)
  else:
    raise ValueError(
      f"Checkpoint {step!r}: expected a step's number, 'best', or '' for the "
      'newest.'
    )
  if number not in there:
    hint = ' (config.best_metric names what is best)' * (step == 'best')
    others = f'; expected one of {there}' if there else ''
    raise FileNotFoundError(f'{folder}: no checkpoint {step}{hint}{others}.')
  return number


def _files(path: pathlib.Path) -> set[str]:
  """Return the files below a step's folder, other than the checksums."""
  files = (x.relative_to(path) for x in path.rglob('*') if not x.is_dir())
  return {x.as_posix() for x in files} - {CHECKSUMS}


def _tuples(value: Any) -> Any:
  """Turn lists into tuples: JSON knows only lists, configs hold tuples."""
  if isinstance(value, Mapping):
    return {name: _tuples(x) for name, x in value.items()}
  return tuple(map(_tuples, value)) if isinstance(value, list) else value
