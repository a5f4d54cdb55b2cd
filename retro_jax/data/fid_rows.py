# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions as rows of a Fusion-in-Decoder: the question stands in each passage.

Izacard and Grave 2020, section 3: the encoder reads "question: ... title: ...
context: ..." of each passage; the decoder reads nothing but the answer. Without
passages the encoder reads "question: ..." alone, which is T5 closed book (Roberts
et al. 2020). Dimension key: T any tokens.
"""

from collections.abc import Sequence

from jaxtyping import Int
import numpy as np

from retro_jax.data import qa_rows


class FidWriter(qa_rows.QaWriter):
  """Writes questions with their passages, and answers, as tokens.

  Of the layout, `num_neighbors` is at least 1, `prompt_chunks` is 1, and
  `answer_length` is `chunk_length`: all of the answer reads the passages.
  """

  form = 'fid'

  def prompt(self, question: str) -> Int[np.ndarray, ' T']:
    """BOS alone: the decoder reads the question in its passages."""
    del question
    return np.array([self.tokenizer.bos_id], np.int32)

  def texts(
    self, question: str, passages: Sequence[qa_rows.Passage]
  ) -> list[str]:
    """The question with each passage, or alone where there is no passage."""
    asked = f'question: {question.strip()}'
    return [
      f'{asked} title: {p.title} context: {p.text}' for p in passages
    ] or [asked]
