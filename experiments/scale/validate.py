# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compare the cost model with a real preparation of RETRO's data.

  python -m experiments.scale.validate --config=configs/retro_pretrain_quickstart.py \
    --workdir=runs/scale

Prepares the data in a new --workdir in one process, takes the CPU seconds of each
stage, and predicts them for the corpus that was found and one core. Writes --output,
which experiments.scale.plan reads for its page.
"""

import functools
import pathlib
import time
from typing import Any

from absl import flags
import ml_collections

from experiments.engine import command, reports, stages
from experiments.retro import prepare, settings as settings_lib
from experiments.scale import (
  cost_model,
  job as job_lib,
  plan,
  rates as rates_lib,
)
from retrieval import searchers
from retro_jax.data import folder as retro_data

# Stage of experiments.retro.prepare -> stage of the model.
STAGES = {
  'tokenizer': 'tokenizer',  # not predicted
  'tokens': 'tokenize',
  'chunks': 'chunk',
  'vectors': 'embed',
  'index': 'index',
  'neighbors': 'neighbors',
}


def measure(
  config: ml_collections.ConfigDict, workdir: str
) -> dict[str, float]:
  """Prepare the data; return CPU seconds of each stage of the model.

  Raises:
    ValueError: when the folder holds data already.
  """
  data = retro_data.DataFolder.of(config, workdir)
  if data.root.exists() and any(data.root.iterdir()):
    raise ValueError(f'{data.root}: expected a new folder.')
  data.root.mkdir(parents=True, exist_ok=True)
  taken = {}

  def timed(name):
    start = time.process_time()
    rows = prepare.STAGES[name](config, data)
    taken[STAGES[name]] = time.process_time() - start
    return rows

  work = [(name, functools.partial(timed, name)) for name in STAGES]
  stages.run(config, work, data.root)
  return taken


def job_of(config: ml_collections.ConfigDict, workdir: str) -> job_lib.Job:
  """Return the job of prepared data on one core.

  Last chunks of documents are short, so a token of a chunk has fewer bytes.
  """
  data = retro_data.DataFolder.of(config, workdir)
  chunks = sum(data.chunks(x).num_chunks for x in data.own_splits)
  tokens = chunks * config.model.chunk_length
  return job_lib.Job(
    chunks=chunks,
    tokens_per_chunk=config.model.chunk_length,
    tokens_per_document=tokens / data.tokens.num_documents,
    bytes_per_token=float(data.tokens.num_bytes[:].sum()) / tokens,
    vocab_size=config.tokenizer.vocab_size,
    vectors_dtype=config.embedder.vectors_dtype,
    codes='scann' if chunks >= searchers.SCANN_MIN_ROWS else 'exact',
    k=config.neighbors.stored,
    documents_per_shard=config.tokens.documents_per_shard,
    split_reading=False,
    cores=1,
  )


def compare(
  config: ml_collections.ConfigDict, workdir: str, rates: rates_lib.Rates
) -> dict[str, Any]:
  """Prepare the data in one process; return rows of predicted and measured."""
  with config.unlocked():
    config.tokens.num_processes = 1
    config.neighbors.validate = 0.0  # nothing is searched twice
  taken = measure(config, workdir)
  job = job_of(config, workdir)
  rows = [
    {
      'stage': stage.name,
      'predicted_sec': stage.times[cost_model.CORES],
      'measured_sec': taken[stage.name],
    }
    for stage in cost_model.stages(job, rates)
  ]
  return {'chunks': job.chunks, 'rows': rows}


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Compare, print and write."""
  found = compare(config, workdir, rates_lib.load())
  reports.write_json(pathlib.Path(flags.FLAGS.output), found)
  print(plan.validation_table(found), end='')


def _define_flags() -> None:
  flags.DEFINE_string('output', str(plan.VALIDATION), 'File of the comparison.')


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, _define_flags)
