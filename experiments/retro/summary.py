# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Bits per byte of summaries, given their articles: the Curation Corpus's form.

  python -m experiments.retro.summary --config=configs/<name>.py --workdir=DIR \
    --config.examples.path=summaries.jsonl

Each line of the file is {"article" (or "text"): ..., "summary": ...}. The model
reads the article and "TL; DR:"; the summary alone is scored, with the blank before
it (Borgeaud et al. 2021, section 3). RETRO with retrieval on and off, and the baseline of
--config.evaluate.baseline_workdir. Prints a table and writes DIR/summary.json.
"""

import functools
import math
import pathlib

from absl import logging
import jax
import ml_collections
import numpy as np

from experiments.engine import command
from experiments.engine import progress
from experiments.retro import evaluate as retro_evaluate
from experiments.retro import examples as retro_examples
from experiments.retro import task as retro_task
from retro_jax.evaluation import continuations

FILE = 'summary.json'
PROMPT = '\n\nTL; DR:'
FIELDS = (('article', 'text'), ('summary',))


def encode(tokenizer, article: str, summary: str) -> continuations.Continuation:
  """BOS, article, prompt and summary, which is scored."""
  given = tokenizer.encode(article + PROMPT).ids
  scored = tokenizer.encode(f' {summary}').ids
  tokens = np.concatenate([[tokenizer.bos_id], given, scored]).astype(np.int32)
  return continuations.Continuation(tokens, 1 + len(given))


def score(
  mode: retro_examples.Mode,
  texts: list[continuations.Continuation],
  config: ml_collections.ConfigDict,
) -> np.ndarray:
  """[texts] nats of the summaries."""
  trained = mode.trained
  sizes, chunks = trained.model.config, trained.config.sequence_chunks
  stride = retro_evaluate.stride_chunks(config.evaluate, chunks)
  settings = continuations.Settings(
    chunk_length=sizes.chunk_length,
    neighbor_length=sizes.neighbor_length,
    sequence_chunks=chunks,
    stride_chunks=stride or max(1, chunks // 2),
    num_neighbors=mode.num_neighbors,
    batch_size=config.examples.batch_size,
  )
  params = jax.device_put(trained.params)
  nll = functools.partial(retro_task.batch_nll, trained.model, params)
  with progress.bar(f'summaries, {mode.name}', 'texts') as update:
    return continuations.score(
      lambda row: nll(row).sum(-1),
      texts,
      settings,
      retrieve=mode.retrieve,
      progress=update,
    )


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Scores, prints the table and writes the file."""
  if jax.process_count() > 1:
    raise ValueError('retro_summary runs in one process.')
  examples = retro_examples.read(config.examples, FIELDS)
  size = np.asarray([len(f' {s}'.encode()) for _, s in examples], np.float64)
  logging.info('%d summaries of %s.', len(examples), config.examples.path)
  rows = []
  for mode in retro_examples.modes(config, workdir):
    tokenizer = mode.trained.data.tokenizer
    mode.trained.data.check_tokenizer()
    texts = [encode(tokenizer, *example) for example in examples]
    bits = score(mode, texts, config) / math.log(2)
    rows.append(retro_examples.row(mode, 'bits_per_byte', bits, size))
  path = pathlib.Path(workdir) / FILE
  retro_examples.report(rows, 'bits_per_byte', path, config.examples)


if __name__ == '__main__':
  command.main(run, computes=True)
