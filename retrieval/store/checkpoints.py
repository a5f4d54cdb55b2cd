# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Read checkpoints of training runs: parameters, config and fingerprints.

`experiments/engine/checkpoint_writer.py` writes them, each step into the folder
`<workdir>/checkpoints/<step>/`.
"""

from collections.abc import Mapping
import dataclasses
import pathlib
from typing import Any

import jax
import ml_collections
from orbax.checkpoint import v1 as ocp

_FOLDER = 'checkpoints'


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


def find(workdir: str, *, step: int | None = None) -> Saved:
  """Read the facts of a step, by default the newest one.

  Raises:
    FileNotFoundError: if there is no such checkpoint.
  """
  folder = folder_of(workdir)
  steps = sorted(int(p.name) for p in folder.glob('*') if p.name.isdigit())
  if not steps or (step is not None and step not in steps):
    wanted = 'a checkpoint' if step is None else f'checkpoint {step}'
    there = f'the steps {steps}' if steps else 'none'
    raise FileNotFoundError(
      f'{folder}: expected {wanted}, found {there}; train first, with the same '
      '--workdir.'
    )
  step = steps[-1] if step is None else step
  found = ocp.metadata(folder / str(step), checkpointable_name='state')
  return Saved(
    config=ml_collections.ConfigDict(_tuples(found.custom_metadata['config'])),
    step=step,
    # Not every checkpoint has them.
    fingerprints=dict(found.custom_metadata.get('fingerprints', {})),
    params=found.metadata['params'],
    index_version=found.custom_metadata.get('index_version') or '',
  )


def load_params(
  workdir: str, *, step: int | None = None, shardings: Any = None
) -> tuple[Any, Saved]:
  """Load the parameters of a step, by default the newest one.

  Args:
    workdir: the run's folder.
    shardings: a sharding, or a tree of them like the parameters (from
      `sharding.tree_shardings`); the first local device by default.

  Returns:
    The parameters, and the facts of their checkpoint.

  Raises:
    FileNotFoundError: if there is no such checkpoint.
  """
  saved = find(workdir, step=step)
  if shardings is None:
    shardings = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  if isinstance(shardings, jax.sharding.Sharding):
    one = shardings
    shardings = jax.tree.map(lambda x: one, saved.params, is_leaf=is_array)
  abstract = jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
    saved.params,
    shardings,
    is_leaf=is_array,
  )
  with partial_loading():
    loaded = ocp.load(
      folder_of(workdir) / str(saved.step),
      {'params': abstract},
      checkpointable_name='state',
    )
  return loaded['params'], saved


def partial_loading() -> ocp.Context:
  """Context in which a part of a checkpoint may be loaded."""
  context = ocp.Context()
  context.pytree.loading.partial_load = True
  return context


def folder_of(workdir: str) -> pathlib.Path:
  """Folder of a run's checkpoints."""
  return pathlib.Path(workdir).absolute() / _FOLDER


def is_array(x: Any) -> bool:
  """Whether a leaf has a shape and a dtype."""
  return hasattr(x, 'shape') and hasattr(x, 'dtype')


def metadata_of(path: pathlib.Path) -> dict[str, Any]:
  """Metadata saved with one step: config, pipeline, index, fingerprints."""
  return ocp.metadata(path, checkpointable_name='state').custom_metadata


def _tuples(value: Any) -> Any:
  """Turn lists into tuples: JSON knows only lists, configs hold tuples."""
  if isinstance(value, Mapping):
    return {name: _tuples(x) for name, x in value.items()}
  return tuple(map(_tuples, value)) if isinstance(value, list) else value
