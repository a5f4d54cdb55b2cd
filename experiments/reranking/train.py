# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Train a cross-encoder that re-ranks passages for questions, or chunks for RETRO.

  python -m experiments.open_qa.ask --packaged --workdir=runs/ask --question='Who?'
  python -m experiments.reranking.train --config=configs/reranking_small.py \
    --config.examples.run=runs/ask \
    --config.questions.train="('webquestions:train=trainmodel.json,val.json,devtest.json',)" \
    --config.questions.dev="('webquestions:dev=trainmodel.json,val.json,devtest.json',)" \
    --workdir=DIR

For questions the positive is the first block with an answer that a retriever finds, the
negatives are blocks of the same lists without one. With the config argument chunks, and
--config.examples.run=RETRO, queries are training chunks; the positive is the candidate
that shares most tokens with the text that follows the chunk (`ordered.Oracle`).

The folder then serves experiments.open_qa.{retrieve,evaluate,ask} as a re-ranker, and
experiments.retro.{prepare,evaluate} as --config.neighbors.reranker. Run again after a
kill, the command continues from the last checkpoint bit for bit.
"""

import ml_collections

from experiments.engine import command, loop
from experiments.reranking import settings as settings_lib, task as task_lib
from retrieval.store import locks


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Train until `config.num_steps`."""
  if not config.examples.run:
    raise ValueError(
      "config.examples.run='': expected the folder of a run whose blocks or "
      'chunks are ranked, as experiments.open_qa.ask --packaged makes it.'
    )
  loop.train(task_lib.make_task(config, workdir), config, workdir)


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=locks.RUN)
