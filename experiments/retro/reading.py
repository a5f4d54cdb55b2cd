# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of `config.reading`: prompts and passages that a joint model learns from."""

import functools
import itertools
from typing import Any

from absl import logging

from experiments.engine import tasks
from experiments.retro.config import Config
from retrieval.questions import dpr_json
from retro_jax.data import folder as retro_data, qa_rows, reading_rows
from retro_jax.nn import config as config_lib, losses, models


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
  examples = {}
  for split in ('train', 'valid'):
    results = map(dpr_json.read_results, getattr(config.reading, split))
    results = itertools.chain.from_iterable(results)
    examples[split] = reading_rows.together(results, prompts)
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
