# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure a decoder with and without passages in its prompt (Ram et al. 2023).

  python -m experiments.evaluate \
    --config=configs/in_context_smollm2.py --config.evaluate.workdir=DECODER \
    --config.data_dir=DATA --workdir=DIR

DECODER is a run of experiments.import_decoder, or any baseline; DATA is a folder of
experiments.prepare with the decoder's tokenizer. Before every
--config.evaluate.in_context.stride tokens of a document of --config.evaluate.split, its
last tokens retrieve a passage of another document from the datastore, by the source
--config.evaluate.source of docs/retrieval.md. Prints a table of bits per byte and writes
DIR/in_context.json.

With --config.evaluate.questions the decoder answers questions instead
(experiments/in_context/answer.py).
"""

import dataclasses
import functools
import pathlib

import jax

from experiments.engine import progress, reports, stages
from experiments.in_context import answer
from experiments.in_context.config import Config, Evaluate
from experiments.retro import evaluate as retro_evaluate
from retro_jax.evaluation import evaluate as evaluate_lib, in_context
from retro_jax.trained import loading

FILE = 'in_context.json'


def load(
  config: Config, workdir: str, evaluate: Evaluate
) -> loading.TrainedRetro:
  """Load the decoder that a config names.

  Raises:
    ValueError: for a RETRO, or a config that several processes run.
  """
  stages.check_alone()
  trained = retro_evaluate.load(config, evaluate, workdir, on_mesh=False)
  if trained.model.config.cca_layers:
    raise ValueError(
      f'{evaluate.workdir or workdir}: a RETRO; expected a decoder without '
      'retrieval, as experiments.import_decoder writes it.'
    )
  return trained


def measure(
  trained: loading.TrainedRetro, evaluate: Evaluate
) -> dict[str, evaluate_lib.Evaluation]:
  """Score the documents without passages ('off') and with them ('on')."""
  data = trained.data
  data.check_tokenizer()
  passages = in_context.Passages(
    data.datastore.retrievers(trained.config).make(data.source),
    data.chunks('train'),
  )
  params = jax.device_put(trained.params)
  nats = functools.partial(loading.batch_nll, trained.model, params)
  found = {}
  for name, given in (('off', None), ('on', passages)):
    with progress.bar(f'passages {name}', 'documents') as update:
      found[name] = in_context.evaluate(
        nats,
        data.chunks(evaluate.split),
        data.tokenizer,
        evaluate.in_context,
        given,
        max_documents=evaluate.max_documents,
        progress=update,
      )
  return found


def evaluate(config: Config, workdir: str, evaluate: Evaluate) -> None:
  """Measure bits per byte, or exact match where questions are named."""
  trained = load(config, workdir, evaluate)
  if evaluate.questions:
    answer.run(trained, config, workdir, evaluate)
    return
  found = measure(trained, evaluate)
  gain = evaluate_lib.compare(found['on'], found['off'])
  source = trained.data.source
  rows = [
    ('without passages', 'off', None),
    (f'passages by {source}', 'on', gain),
  ]
  content = {
    'rows': [
      {
        'name': name,
        'retrieval': mode,
        **found[mode].summary(),
        'minus_off': difference and dataclasses.asdict(difference),
      }
      for name, mode, difference in rows
    ],
    'source': source,
    'step': trained.step,
    'settings': dataclasses.asdict(evaluate.in_context),
  }
  reports.write_json(pathlib.Path(workdir) / FILE, content)
  one = found['off'].summary()
  reports.print_table(
    ('prompt', 'bits/byte', 'gain', 'interval', 'token ppl', 'word ppl'),
    [
      (name, *retro_evaluate.cells(found[mode], difference))
      for name, mode, difference in rows
    ],
    title=f'{one["documents"]:,} documents, {one["tokens"]:,} tokens, '
    f'{one["bytes"]:,} bytes',
    caption='Gain: bits per byte less those without passages; interval: 95 % of a '
    'paired bootstrap over documents.',
  )
