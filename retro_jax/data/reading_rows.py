# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows that teach a joint model to read: prompt, passages, continuation.

The prompt is padded on the left to end where a chunk ends, as in decoding. Its last
chunk and what follows read the passages. Several prompts share passages, which are
encoded once for all of them.

Dimension key: P prompts of a row, L tokens of each, G groups of tokens, N neighbors, R
neighbor length, T any tokens.
"""

from collections.abc import Iterable
import itertools

import numpy as np

from retrieval import tokenization
from retrieval.questions import dpr_json
from retro_jax.data import qa_rows, samples


def together(
  examples: Iterable[dpr_json.Result], most: int
) -> list[list[dpr_json.Result]]:
  """Group adjacent examples with equal passages into rows of at most `most`."""

  def read(example):
    return [(x.title, x.text) for x in example.contexts]

  alike = [list(x) for _, x in itertools.groupby(examples, read)]
  return [x[i : i + most] for x in alike for i in range(0, len(x), most)]


class JointQaWriter(qa_rows.QaWriter):
  """Writes questions for a joint model; the prompt reads the passages, too."""

  form = 'joint'

  def _read(self, question, passages):
    """Return one entry of neighbors, [1, N, R], and the groups that read it, [G]."""
    c = self.layout
    if not c.num_neighbors:
      return {}
    read = self.neighbors(question, passages)
    tokens, mask = samples.stack([read], 1, read.tokens.shape)
    entries = np.full(c.row_length // c.chunk_length + 1, -1, np.int32)
    entries[c.prompt_chunks - 1 : c.prompt_chunks + 1] = 0
    return {'neighbors': tokens, 'neighbor_mask': mask, 'entries': entries}


class ReadingWriter(JointQaWriter):
  """Writes results: the question is a prompt, the answers are continuations."""

  def __init__(
    self,
    layout: qa_rows.QaLayout,
    tokenizer: tokenization.Tokenizer,
    prompts: int = 1,
  ):
    super().__init__(layout, tokenizer)
    self.prompts = prompts  # P
    self.form = f'reading, {prompts}'

  def drawn(self, example, rng):
    """The row of prompts with the same passages: tokens [P, L], neighbors of one."""
    rows = [super(ReadingWriter, self).drawn(x, rng) for x in example]
    missing = self.prompts - len(rows)
    return {
      name: value
      if name in ('neighbors', 'neighbor_mask')
      else np.stack([row[name] for row in rows] + [0 * value] * missing)
      for name, value in rows[0].items()
    }

  def prompt(self, question):
    """BOS and the prompt as it is; of a longer one the end stays."""
    ids = np.asarray(self.tokenizer.encode(question).ids, np.int32)
    end = ids[len(ids) - min(len(ids), self.layout.prompt_length - 1) :]
    return np.concatenate([[self.tokenizer.bos_id], end]).astype(np.int32)

  def answer(self, text):
    """The continuation as it is, its beginning if it is longer."""
    ids = np.asarray(self.tokenizer.encode(text).ids, np.int32)
    return ids[: self.layout.answer_length]

  def texts(self, question, passages):
    """The texts of the passages, without their titles."""
    del question
    return [p.text for p in passages]
