# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Conversion of the Hugging Face port's and TensorFlow's checkpoints.

Every tensor of a source must be used, tied to a used tensor, or known to be
unused; any other tensor is an error that names it.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import re
from typing import Any

from flax import traverse_util
import numpy as np

from realm_jax.checkpoints import names

# Positions 0, 1, 2 ..., which older files of the port hold.
_POSITIONS = re.compile(r'(^|\.)embeddings\.position_ids$')


@dataclasses.dataclass(frozen=True)
class Converted:
  """One checkpoint in our form."""

  hf_class: str  # class of the port that has the same tensors
  sizes: names.Sizes
  # tree of float32 arrays with the parts of the class: embedder (or
  # query_embedder and block_embedder), encoder, reader
  params: dict[str, Any]
  vectors: np.ndarray | None  # [num_blocks, d] of the blocks as given, or None
  # tensor -> 'parameter', 'tied', 'unused', 'vectors' or 'skipped'
  fates: dict[str, str]
  step: int = 0  # training step, 0 if it is unknown


def from_hf(
  tensors: Mapping[str, np.ndarray],
  sizes: names.Sizes,
  source: str,
  *,
  hf_class: str = '',
) -> Converted:
  """Convert a state dict of one of the port's classes.

  Args:
    hf_class: one of `names.CLASSES`; '' finds the class by the names.

  Raises:
    ValueError: with every tensor that is missing, misshapen, not finite, unknown
      (numbers of positions are skipped), or not equal to the tensor to which it is
      tied.
  """
  hf_class = hf_class or names.find_class(tensors)
  shared = hf_class != 'RealmScorer' or _is_shared(tensors)
  layout = names.layout(hf_class, sizes, shared=shared)
  rest, problems = dict(tensors), []
  flat, fates, vectors = {}, {}, None
  for tensor in layout:
    array = rest.pop(tensor.name, None)
    if array is None:
      # Files may omit tied and unused tensors.
      if tensor.role in (names.PARAMETER, names.VECTORS):
        problems.append(f'{tensor.name} is missing')
      continue
    if not _fits(array.shape, tensor.shape):
      problems.append(
        f'{tensor.name} has shape {array.shape}, expected {tensor.shape}'
      )
      continue
    fates[tensor.name] = tensor.role
    if tensor.role == names.PARAMETER:
      array = array.T if tensor.path.endswith('/kernel') else array
      flat[tensor.path] = array = np.array(array, np.float32, order='C')
      if not np.isfinite(array).all():
        problems.append(f'{tensor.name} holds a value that is not finite')
    elif tensor.role == names.VECTORS:
      vectors = array
    elif (
      tensor.role == names.TIED
      and tensor.path in tensors
      and not np.array_equal(array, tensors[tensor.path])
    ):
      problems.append(f'{tensor.name} differs from {tensor.path}, its double')
  fates |= {name: 'skipped' for name in rest if _POSITIONS.search(name)}
  unknown = sorted({*rest} - {*fates})
  problems += [f'{name} is not of {hf_class}' for name in unknown]
  if problems:
    raise ValueError(f'{source}: {"; ".join(problems)}.')
  params = traverse_util.unflatten_dict(flat, sep='/')
  return Converted(hf_class, sizes, params, vectors, fates)


def _is_shared(tensors: Mapping[str, np.ndarray]) -> bool:
  """Whether a scorer's two embedders are equal, stored twice or once."""
  return all(
    np.array_equal(array, tensors.get(name.removeprefix('query_'), array))
    for name, array in tensors.items()
    if name.startswith('query_embedder.')
    and not name.startswith('query_embedder.cls.predictions.')
  )


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
  return len(shape) == len(expected) and all(
    other in (None, size) for size, other in zip(shape, expected, strict=True)
  )


def from_bundle(
  variables: Mapping[str, np.ndarray], source: str, *, num_heads: int = 0
) -> Converted:
  """Convert bundle A, B or D of TensorFlow; `fates` has TensorFlow's names.

  Args:
    num_heads: attention heads, which no shape shows; 0 is one for 64 units.

  Raises:
    ValueError: as in `from_hf`, and for other bundles.
  """
  try:
    bundle = names.find_bundle(variables)
    shapes = {name: array.shape for name, array in variables.items()}
    sizes = names.bundle_sizes(bundle, shapes, num_heads)
  except ValueError as e:
    raise ValueError(f'{source}: {e}') from None
  hf_class = names.BUNDLES[bundle]
  variable_of = {
    tensor.name: names.tf_name(bundle, tensor.name)
    for tensor in names.layout(hf_class, sizes)
  }
  known = {k: v for k, v in variable_of.items() if v in variables}
  skipped = {name for name in variables if names.is_skipped(name)}
  refused = {*variables} - {*known.values()} - skipped
  tensors = {
    k: variables[v].T if v.endswith('/kernel') else variables[v]
    for k, v in known.items()
  } | {name: variables[name] for name in refused}
  # The vectors are in a separate bundle.
  if hf_class == 'RealmForOpenQA':
    tensors[names.BLOCKS] = np.zeros((0, sizes.projection_size), np.float32)
  converted = from_hf(
    tensors,
    dataclasses.replace(sizes, num_blocks=None),
    source,
    hf_class=hf_class,
  )
  fates = {v: converted.fates[k] for k, v in known.items()}
  step = int(variables[names.STEP]) if names.STEP in variables else 0
  return dataclasses.replace(
    converted,
    sizes=sizes,
    vectors=None,
    fates=fates | dict.fromkeys(skipped, 'skipped'),
    step=step,
  )


def join(parts: Iterable[Converted]) -> dict[str, Any]:
  """Join the parameters of checkpoints; ValueError for a part given twice."""
  params: dict[str, Any] = {}
  for part in parts:
    twice = sorted({*params} & {*part.params})
    if twice:
      raise ValueError(
        f'{part.hf_class} brings {", ".join(twice)}, which another checkpoint '
        'has brought already; expected each part once.'
      )
    params |= part.params
  return params
