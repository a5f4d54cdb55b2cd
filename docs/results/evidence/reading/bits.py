"""Bits a byte of a run that reads, in chunks of 32 tokens: on, shuffled and off.

  python docs/results/evidence/reading/bits.py RUN DATA DOCUMENTS OUT.npz  # at db40a52b

The run was trained with chunks of 64 tokens, which no parameter depends on; DATA is of
experiments.prepare with --config.model.chunk_length=32 and neighbors.source=bm25.
"""

import dataclasses
import sys

import jax
import numpy as np

from experiments.retro import evaluate as retro_evaluate
from retro_jax.evaluation import evaluate as evaluate_lib
from retro_jax.nn import models
from retro_jax.trained import language_model


def main(run, data, documents, out):
  """Print both differences and write the nats of each document."""
  trained = language_model.load(run, data)
  changed = {'chunk_length': 32, 'dtype': 'float32'}
  sizes = dataclasses.replace(trained.config.model, **changed)
  trained = dataclasses.replace(
    trained,
    config=dataclasses.replace(
      trained.config, model=sizes, sequence_chunks=4, num_neighbors=2
    ),
    model=models.of(dataclasses.replace(trained.model.config, **changed)),
  )
  evaluate = retro_evaluate.Evaluate(
    workdir=run, max_documents=int(documents), batch_size=4
  )
  score = jax.jit(
    lambda params, row: evaluate_lib.score_chunks(trained.model, params, row)
  )
  found = {}
  for name, k in (('on', 2), ('shuffled', 2), ('off', 0)):
    modes = [(name, name, k)]
    reader = retro_evaluate.open_readers(trained, evaluate, modes)[k]
    found[name] = retro_evaluate.measure(
      lambda row: score(trained.params, row),
      *(reader, trained, evaluate, name, name, 0),
    )
    print(name, found[name].bits_per_byte, flush=True)
  for other in ('shuffled', 'off'):
    print('on -', other, evaluate_lib.compare(found['on'], found[other]))
  nats = {name: x.nats for name, x in found.items()}
  np.savez(out, **nats, bytes=found['on'].num_bytes)


if __name__ == '__main__':
  main(*sys.argv[1:])
