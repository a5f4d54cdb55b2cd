# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Read checkpoints of training runs: parameters, config and fingerprints.

`experiments/engine/checkpoint_writer.py` writes them, each step into the folder
`<workdir>/checkpoints/<step>/`; `checkpoint_steps` checks its files first.
"""

from collections.abc import Collection, Mapping
import dataclasses
import pathlib
from typing import Any

import jax
import ml_collections
from orbax.checkpoint import v1 as ocp

from retrieval.formats import packed
from retrieval.store import checkpoint_steps


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


def find(workdir: str, *, step: checkpoint_steps.Step = None) -> Saved:
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
  path = checkpoint_steps.choose(checkpoint_steps.folder_of(workdir), step)
  found = ocp.metadata(path, checkpointable_name='state')
  return Saved(
    config=ml_collections.ConfigDict(_tuples(found.custom_metadata['config'])),
    step=int(path.name),
    # Not every checkpoint has them.
    fingerprints=dict(found.custom_metadata.get('fingerprints', {})),
    params=found.metadata['params'],
    index_version=found.custom_metadata.get('index_version') or '',
  )


def load_params(
  workdir: str,
  *,
  step: checkpoint_steps.Step = None,
  shardings: Any = None,
  parts: Collection[str] = (),
) -> tuple[Any, Saved]:
  """Load the parameters of a step, after a check of its files.

  Args:
    workdir: as of `find`.
    step: as of `find`.
    parts: names of the first level of a packed model's parameters; all by default.
    shardings: a sharding, or a tree of them like the parameters (from
      `sharding.tree_shardings`); the first local device by default, host memory
      for a packed model.

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
      checkpoint_steps.folder_of(workdir) / str(saved.step),
      {'params': abstract},
      checkpointable_name='state',
    )
  return loaded['params'], saved


def partial_loading() -> ocp.Context:
  """Context in which a part of a checkpoint may be loaded."""
  context = ocp.Context()
  context.pytree.loading.partial_load = True
  return context


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
