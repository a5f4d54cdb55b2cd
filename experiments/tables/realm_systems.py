# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Systems of REALM's Tables 1 and 2: training, fine-tuning and measures.

ROOT/data holds the data. ROOT/ict and ROOT/mlm hold the warm starts of the
embedder and the encoder, ROOT/<name> the REALM of that name, and ROOT/dpr the
retriever of DPR. ROOT/qa/<retriever>-<encoder> holds a system's fine-tuning,
its predictions and measures.json, the system's results on each question set. A
finished run is not repeated, so both tables share runs; a killed run continues.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import pathlib
from typing import Any

from absl import flags, logging
import jax
import ml_collections

from experiments.engine import command, reports
from experiments.open_qa import evaluate as qa_evaluate, train as qa_train
from experiments.realm import (
  prepare as realm_prepare,
  train as realm_train,
  warm_start,
)
from experiments.tables import paper_table
from realm_jax.data import folder as realm_data
from realm_jax.serving import index_folders, trained as trained_lib
from retrieval.questions import question_sets, scoring
from retrieval.store import checkpoints, manifests, store

Config = ml_collections.ConfigDict
FOLDER = 'qa'
FILE = 'measures.json'
AT = 5  # blocks, of the top-k match that the tables show
# Name of a REALM -> fields of its config (Guu et al. 2020, Table 2).
REALMS: Mapping[str, Mapping[str, Any]] = {
  'salient': {'masker': 'salient'},
  'uniform': {'masker': 'uniform'},
  'span': {'masker': 'span'},
  'stale': {'refresh': {'staleness': 30}},
}
WITHOUT_VECTORS = ('bm25', 'tfidf', 'random')
_BASIC_STAGES = 'tokenizer,tokens,blocks'
_SHARED = ('data_dir', 'corpus', 'tokens', 'tokenizer', 'blocks')


@dataclasses.dataclass(frozen=True)
class System:
  """A retriever and the encoder of a reader, fine-tuned together."""

  # name of a REALM, 'ict', 'dpr', 'start' (the checkpoint of config.embedder),
  # 'bm25', 'tfidf' or 'random'
  retriever: str
  # run that the reader starts from: name of a REALM, or 'mlm' for the baseline,
  # which is the checkpoint itself if no MLM is needed
  encoder: str = 'mlm'

  @property
  def name(self) -> str:
    """Name of the system's folder."""
    return f'{self.retriever}-{self.encoder}'

  def folder(self, root: pathlib.Path) -> pathlib.Path:
    """Return the workdir of the fine-tuning."""
    return root / FOLDER / self.name


def define_flags(systems: Mapping[str, System]) -> None:
  """Define --row and --dataset."""
  flags.DEFINE_multi_string('row', [], f'Row to run: {list(systems)}.')
  flags.DEFINE_multi_string(
    'dataset', [], 'Question set to measure on, NAME:SPLIT=PATH,PATH.'
  )


def check_rows(rows: Sequence[str], systems: Mapping[str, System]) -> None:
  """Raise ValueError for a --row that does not exist."""
  for name in rows:
    if name not in systems:
      raise ValueError(f'--row={name}: expected one of {list(systems)}.')


def systems_of(table: paper_table.PaperTable) -> dict[str, System]:
  """Return the systems of a table by the name of their row."""
  return {row.run: System(*row.system) for row in table.rows if row.run}


def share_data(config: Config, source: Config, root: pathlib.Path) -> Config:
  """Copy a config with the data of `source`, by default in ROOT/data."""
  fields = {name: source[name] for name in _SHARED}
  fields['data_dir'] = source.data_dir or str(root / 'data')
  return command.changed(config, **fields)


def fingerprint(questions: question_sets.QuestionSet, settings: Config) -> str:
  """Fingerprint of a question set and of the settings that measure it."""
  rows = [(q.question, q.answers) for q in questions.questions]
  how = [settings[x] for x in ('rules', 'retriever_beam', 'reader_beam')]
  return store.fingerprint([questions.name, questions.kind, rows, *how, AT])


def identity(saved: checkpoints.Saved, data: realm_data.DataFolder) -> str:
  """Fingerprint of a checkpoint: its config, step, index version and data."""
  config = saved.config.to_json(sort_keys=True)
  made = [saved.step, saved.index_version, data.fingerprints(), config]
  return store.fingerprint(made)


def train(name: str, config: Config, root: pathlib.Path) -> str:
  """Train a run and the runs that it starts from, unless they are finished.

  Args:
    name: name of a REALM, 'ict' or 'mlm'.
    config: config of REALM with its data_dir set; the data are prepared.

  Returns:
    The run's folder; '' for an MLM that the config does not need.
  """
  if name not in REALMS:
    return warm_start.train(config, name, root)
  folder = str(root / name)
  if not warm_start.is_done(folder, config.num_steps):
    starts = {
      f'{part}_from': config[f'{part}_from']
      or warm_start.train(config, start, root)
      for part, start in (('embedder', 'ict'), ('encoder', 'mlm'))
    }
    realm_train.run(command.changed(config, **REALMS[name], **starts), folder)
  return folder


