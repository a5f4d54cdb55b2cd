# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A reader with exact search and with ScaNN: quality and speed.

The measures are those of experiments.open_qa.evaluate on evaluate.questions, beside
questions a second and the milliseconds of retrieval. ScaNN's index is built once over
the same vectors, in <index>/scann.
"""

import dataclasses
import pathlib
import time
from typing import Any

from experiments.engine import reports
from experiments.open_qa import evaluate as qa_evaluate
from realm_jax.data import pipeline
from realm_jax.serving import beams, serving, trained_models
from retrieval import searchers
from retrieval.index import index as index_lib


class _Timed:
  """A retriever whose time is counted."""

  def __init__(self, retriever: beams.BlockRetriever):
    self._retriever, self.sec = retriever, 0.0

  def __call__(self, *arguments):
    start = time.perf_counter()
    found = self._retriever(*arguments)
    self.sec += time.perf_counter() - start
    return found


def _retrievers(trained: trained_models.TrainedReader) -> dict[str, _Timed]:
  """Return a retriever for each searcher of the index's vectors."""
  folder = pathlib.Path(trained.index_folder)
  version = trained.as_realm().open_index(folder).version
  config = index_lib.IndexConfig(
    searcher='scann',
    metric='dot_product',
    recall_floor=0.0,  # its loss is measured, not refused
    num_queries=trained.config.index.num_queries,
    scann=trained.config.index.scann.to_dict(),
  )
  fingerprint = version.index.vectors_fingerprint
  path = folder / 'scann' / version.name
  scann = index_lib.build_index(path, version.vectors, fingerprint, config)
  exact = searchers.ExactSearcher(version.vectors, 'dot_product')
  found = {}
  for name, searcher in (('exact', exact), ('ScaNN', scann.searcher)):
    index = dataclasses.replace(version.index, searcher=searcher)
    served = serving.ServingIndex(
      dataclasses.replace(version, index=index),
      serving.QueryEmbedder(trained.model.config.realm),
    )
    retriever = beams.make_retriever(
      trained.config, trained.data, pipeline.OneSnapshot(served)
    )
    found[name] = _Timed(retriever)
  return found


def run(config: Any, workdir: str) -> dict[str, Any]:
  """Measure a run, print the tables and return their numbers."""
  if not config or not workdir:
    raise ValueError('--config and --workdir: expected those of a run.')
  settings = config.evaluate
  sets, trained = qa_evaluate.open_run(config, workdir)
  rows = []
  for name, retriever in _retrievers(trained).items():
    answerer = qa_evaluate.make_answerer(trained, settings, retriever)
    for questions in sets:
      list(answerer(questions.questions[:1]))  # compiles
      retriever.sec, start = 0.0, time.perf_counter()
      row, answered = qa_evaluate.evaluate(
        answerer, questions, settings.ks, settings.rules
      )
      row['dataset'] += f' {name}'
      row['questions_per_sec'] = len(answered) / (time.perf_counter() - start)
      row['retrieval_ms'] = 1000 * retriever.sec / len(answered)
      rows.append(row)
  reports.print_shares(rows)
  heads = ('questions_per_sec', 'retrieval_ms')
  cells = [(x['dataset'], *(f'{x[y]:,.2f}' for y in heads)) for x in rows]
  reports.print_table(('set and searcher', *heads), cells)
  return {'step': trained.step, 'sets': rows}
