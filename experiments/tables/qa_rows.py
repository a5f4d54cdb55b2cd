# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of REALM's Tables 1 and 2: a retriever and a reader's start, fine-tuned.

ROOT/qa/<retriever>-<encoder> holds the fine-tuning, measures.json with what the
system scored on each question set, and its predictions. Killed and run again, it
goes on; sets that were measured at the same step, with the same data, are not measured
again.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import json
import math
import pathlib
from typing import Any

from absl import logging
import jax
import ml_collections

from experiments.engine import command
from experiments.open_qa import dpr
from experiments.open_qa import evaluate as qa_evaluate
from experiments.open_qa import task as qa_task
from experiments.open_qa import train as qa_train
from experiments.realm import prepare as realm_prepare
from experiments.realm import warm_start
from experiments.tables import realm_rows
from realm_jax.data import folder as realm_data
from realm_jax.serving import index_folders
from retrieval.questions import question_sets
from retrieval.store import checkpoints
from retrieval.store import store

Config = ml_collections.ConfigDict
FOLDER = 'qa'
FILE = 'measures.json'
AT = 5  # blocks, of the top-k match that the tables show
# Retrievers besides the runs of `realm_rows`: 'start' is the embedder's checkpoint.
WITHOUT_VECTORS = ('bm25', 'random')
_BASIC_STAGES = 'tokenizer,tokens,blocks'
_SHARED = ('data_dir', 'corpus', 'tokens', 'tokenizer', 'blocks')


@dataclasses.dataclass(frozen=True)
class System:
  """What is fine-tuned together.

  Attributes:
    retriever: a run of `realm_rows`, 'dpr', 'start' (the checkpoint of
      config.embedder), 'bm25' or 'random'.
    encoder: the run that the reader starts from: a REALM's, or 'mlm', the
      baseline; that is the checkpoint itself where no MLM is needed.
  """

  retriever: str
  encoder: str = 'mlm'

  @property
  def name(self) -> str:
    """Of its folder."""
    return f'{self.retriever}-{self.encoder}'

  def folder(self, root: pathlib.Path) -> pathlib.Path:
    """Where it lies."""
    return root / FOLDER / self.name


def share_data(config: Config, source: Config, root: pathlib.Path) -> Config:
  """A config with the data of another one, in ROOT/data unless it names some."""
  fields = {name: source[name] for name in _SHARED}
  fields['data_dir'] = source.data_dir or str(root / 'data')
  return command.changed(config, **fields)


def fingerprint(questions: question_sets.QuestionSet, settings: Config) -> str:
  """Hash of a question set and of how it is measured."""
  rows = [(q.question, q.answers) for q in questions.questions]
  how = [settings[x] for x in ('rules', 'retriever_beam', 'reader_beam')]
  return store.fingerprint([questions.name, questions.kind, rows, *how, AT])


def identity(saved: checkpoints.Saved, data: realm_data.DataFolder) -> str:
  """Hash of what a checkpoint is measured as: how it was made, on which data."""
  return store.fingerprint(
    [
      *(saved.step, saved.index_version, data.fingerprints()),
      saved.config.to_json(sort_keys=True),
    ]
  )


def run(
  system: System,
  config: Config,
  realm_config: Config,
  sets: Sequence[question_sets.QuestionSet],
  root: pathlib.Path,
) -> None:
  """Trains what is not done yet and measures what is not measured.

  Args:
    system: what to run.
    config: of question answering.
    realm_config: of the pre-trainings, with the same data.
    sets: to measure on.
    root: where everything goes.
  """
  qa_task.check_questions(config)
  prepare(system, realm_config, root)
  folder = system.folder(root)
  wanted = fine_tuning(system, config, realm_config, root)
  if not warm_start.is_done(str(folder), wanted.num_steps):
    qa_train.run(wanted, str(folder))
  measure(folder, config, sets)


def prepare(system: System, config: Config, root: pathlib.Path) -> None:
  """Makes the data that a system needs; spans only where a REALM needs them."""
  names = {system.retriever, system.encoder} & set(realm_rows.REALMS)
  done = all(warm_start.is_done(str(root / n), config.num_steps) for n in names)
  if done:
    config = command.changed(config, prepare={'stages': _BASIC_STAGES})
  realm_prepare.run(config, str(root))


def fine_tuning(
  system: System, config: Config, realm_config: Config, root: pathlib.Path
) -> Config:
  """The config of a system's fine-tuning; pre-trains what it starts from."""
  fields: dict[str, Any] = {'realm_from': '', 'embedder_from': ''}
  if system.retriever in WITHOUT_VECTORS:
    fields |= {'retriever': system.retriever, 'train_blocks': False}
    fields['refresh'] = {'schedule': 'frozen'}
  else:
    fields['retriever'] = 'dense'
  if system.retriever == 'dpr':
    fields['embedder_from'] = train_dpr(config, root)
  elif system.retriever not in (*WITHOUT_VECTORS, 'start'):
    fields['embedder_from'] = realm_rows.train(
      system.retriever, realm_config, root
    )
  fields['encoder_from'] = realm_rows.train(system.encoder, realm_config, root)
  return command.changed(config, **fields)


