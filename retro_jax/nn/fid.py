# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Fusion-in-Decoder (Izacard and Grave 2020, arXiv 2007.01282) of RETRO's blocks.

Each passage is encoded by itself, with the question written before it; layers of
the decoder attend to the encodings of all passages together, and the decoder writes
the answer. This is a RETRO whose only chunk ends with BOS: its neighbors are the
passages, and BOS and the M - 1 tokens after it read them, so an answer has at most
M tokens. The encoder is not conditioned on the decoder, which has not read the
question. Positions begin anew in each passage; their order does not matter.

Training, sharding and cached decoding are therefore those of RETRO: the encoder runs
once for each question, and keys and values of the passages stay in the cache.
`qa_rows.FidWriter` writes the rows.
"""

from typing import Any


def fields(
  num_layers: int, answer_length: int, passage_length: int
) -> dict[str, Any]:
  """Fields of RetroConfig in which a FiD differs from the RETRO it starts from.

  Args:
    num_layers: of the decoder, all of which read passages, as in the paper.
    answer_length: most tokens of an answer, with its EOS.
    passage_length: tokens of a question with its passage.
  """
  return {
    'cca_layers': tuple(range(1, num_layers + 1)),
    'chunk_length': answer_length,
    'neighbor_length': passage_length,
    'query_conditioning': False,
  }
