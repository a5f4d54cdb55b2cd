# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Few-shot prompts of questions, with passages before the question or without.

Ram et al. 2023, section 7: a decoder that was not trained on questions reads examples,
passages and a question, and what it writes up to the end of the line is the answer.
The examples begin every prompt, so that they are read once.
"""

from collections.abc import Sequence
import dataclasses

import numpy as np

from retrieval import tokenization
from retro_jax.data import qa_rows

_TASK = 'Answer each question in a few words.\n\n'
_QUESTION = 'Question: {}\nAnswer:'
_END = '\n\n'


@dataclasses.dataclass(frozen=True)
class PromptWriter:
  """Writes the parts of a prompt as tokens."""

  tokenizer: tokenization.Tokenizer
  passage_length: int  # tokens of a passage with its title, at most

  def prefix(self, examples: Sequence[tuple[str, str]]) -> np.ndarray:
    """BOS, the task, and examples of a question and its answer: [n] int32."""
    shown = [f'{_QUESTION.format(q)} {answer}{_END}' for q, answer in examples]
    text = self.tokenizer.encode(_TASK + ''.join(shown)).ids
    return np.concatenate([[self.tokenizer.bos_id], text]).astype(np.int32)

  def tail(
    self, question: str, passages: Sequence[qa_rows.Passage] = ()
  ) -> np.ndarray:
    """Passages, each cut to its length, and the question: [n] int32."""
    encode, parts = self.tokenizer.encode, []
    for passage in passages:
      text = ': '.join(filter(None, (passage.title, passage.text)))
      parts += [encode(text).ids[: self.passage_length], encode(_END).ids]
    parts.append(encode(_QUESTION.format(question)).ids)
    return np.concatenate(parts).astype(np.int32)

  def is_done(self, written: Sequence[int]) -> bool:
    """Whether an answer has ended: with a document, or its line."""
    ended = written[-1] == self.tokenizer.eos_id
    return ended or '\n' in self.tokenizer.decode(written)

  def answer(self, written: Sequence[int]) -> str:
    """The text of an answer, on one line; '' where nothing was written."""
    text = self.tokenizer.decode(
      [t for t in written if t != self.tokenizer.eos_id]
    )
    return ' '.join(text.split('\n')[0].split())
