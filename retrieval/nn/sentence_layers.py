# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Layers of sentence-transformers above an encoder: Dense and Normalize."""

from collections.abc import Mapping, Sequence
import functools
import pathlib
from typing import Any

import jax
from jax import numpy as jnp
from jaxtyping import Array, Float
import numpy as np

from retrieval.formats import weights
from retrieval.nn import bert_checkpoint
from retrieval.store import manifests

NORMALIZE = 'Normalize'
IDENTITY = 'torch.nn.modules.linear.Identity'
_ACTIVATIONS = {  # the first one where a folder states none
  'torch.nn.modules.activation.Tanh': jnp.tanh,
  'torch.nn.modules.activation.ReLU': jax.nn.relu,
  'torch.nn.modules.activation.GELU': functools.partial(
    jax.nn.gelu, approximate=False
  ),
  'torch.nn.modules.activation.SiLU': jax.nn.silu,
  'torch.nn.modules.activation.Sigmoid': jax.nn.sigmoid,
  IDENTITY: lambda x: x,
}
_NAMES = {
  'kernel': 'linear.weight',
  'bias': 'linear.bias',
  'residual': 'residual.weight',
}
# Field -> supported values, where it is there
_FIELDS = {
  'activation_function': tuple(_ACTIVATIONS),
  'bias': (True, False),
  'use_residual': (True, False),
}

Params = dict[str, dict[str, np.ndarray]]  # dense_0, ... -> arrays by name


def read(
  path: pathlib.Path,
  kinds: Sequence[str],
  places: Sequence[str],
  **supported: Any,
) -> tuple[tuple[str, ...], Params]:
  """Read the layers of a folder.

  Args:
    kinds: 'Dense' or 'Normalize' of each layer.
    places: its folder, relative to `path`.
    supported: values that a Dense layer's further fields may have.

  Returns:
    layers: 'Normalize', or the activation of a Dense layer.
    params: dense_N of the Dense layer N: kernel [in, out], perhaps bias [out] and
      residual [in, out].
  """
  layers, params = [*kinds], {}
  for number, (kind, place) in enumerate(zip(kinds, places, strict=True)):
    if kind != NORMALIZE:
      file = path / place / 'config.json'
      fields = manifests.read_object(file)
      bert_checkpoint.check_fields(file, fields, _FIELDS | supported)
      layers[number] = fields.get(
        'activation_function', next(iter(_ACTIVATIONS))
      )
      params[f'dense_{number}'] = _dense(path / place, fields)
  return tuple(layers), params


def _dense(
  folder: pathlib.Path, fields: Mapping[str, Any]
) -> dict[str, np.ndarray]:
  file = weights.find(folder)
  tensors = dict(weights.read(file))
  shape = fields.get('out_features'), fields.get('in_features')
  expected = {'linear.weight': shape}
  if fields.get('bias', True):
    expected['linear.bias'] = shape[:1]
  residual, square = fields.get('use_residual', False), shape[0] == shape[1]
  if residual and not square:
    expected['residual.weight'] = shape
  shapes = {name: x.shape for name, x in tensors.items()}
  if shapes != expected:
    raise ValueError(
      f'{file}: tensors {shapes}; in_features, out_features, bias and '
      f'use_residual={residual} beside it say {expected}.'
    )
  if residual and square:
    tensors['residual.weight'] = np.eye(*shape)
  return {
    ours: np.array(tensors[theirs].T, np.float32)
    for ours, theirs in _NAMES.items()
    if theirs in tensors
  }


def width(
  layers: Sequence[str], params: Mapping[str, Any], of_encoder: int
) -> int:
  """Return the width of vectors; ValueError for layers that do not fit."""
  for number, layer in enumerate(layers):
    if layer != NORMALIZE:
      rows, columns = np.shape(params[f'dense_{number}']['kernel'])
      if rows != of_encoder:
        raise ValueError(
          f'Dense: in_features {rows}; expected {of_encoder}, the width before it.'
        )
      of_encoder = columns
  return of_encoder


def apply(
  layers: Sequence[str], params: Mapping[str, Any], x: Float[Array, '*b d']
) -> Float[Array, '*b e']:
  """Return float32 vectors; arguments are results of `read`."""
  x = x.astype(jnp.float32)
  matmul = functools.partial(jnp.matmul, precision='highest')
  for number, layer in enumerate(layers):
    if layer == NORMALIZE:
      norms = jnp.linalg.norm(x, axis=-1, keepdims=True)
      x /= jnp.maximum(norms, 1e-12)
    else:
      dense = params[f'dense_{number}']
      y = matmul(x, dense['kernel']) + dense.get('bias', 0.0)
      y = _ACTIVATIONS[layer](y)
      x = y + matmul(x, dense['residual']) if 'residual' in dense else y
  return x
