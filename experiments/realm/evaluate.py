# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluate a REALM: the gain of retrieval, and the recall of the retriever.

  python -m experiments.realm.evaluate --config=configs/<name>.py --workdir=DIR \
    --config.evaluate.questions="('questions.jsonl',)"

The command first measures held-out sentences with a masked span:
log-probability, accuracy and exact spans with the retrieved documents, with the
null document only, and with random documents. For files of questions it then
measures the zero-shot recall: the share of questions with an answer in the
first k blocks, before and after training, beside BM25 on the same blocks. It
writes <workdir>/evaluation.json.
"""

from collections.abc import Sequence
import dataclasses
import itertools
import pathlib
from typing import Any

from absl import logging
import ml_collections

from experiments.engine import command, progress, reports
from experiments.realm import (
  settings as settings_lib,
  task as realm_task,
  zero_shot,
)
from realm_jax.data import folder as realm_data, pipeline
from realm_jax.serving import (
  masked_words,
  serving,
  trained_models,
)
from retrieval.index import text_indices

FILE = 'evaluation.json'
_MEASURES = ('log_prob', 'accuracy', 'exact_span')


def measure_utility(
  trained: trained_models.TrainedRealm,
  index: serving.ServingIndex,
  num_batches: int,
) -> dict[str, dict[str, float]]:
  """Measure the model on held-out masked sentences.

  Args:
    index: index of the model's parameters.

  Returns:
    'retrieved' and 'random' -> the measures of `masked_words.measure`.
  """
  config, data, found = trained.config, trained.data, {}
  source = realm_task.source(config, data, 'valid')
  snapshots = pipeline.OneSnapshot(index)
  for candidates in pipeline.CANDIDATES:
    dataset = pipeline.make_dataset(
      source,
      pipeline.Retrieval(data.blocks, trained.layout, snapshots, candidates),
      batch_size=config.batch_size,
      train=False,
      seed=config.seed,
    )
    batches = iter(dataset)
    with progress.bar(f'{candidates} documents', 'batches') as update:
      taken = _counted(itertools.islice(batches, num_batches), update)
      found[candidates] = masked_words.measure(
        trained.model, trained.params, taken
      )
    batches.close()
  return found


def _counted(items, update):
  for i, item in enumerate(items, start=1):
    yield item
    update(i, 0)


def retriever(
  trained: trained_models.TrainedRealm, index: serving.ServingIndex
) -> zero_shot.RetrieveFn:
  """Return a function from questions to block ids, by a dense index."""
  return lambda texts, k: index.retrieve_texts(
    texts, k, trained.data.tokenizer, trained.layout
  )


def bm25_retriever(data: realm_data.DataFolder) -> zero_shot.RetrieveFn:
  """Return a function from questions to block ids, by words."""
  index = text_indices.TextIndices(data.root, data.blocks).words('bm25')
  return lambda texts, k: index.search(texts, k)[0]


def open_index(trained: trained_models.TrainedRealm) -> serving.ServingIndex:
  """Open a model's index; show progress while it is built."""
  with progress.bar('index', 'blocks') as update:
    return trained.open_index(progress=update)


def _print_utility(found: dict[str, dict[str, float]]) -> None:
  lines = []
  null = {k: found['retrieved'][f'null_{k}'] for k in _MEASURES}
  for name, values in (
    ('retrieved', found['retrieved']),
    ('null only', null),
    ('random', found['random']),
  ):
    shares = (values[k] for k in ('accuracy', 'exact_span'))
    cells = (f'{100 * x:.2f} %' for x in shares)
    lines.append((name, f'{-values["log_prob"]:.4f}', *cells))
  heads = ('documents', 'nats a token', 'accuracy', 'exact spans')
  reports.print_table(heads, lines)
  values = found['retrieved']
  progress.console().print(
    f'Retrieval utility {values["retrieval_utility"]:+.4f} nats a token '
    f'(of the most useful document {values["best_utility"]:+.4f} a span); '
    f'p(null | x) {values["null_prior"]:.3f}; '
    f'{values["examples"]:.0f} held-out sentences.'
  )


def print_recall(rows: list[dict[str, Any]], ks: Sequence[int]) -> None:
  """Print rows of `zero_shot.measure`."""
  heads = [f'recall@{k}' for k in ks]
  lines = []
  for row in rows:
    name = f'{pathlib.Path(row["questions_file"]).stem} ({row["questions"]})'
    shares = [row[head] for head in heads]
    cells = [
      f'{x["mean"]:.3f} ±{(x["high"] - x["low"]) / 2:.3f}' for x in shares
    ]
    lines.append((name, row['retriever'], row['rule'], *cells))
  heads = ['questions', 'retriever', 'rule', *heads]
  reports.print_table(heads, lines, wrap=True)


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Evaluate a checkpoint of `workdir`, by default the newest."""
  settings = config.evaluate
  trained_in = pathlib.Path(settings.workdir or workdir)
  trained = trained_models.load(
    trained_in,
    config.data_dir,
    step=settings.step,
    part='realm',
  )
  logging.info('Evaluating step %d of %s.', trained.step, trained_in)
  index = open_index(trained)
  result: dict[str, Any] = {'step': trained.step}
  if 'encoder' in trained.params:  # a run of ICT has no encoder
    result['masked'] = measure_utility(trained, index, settings.num_batches)
    _print_utility(result['masked'])
  if settings.questions:
    retrievers = {f'step {trained.step}': retriever(trained, index)}
    if settings.before:
      start = realm_task.untrained(trained.config, trained.data)
      start = dataclasses.replace(start, index_folder=trained.index_folder)
      before = retriever(start, open_index(start))
      retrievers = {'before': before} | retrievers
    if settings.bm25:
      retrievers['BM25'] = bm25_retriever(trained.data)
    result['zero_shot'] = zero_shot.measure(
      retrievers, trained.data.blocks, settings
    )
    print_recall(result['zero_shot'], settings.ks)
  path = reports.write_json(pathlib.Path(workdir) / FILE, result)
  logging.info('Written to %s.', path)


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=FILE)
