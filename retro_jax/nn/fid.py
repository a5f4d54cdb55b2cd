# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Fusion-in-Decoder (Izacard and Grave 2020, arXiv 2007.01282) of RETRO's blocks.

Each passage is encoded by itself, with the question written before it; layers of
the decoder attend to the encodings of all passages together, and the decoder writes
the answer. This is a RETRO whose only chunk ends with BOS: its neighbors are the
passages, and BOS and the M - 1 tokens after it read them, so an answer has at most
M tokens. The encoder is not conditioned on the decoder, which has not read the
question. Positions begin anew in each passage; their order does not matter.

Training, sharding and cached decoding are therefore RETRO's own: the encoder runs
once for each question, and keys and values of the passages stay in the cache.
`qa_rows.FidWriter` writes the rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from flax import traverse_util
import jax
import numpy as np

from retrieval.nn import sharding
from retro_jax.nn import initial
from retro_jax.nn.config import RetroConfig


def fields(
  num_layers: int,
  cross_layers: Sequence[int],
  answer_length: int,
  passage_length: int,
) -> dict[str, Any]:
  """Fields of RetroConfig in which a FiD differs from the RETRO it starts from.

  Args:
    num_layers: of the decoder.
    cross_layers: layers of the decoder that read passages, from 1; () for all, as
      in the paper.
    answer_length: most tokens of an answer, with its EOS.
    passage_length: tokens of a question with its passage.

  Raises:
    ValueError: for layers that the decoder does not have.
  """
  wrong = [p for p in cross_layers if not 1 <= p <= num_layers]
  if wrong:
    raise ValueError(
      f'cross_layers {tuple(cross_layers)}: the decoder has no layers {wrong}; '
      f'expected some of 1..{num_layers}, or () for all.'
    )
  layers = sorted(set(cross_layers)) or range(1, num_layers + 1)
  return {
    'cca_layers': tuple(layers),
    'chunk_length': answer_length,
    'neighbor_length': passage_length,
    'query_conditioning': False,
  }


def start(
  key: jax.Array, config: RetroConfig, trained: Mapping[str, Any]
) -> tuple[Any, list[str], list[str]]:
  """Take over trained parameters and make the others.

  Args:
    config: of the FiD.
    trained: flat parameters of a RETRO or a baseline with the same sizes, in the
      host's memory.

  Returns:
    Flat parameters, in the host's memory; the names of the parts that are new; the
    names of the trained parts that a FiD does not have.
  """
  old = _parts(trained)
  scale = float(np.std(np.asarray(old['embedding'], np.float32)))

  def parts(key):
    return _parts(sharding.unbox(initial.flat_params(key, config, scale)))

  @jax.jit
  def new_parts(key):
    return {k: x for k, x in parts(key).items() if k not in old}

  names = jax.eval_shape(parts, key)
  kept = {k: x for k, x in old.items() if k in names}
  new = jax.tree.map(np.asarray, new_parts(key))
  whole = traverse_util.unflatten_dict(kept | new, sep='/')
  return whole, sorted(new), sorted({*old} - {*names})


def _parts(params: Mapping[str, Any]) -> dict[str, Any]:
  """Parameters by branch: layer_1_attn, encoder/layer_1_ffw and so on."""
  found = {k: x for k, x in params.items() if k != 'encoder'}
  inner = params.get('encoder', {})
  return found | {f'encoder/{k}': x for k, x in inner.items()}