def run(
  system: System,
  config: Config,
  realm_config: Config,
  sets: Sequence[question_sets.QuestionSet],
  root: pathlib.Path,
) -> None:
  """Train and measure a system, except for the parts that are finished."""
  question_sets.check_questions(config)
  _prepare(system, realm_config, root)
  folder = system.folder(root)
  _tune(fine_tuning(system, config, realm_config, root), folder)
  measure(folder, config, sets)


def _tune(config: Config, folder: pathlib.Path) -> str:
  """Train on questions, unless it is finished; return the folder."""
  if not warm_start.is_done(str(folder), config.num_steps):
    qa_train.run(config, str(folder))
  return str(folder)


def _prepare(system: System, config: Config, root: pathlib.Path) -> None:
  """Make the data; salient spans only if a REALM still has to be trained."""
  names = {system.retriever, system.encoder} & set(REALMS)
  done = all(warm_start.is_done(str(root / n), config.num_steps) for n in names)
  if done:
    config = command.changed(config, prepare={'stages': _BASIC_STAGES})
  realm_prepare.run(config, str(root))


def fine_tuning(
  system: System, config: Config, realm_config: Config, root: pathlib.Path
) -> Config:
  """Return the config of a system's fine-tuning, its warm starts trained."""
  retriever = system.retriever
  fields: dict[str, Any] = {'realm_from': '', 'embedder_from': ''}
  if retriever in WITHOUT_VECTORS:
    fields |= {'retriever': retriever, 'train_blocks': False}
    fields['refresh'] = {'schedule': 'frozen'}
  else:
    fields['retriever'] = 'dense'
  if retriever == 'dpr':
    wanted = warm_start.make_config(config, 'dpr')
    fields['embedder_from'] = _tune(wanted, root / 'dpr')
  elif retriever not in (*WITHOUT_VECTORS, 'start'):
    fields['embedder_from'] = train(retriever, realm_config, root)
  fields['encoder_from'] = train(system.encoder, realm_config, root)
  return command.changed(config, **fields)


def measure(
  folder: pathlib.Path,
  config: Config,
  sets: Sequence[question_sets.QuestionSet],
) -> None:
  """Measure config.evaluate.step on the sets that it was not measured on."""
  step = config.evaluate.step
  found, saved = _read_folder(folder), checkpoints.find(str(folder), step=step)
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
  trained = trained_lib.load_reader(folder, config.data_dir, step=step)
  found = _describe(trained) | {
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
    path = folder / scoring.predictions_name(questions.name)
    qa_evaluate.write_predictions(path, answered)
    # The file of predictions now belongs to this version of the set.
    kept = {
      k: x for k, x in found['sets'].items() if x['dataset'] != questions.name
    }
    found['sets'] = kept | {key: row}
    reports.write_json(folder / FILE, found)


def _describe(trained: trained_lib.TrainedReader) -> dict[str, Any]:
  """The scale of a trained system, for the caption of a table."""
  config = trained.config
  return {
    'step': trained.step,
    'batch_size': config.batch_size,
    'training_questions': _count_questions(config.questions),
    'parameters': sum(
      math.prod(x.shape) for x in jax.tree.leaves(trained.params)
    ),
    'blocks': trained.data.blocks.num_blocks,
    'block_length': config.blocks.max_length,
  }


def _count_questions(settings: Config) -> int:
  """Number of training questions; 0 if their files no longer exist."""
  try:
    return len(
      question_sets.load_questions(
        settings.train, settings.max_train, settings.allow_other_counts
      )
    )
  except (FileNotFoundError, ValueError):
    return 0


def _read_folder(folder: pathlib.Path) -> dict[str, Any]:
  path = folder / FILE
  return manifests.read_object(path) if path.is_file() else {}


def read(
  systems: Sequence[System], root: pathlib.Path
) -> dict[System, dict[str, Any]]:
  """Read the measures of systems; systems without a result are omitted."""
  found = {system: _read_folder(system.folder(root)) for system in systems}
  return {system: x for system, x in found.items() if x}


def columns(
  found: Mapping[System, Mapping[str, Any]],
  sets: Sequence[question_sets.QuestionSet] = (),
  settings: Config | None = None,
) -> dict[str, str]:
  """Return the question sets of a table.

  Args:
    sets: question sets to show; () for all measured sets.
    settings: the config's section evaluate; needed with `sets`.
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


def exact_match(measures: Mapping[str, Any] | None) -> str:
  """Return the cell of exact match by the set's own rule."""
  if measures is None:
    return paper_table.NOT_RUN
  return reports.share(measures['official_exact_match'])


def scale(found: Mapping[System, Mapping[str, Any]]) -> str:
  """Return one line on the scale of our systems, beside the papers'."""
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
    f'{values("training_questions")} questions; at this size the order of the '
    "papers' figures can be expected, not the figures themselves."
  )
