# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""All fields of a config of question answering: a RETRO's fields, and questions."""

import dataclasses
from typing import Annotated, Literal

from experiments.engine import run_settings
from experiments.retro import config as retro_config
from retrieval import settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Qa:
  """Rows of questions, with the passages that are read."""

  # What reads the passages:
  #   retro        RETRO, or its baseline closed book: the start's model
  #   fid          Fusion-in-Decoder
  #   closed_book  the same encoder and decoder, with the question alone
  reader: Literal['retro', 'fid', 'closed_book'] = 'retro'
  # Results of any retriever in DPR's JSON form; (): the nearest chunks of the
  # run's datastore.
  passages: tuple[str, ...] = ()
  num_passages: Annotated[int, settings.Range(0, 2**16)] = 20  # k
  # chunks of the question; "answer:" ends the last (paper: 1)
  prompt_chunks: Annotated[int, settings.Range(1, 2**16)] = 1
  # most tokens of an answer, with its EOS
  answer_length: Annotated[int, settings.Range(1, 2**16)] = 32
  dropout_rate: settings.Rate = 0.1  # of the decoder alone [open]
  # Of fid and closed_book: tokens of a question with its passage; 0: the start's
  # neighbor_length.
  passage_length: settings.SizeOrZero = 0

  @property
  def is_fid(self) -> bool:
    """Whether the reader has FiD's encoder and decoder."""
    return self.reader != 'retro'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(retro_config.Config):
  """The root of a config of question answering."""

  task: Literal['retro_qa'] = 'retro_qa'
  retro_from: str = ''  # workdir of a RETRO, or of a baseline: closed book
  questions: run_settings.Questions = run_settings.Questions()
  qa: Qa = Qa()

  @property
  def reads_passages(self) -> bool:
    """Whether the model reads passages; a closed-book model does not."""
    open_book = self.retrieval and self.qa.reader != 'closed_book'
    return bool(open_book and self.qa.num_passages)
