# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure bits per byte of a decoder with and without passages in its prompt.

  python -m experiments.in_context.evaluate \
    --config=configs/in_context_smollm2.py --config.evaluate.workdir=DECODER \
    --config.data_dir=DATA --workdir=DIR

DECODER is a run of experiments.convert.import_decoder, or any baseline; DATA is a
folder of experiments.retro.prepare with the decoder's tokenizer. Before every
--config.in_context.stride tokens of a document of --config.evaluate.split, its last
tokens retrieve a passage of another document from the datastore, by the source
--config.evaluate.source of retrieval/index/sources.py (Ram et al. 2023). Prints a
table and writes DIR/in_context.json.
"""

import dataclasses
import functools
import json
import pathlib

import jax
import ml_collections

from experiments.engine import command, progress, reports
from experiments.in_context import settings as settings_lib
from experiments.retro import (
  evaluate as retro_evaluate,
  settings as retro_settings,
)
from retrieval import settings as checks
from retro_jax.evaluation import evaluate, in_context
from retro_jax.trained import language_model, loading

FILE = 'in_context.json'


def load(
  config: ml_collections.ConfigDict, workdir: str
) -> loading.TrainedRetro:
  """Load the decoder that a config names.

  Raises:
    ValueError: for a RETRO, or a config that several processes run.
  """
  if jax.process_count() > 1:
    raise ValueError('experiments.in_context runs in one process.')
  settings = config.evaluate
  run = settings.workdir or workdir
  trained = language_model.load(
    run, config.data_dir, source=settings.source, step=settings.step
  )
  if trained.model.config.cca_layers:
    raise ValueError(
      f'{run}: a RETRO; expected a decoder without retrieval, as '
      'experiments.convert.import_decoder writes it.'
    )
  return trained


def measure(
  trained: loading.TrainedRetro, config: ml_collections.ConfigDict
) -> dict[str, evaluate.Evaluation]:
  """Score the documents without passages ('off') and with them ('on')."""
  own, settings = config.in_context, config.evaluate
  sizes = checks.build(in_context.Settings, own.to_dict(), 'in_context')
  retro_settings.take_models(trained.config, config)
  data = trained.data
  data.check_tokenizer()
  passages = in_context.Passages(
    data.sources(trained.config).make(data.source), data.chunks('train')
  )
  params = jax.device_put(trained.params)
  nats = functools.partial(loading.batch_nll, trained.model, params)
  found = {}
  for name, given in (('off', None), ('on', passages)):
    with progress.bar(f'passages {name}', 'documents') as update:
      found[name] = in_context.evaluate(
        nats,
        data.chunks(settings.split),
        data.tokenizer,
        sizes,
        given,
        max_documents=settings.max_documents,
        progress=update,
      )
  return found


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Evaluate, print the table and write the file."""
  trained = load(config, workdir)
  found = measure(trained, config)
  gain = evaluate.compare(found['on'], found['off'])
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
    'settings': json.loads(config.in_context.to_json()),
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


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=FILE)
