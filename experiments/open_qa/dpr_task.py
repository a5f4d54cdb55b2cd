# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Task of a retriever trained on questions and blocks that answer them (DPR).

Karpukhin et al. 2020. BM25 finds blocks with an answer, once; they are kept under
DATA/dpr. REALM and open-domain question answering start from this embedder with
--config.embedder_from=DIR; it starts itself from such a run, or from
config.embedder.checkpoint. Questions are those of config.questions.train; held out
are those of config.questions.dev, or valid_fraction of the training questions. DPR's
own training files can be read (config.dpr.examples) and written (config.dpr.export).
With config.dpr.run the blocks are those of config.dpr.retrievers of that run.
"""

import dataclasses
import functools

import jax
import ml_collections

from experiments.engine import tasks
from experiments.open_qa import ask, candidates, dpr_examples
from experiments.realm import block_task, evaluate as realm_evaluate
from realm_jax.data import block_dataset, folder as realm_data
from realm_jax.objectives import dpr
from retrieval.index import snapshots
from retrieval.questions import question_sets
from retrieval.store import store

FOLDER = 'dpr'


def find_examples(
  config: ml_collections.ConfigDict, data: realm_data.DataFolder, name: str
) -> dpr.Examples:
  """Return the examples of a field of config.questions.

  The file config.dpr.examples, where it is set, replaces 'train'.

  Args:
    name: 'train' or 'dev'.

  Raises:
    ValueError: for no questions.
  """
  settings, sets = config.dpr, config.questions
  if name == 'train' and settings.examples:
    return dpr_examples.read_json(
      settings.examples, data.tokenizer, settings.num_hard_negatives
    )
  question_sets.require_sets(sets[name], f'questions.{name}')
  questions = question_sets.load_questions(
    sets[name], sets[f'max_{name}'], sets.allow_other_counts
  )

  kinds = settings.retrievers if settings.run else ()
  retrieve = functools.partial(realm_evaluate.bm25_retriever, data)
  found_by = None
  if settings.run:
    reader = ask.open_reader(settings.run, str(data.root))
    retrieve = functools.partial(candidates.interleaved, reader, kinds)
    model = snapshots.fingerprint(reader.params)
    found_by = {'retrievers': list(kinds), 'model': model}
  return dpr_examples.mine(
    data.path(FOLDER),
    questions,
    data.blocks,
    data.tokenizer,
    dpr_examples.MineConfig(
      rule=settings.rule,
      depth=settings.depth * max(1, len(kinds)),
      num_hard_negatives=settings.num_hard_negatives,
    ),
    retrieve,
    found_by,
  )


def make_splits(
  config: ml_collections.ConfigDict, data: realm_data.DataFolder
) -> dict[str, tuple[dpr.Examples, block_dataset.Split]]:
  """Return split -> all examples, and the numbers of the split's examples."""
  train = find_examples(config, data, 'train')
  if config.dpr.export and not jax.process_index():
    dpr_examples.write_json(config.dpr.export, train)
  if config.questions.dev:
    dev = find_examples(config, data, 'dev')
    return {
      'train': (train, train.split('all', 0.0)),
      'valid': (dev, dev.split('all', 0.0)),
    }
  names = ['train'] + ['valid'] * bool(config.eval_batches)
  return {
    name: (train, train.split(name, config.valid_fraction)) for name in names
  }


def make_task(
  config: ml_collections.ConfigDict, data: realm_data.DataFolder
) -> tasks.Task:
  """Return the task of the embedder.

  Raises:
    ValueError: for settings that do not fit each other.
  """
  block_task.check_whole_batch(config, 'dpr')
  settings = config.dpr
  layout = dataclasses.replace(
    data.layout(config), query_length=config.lookup.question_length
  )
  encode = data.tokenizer.encode_ids_batch
  splits = make_splits(config, data)
  found = [splits[name][0].fingerprint for name in splits]
  blocks = 1 + splits['train'][0].negatives.shape[1]

  def rows(split):
    found, source = splits[split]
    return lambda numbers, _: dpr.read_rows(
      layout, found, encode, numbers
    ), source

  return block_task.make_part_task(
    config,
    data,
    rows,
    store.fingerprint([*found, repr(splits['train'][1]), str(layout)]),
    loss=functools.partial(
      dpr.loss,
      num_chunks=settings.gradient_cache_parts,
      mask_duplicates=settings.mask_duplicates,
    ),
    part='embedder',
    row_lengths=(layout.query_length, *blocks * (layout.block_length,)),
    parts=settings.gradient_cache_parts,
  )
