# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of `config.reading`: prompts and passages that a joint model learns from."""

from collections.abc import Iterator, Sequence
import functools
import itertools
from typing import Any

from absl import logging

from experiments.engine import tasks
from experiments.retro.config import Config
from retrieval.questions import dpr_json
from retro_jax.data import folder as retro_data, qa_rows, reading_rows
from retro_jax.nn import config as config_lib, losses, models


def _read(paths: Sequence[str]) -> Iterator[qa_rows.Example]:
  """Yield the questions of files, with their passages."""
  for path in paths:
    for result in dpr_json.read_results(path):
      yield qa_rows.Example(
        question=result.question,
        answers=result.answers,
        passages=tuple(
          qa_rows.Passage(title=x.title, text=x.text) for x in result.contexts
        ),
      )


def fields(
  config: Config,
  model_cfg: config_lib.RetroConfig,
  data: retro_data.DataFolder,
) -> tuple[dict[str, Any], int]:
  """Return the fields of a task that bind loss and rows, and the tokens of a row."""
  layout = qa_rows.QaLayout(
    chunk_length=model_cfg.chunk_length,
    prompt_chunks=config.reading.prompt_chunks,
    answer_length=config.reading.answer_length,
    num_neighbors=config.num_neighbors,
    neighbor_length=model_cfg.neighbor_length,
  )
  prompts = config.reading.prompts
  writer = reading_rows.ReadingWriter(layout, data.tokenizer, prompts)
  examples = {
    split: reading_rows.together(_read(paths), prompts)
    for split, paths in (
      ('train', config.reading.train),
      ('valid', config.reading.valid),
    )
  }
  logging.info('Rows: %s.', {name: len(x) for name, x in examples.items()})

  def dataset(split: str):
    return qa_rows.make_dataset(
      examples[split],
      writer,
      train=split == 'train',
      **tasks.share_of(config),
    )

  every = [*itertools.chain(*examples['train'])]
  rows = {
    'loss': functools.partial(losses.loss_of_prompts, models.of(model_cfg)),
    'dataset': dataset,
    'pipeline_fingerprint': qa_rows.fingerprint(every, writer),
    'fingerprints': {'tokenizer': data.tokenizer.fingerprint},
  }
  return rows, prompts * layout.row_length