def train_dpr(config: Config, root: pathlib.Path) -> str:
  """Trains DPR's retriever in ROOT/dpr, unless that is done; returns the folder."""
  folder = str(root / 'dpr')
  wanted = warm_start.make_config(config, 'dpr')
  if not warm_start.is_done(folder, wanted.num_steps):
    dpr.run(wanted, folder)
  return folder


def measure(
  folder: pathlib.Path,
  config: Config,
  sets: Sequence[question_sets.QuestionSet],
) -> None:
  """Measures the newest checkpoint on the sets it was not measured on."""
  found, saved = read_folder(folder), checkpoints.find(str(folder))
  data = realm_data.open_saved(saved, folder, config.data_dir)
  measured_as = identity(saved, data)
  if found.get('measured_as') != measured_as:
    found = {}
  settings = config.evaluate
  keys = {fingerprint(x, settings): x for x in sets}
  missing = {k: x for k, x in keys.items() if k not in found.get('sets', {})}
  if not missing:
    logging.info('%s: step %d was measured on all sets.', folder, saved.step)
    return
  trained = qa_task.load(folder, config.data_dir)
  found = describe(trained) | {
    'measured_as': measured_as,
    'sets': found.get('sets', {}),
  }
  retriever = trained.retriever(folder / index_folders.INDEX)
  answerer = qa_evaluate.make_answerer(trained, settings, retriever)
  ks = sorted({*settings.ks, AT})
  for key, questions in missing.items():
    row, answered = qa_evaluate.evaluate(
      answerer, questions, ks, settings.rules
    )
    path = folder / qa_evaluate.predictions_name(questions.name)
    qa_evaluate.write_predictions(path, answered, answerer)
    # Another version of the same set has lost its predictions to this one.
    kept = {
      k: x for k, x in found['sets'].items() if x['dataset'] != questions.name
    }
    found['sets'] = kept | {key: row}
    text = json.dumps(found, indent=1) + '\n'
    store.write_atomically(folder / FILE, text.encode())


def describe(trained: qa_task.Trained) -> dict[str, Any]:
  """The scale of a trained system: for the line under a table."""
  config = trained.config
  return {
    'step': trained.step,
    'batch_size': config.batch_size,
    'training_questions': count_questions(config),
    'parameters': sum(
      math.prod(x.shape) for x in jax.tree.leaves(trained.params)
    ),
    'blocks': trained.data.blocks.num_blocks,
    'block_length': config.blocks.max_length,
  }


def count_questions(config: Config) -> int:
  """How many questions a run was trained on; 0 where they lie no more."""
  settings = config.questions
  try:
    return len(
      question_sets.load_questions(
        settings.train, settings.max_train, settings.allow_other_counts
      )
    )
  except (FileNotFoundError, ValueError):
    return 0


def read_folder(folder: pathlib.Path) -> dict[str, Any]:
  """What was measured in a folder, {} if nothing."""
  path = folder / FILE
  return json.loads(path.read_text()) if path.is_file() else {}


def read(
  systems: Sequence[System], root: pathlib.Path
) -> dict[System, dict[str, Any]]:
  """What was measured of systems; those of which nothing was are left out."""
  found = {system: read_folder(system.folder(root)) for system in systems}
  return {system: x for system, x in found.items() if x}


def columns(
  found: Mapping[System, Mapping[str, Any]],
  sets: Sequence[question_sets.QuestionSet] = (),
  settings: Config | None = None,
) -> dict[str, str]:
  """The question sets of a table.

  Args:
    found: from `read`.
    sets: those to show; () for all that were measured.
    settings: the config's section evaluate, where there are `sets`.

  Returns:
    Fingerprint -> heading.
  """
  if sets:
    return {
      fingerprint(x, settings): f'{x.name} ({len(x.questions):,})' for x in sets
    }
  heads = {
    key: f'{row["dataset"]} ({row["questions"]:,})'
    for measures in found.values()
    for key, row in measures['sets'].items()
  }
  return dict(sorted(heads.items(), key=lambda item: item[1]))


def scale(found: Mapping[System, Mapping[str, Any]]) -> str:
  """One line: the size of what was measured, beside the papers'."""
  if not found:
    return 'Nothing was run yet.'

  def values(name: str) -> str:
    numbers = sorted({x[name] for x in found.values()})
    return '/'.join(f'{n:,}' for n in numbers)

  million = sorted({f'{x["parameters"] / 1e6:.0f}' for x in found.values()})
  return (
    f'Scale of ours: {values("blocks")} blocks of at most '
    f'{values("block_length")} wordpieces (papers: 13,353,718 of 288), '
    f'{"/".join(million)} M parameters (330 M), fine-tuned for '
    f'{values("step")} steps of {values("batch_size")} out of '
    f'{values("training_questions")} questions; the figures of the papers are '
    'not to be expected at this size, only their order.'
  )
