# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Train and evaluate memories of language models at equal cost.

  python -m experiments.arena --config=configs/retro_arena_quickstart.py:bytes \
    --config.data_dir=DATA --workdir=DIR

The config lists arms. An arm is a list of texts: a file of configs/ with its argument,
or @ARM for another arm's model read in another way; then FIELD=VALUE, as in
--config.FIELD=VALUE, of training, preparation or evaluation. @ARM as a value is that
arm's run of the same seed. Arms whose names begin with _ are trained for others alone.

`equal` says what all arms may cost, `budget` how much:

  bytes    of weights in float32 and of what the model looks up: tokens and index of
           words of RETRO and copies, keys and next tokens of kNN-LM
  flops    of training, by `presets.flops_per_token`, and of all tokens that are read
           for a kNN-LM's keys
  seconds  of a CPU: steps of training times those of a step, and a kNN-LM's keys;
           neighbors are found before, by experiments.prepare

Under flops and seconds an arm without num_steps takes the steps that the budget
allows. DATA is a folder of experiments.prepare with neighbors of a source of words, since
an embedder's bytes and FLOPs would not count; its splits are --config.splits.

A killed command goes on when run again. Several may run in one workdir, each with other
seeds. experiments.referee judges each arm's first seed. After each seed
OUTPUT/<corpus>_<equal>.npz has, of all seeds that are finished, the nats of each
document, SPLIT/ARM [seeds, documents], its bytes, and its mean r(C), SPLIT/overlap; the
.json beside it has the costs. `experiments.tables.memories` writes the page.
"""

from collections.abc import Mapping
import dataclasses
import itertools
import json
import pathlib
import shutil
from typing import Any, Literal

from absl import logging
import jax
import numpy as np

from experiments import compare, referee
from experiments.engine import command, configs, program, reports, rooms
from experiments.retro import task as retro_task
from retrieval import settings
from retrieval.search import names
from retrieval.store import checkpoints, locks
from retro_jax.data import folder as retro_data, windows
from retro_jax.evaluation import leakage, reached
from retro_jax.nn import presets
from retro_jax.trained import loading

LOCK = 'arena'  # role of the one writer of a seed's folder
_MADE = 'made.json'  # of a finished arm: from what, in how many seconds
_WEIGHT_BYTES = 4
_JUDGED = 4  # documents and places of each, by the referee


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
  """The arms and what they may cost."""

  task: Literal['arena'] = 'arena'
  data_dir: str = ''  # prepared data
  corpus: str = 'corpus'  # name of the raw values
  output: str = ''  # folder of the raw values; '': --workdir
  # what no arm may have more of: bytes, FLOPs or CPU seconds of `budget`
  equal: Literal['bytes', 'flops', 'seconds'] = 'bytes'
  budget: settings.Positive = 1e7
  # name -> texts
  arms: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  against: str = 'baseline'  # the arm that others are compared with
  fields: tuple[str, ...] = ()  # FIELD=VALUE of every arm
  splits: tuple[str, ...] = ('test', 'fresh')
  seed: settings.Seed = 0  # the first
  num_seeds: settings.Size = 5

  def __post_init__(self):
    settings.check(self)
    for name in (self.against, *self.arms):
      arm_of(self, name)
    if self.against.startswith('_'):
      raise settings.SettingsError(
        'against', self.against, 'an arm that is shown'
      )


@dataclasses.dataclass(frozen=True)
class Arm:
  """A model and how it is read."""

  name: str
  model: str  # arm that trains it: itself, or the one of @ARM
  file: str  # of configs/, with its argument
  fields: Mapping[str, str]  # that its commands get

  @property
  def texts(self) -> list[Any]:
    """Texts of its config, for comparison with those of a run."""
    return [self.file, dict(self.fields)]

  @property
  def base(self) -> str:
    """The arm whose run a kNN-LM reads, '' for others."""
    return self.fields.get('knn_lm.model_workdir', '').removeprefix('@')

  @property
  def copies(self) -> bool:
    """Whether n-grams of the neighbors are mixed in."""
    return self.fields.get('evaluate.evaluators') == 'copying'

  @property
  def table(self) -> str:
    """The table of its evaluation, and the row that counts, '' for the first."""
    if self.base:
      return 'knn_lm.json:kNN-LM'
    if self.copies:
      return 'copying.json:with n-grams of neighbors'
    return 'evaluation.json:'


def arm_of(config: Config, name: str, of: tuple[str, ...] = ()) -> Arm:
  """Read an arm, which `of` name in turn; ValueError for what is no other arm."""
  field, others = f'arms.{name}', [x for x in config.arms if x not in of]
  if name not in others:
    raise settings.SettingsError(field, None, f'one of {others}')
  try:
    file, *changes = config.arms[name]
    of_all, changes = (
      dict(x.split('=', 1) for x in y) for y in (config.fields, changes)
    )
  except ValueError:
    expected = 'a config or @ARM, then FIELD=VALUE'
    raise settings.SettingsError(field, config.arms[name], expected) from None
  arm = Arm(name, name, file, of_all | changes)
  if file.startswith('@'):
    other = arm_of(config, file[1:], (*of, name))
    arm = dataclasses.replace(other, name=name, fields=other.fields | changes)
  elif not (configs.FOLDER / f'{file.partition(":")[0]}.py').is_file():
    raise settings.SettingsError(field, file, 'a file of configs/ or @ARM')
  if arm.base:
    arm_of(config, arm.base, (*of, name))
  return arm


class Runs:
  """The runs of a workdir: seed_<seed>/<arm>."""

  def __init__(self, config: Config, workdir: str):
    """Name the folders; DATA is checked before any work."""
    self._config, self._root = config, pathlib.Path(workdir)
    self._data = pathlib.Path(config.data_dir or self._root / 'data')
    for split in ('train', *config.splits):
      retro_data.DataFolder(self._data).chunks(split)
    self.arms = {name: arm_of(config, name) for name in config.arms}
    self.shown = [x for x in self.arms.values() if not x.name.startswith('_')]
    for arm in self.arms.values():
      built = self.build(arm, config.seed)[0]
      if arm.copies or built.retrieval:
        self._size_of_neighbors(built)

  def run_of(self, name: str, seed: int) -> pathlib.Path:
    """Folder of an arm's run."""
    return self._root / f'seed_{seed}' / name

  def build(self, arm: Arm, seed: int, verb: str = '', **more: Any) -> list:
    """Build an arm's config, and the section of a verb from `more`."""
    name, colon, argument = arm.file.partition(':')
    config = configs.load(f'{configs.FOLDER / name}.py{colon}{argument}')
    fields = {'data_dir': str(self._data), 'seed': str(seed), **arm.fields}
    fields |= {f'{verb}.{key}': str(x) for key, x in more.items()}
    overrides = [
      (key, str(self.run_of(x[1:], seed)) if x.startswith('@') else x)
      for key, x in fields.items()
      if verb == 'evaluate' or not key.startswith('evaluate.')
    ]
    cls = rooms.config_class(config.task)
    section = rooms.section(config.task, verb) if verb else None
    return configs.complete(config, overrides, cls, section)

  def call(self, arm: Arm, seed: int, verb: str, folder: pathlib.Path, **more):
    """Run a verb of an arm's room, and release what it compiled."""
    built = self.build(arm, seed, verb, **more)
    run = rooms.function(built[0].task, verb)
    run(built[0], str(folder), *built[1:])
    jax.clear_caches()

  def make(self, arm: Arm, seed: int) -> None:
    """Train an arm, or build its datastore, unless that is done.

    Raises:
      ValueError: where it is done with other texts or another budget.
    """
    for needed in {arm.model, arm.base} - {arm.name, ''}:
      self.make(self.arms[needed], seed)
    folder, arm = self.run_of(arm.name, seed), self._within_budget(arm)
    path, texts = folder / _MADE, arm.texts
    if arm.base:
      made = json.loads((self.run_of(arm.base, seed) / _MADE).read_text())
      texts += made['texts']
    if path.exists():
      made = json.loads(path.read_text())['texts']
      if made != texts:
        raise ValueError(
          f'{folder}: was made from {made}, but config.arms.{arm.name} is '
          f'{texts}: remove the folder, or name another --workdir.'
        )
      return
    logging.info('Arm %s, seed %d: %s.', arm.name, seed, folder)
    began = program.cpu_seconds()
    if arm.base:
      shutil.rmtree(folder, ignore_errors=True)  # all keys are timed together
      self.call(arm, seed, 'prepare', folder)
    elif arm.model == arm.name:
      self.call(arm, seed, 'train', folder)
    made = {'texts': texts, 'seconds': program.cpu_seconds() - began}
    reports.write_json(path, made)

  def _within_budget(self, arm: Arm) -> Arm:
    """Give an arm the steps of a budget of FLOPs or seconds."""
    equal, trained = self._config.equal, self.arms[arm.model]
    if equal == 'bytes' or arm.base or 'num_steps' in trained.fields:
      return arm
    of_step = {'flops': self._step_flops, 'seconds': self._step_seconds}
    steps = max(1, int(self._config.budget / of_step[equal](trained)))
    fields = {**arm.fields, 'num_steps': str(steps)}
    return dataclasses.replace(arm, fields=fields)

  def _step_flops(self, arm: Arm) -> float:
    config = self.build(arm, self._config.seed)[0]
    model = loading.model_config_of(config, self._folder(config))
    k = config.num_neighbors if config.retrieval else 0
    return retro_task.model_fields(config, model, k)['flops_per_step']

  def _step_seconds(self, arm: Arm) -> float:
    """CPU seconds of a step of training, measured once."""
    path = self._root / 'timed' / f'{arm.name}.json'
    with locks.maker(path):
      timed = json.loads(path.read_text()) if path.exists() else {}
      if timed.get('texts') != arm.texts:
        config = self.build(arm, self._config.seed)[0]
        task = retro_task.make_task(config, self._folder(config))
        timed = {'texts': arm.texts, 'seconds': program.time_step(task, config)}
        reports.write_json(path, timed)
    return timed['seconds']

  def _folder(self, config: Any) -> retro_data.DataFolder:
    return retro_data.DataFolder.of(config, self._data)

  def cost(self, arm: Arm, seed: int) -> dict[str, float]:
    """Bytes to keep, and FLOPs and CPU seconds of training."""
    trained = self.arms[arm.base or arm.model]
    config = self.build(trained, seed)[0]
    saved = checkpoints.find(str(self.run_of(trained.name, seed)))
    weights = sum(int(np.prod(x.shape)) for x in jax.tree.leaves(saved.params))
    cost = {
      'weights': _WEIGHT_BYTES * weights,
      'memory': 0,
      'flops': saved.step * self._step_flops(trained),
      'seconds': saved.step * self._step_seconds(trained),
      'steps': saved.step,
    }
    if arm.base:
      folder = self.run_of(arm.name, seed)
      cost['memory'] = reached.files_bytes(folder / 'knn_lm')
      most = self.build(arm, seed)[0].knn_lm.max_documents
      cost['flops'] += self._flops_of_keys(config, most)
      cost['seconds'] += json.loads((folder / _MADE).read_text())['seconds']
    elif arm.copies or config.retrieval:
      cost['memory'] = self._size_of_neighbors(config)
    cost['bytes'] = cost['weights'] + cost['memory']
    return cost

  def _flops_of_keys(self, config: Any, max_documents: int) -> float:
    """FLOPs of the windows that keys are made in; contexts are read again."""
    data, size = self._folder(config), config.sequence_chunks
    documents = windows.find_documents(data.chunks('train'), max_documents)
    read = windows.make_windows(documents, size, max(1, size // 2))
    model = loading.model_config_of(config, data)
    m = model.chunk_length
    return read.count.sum() * m * presets.flops_per_token(model, size * m)

  def _size_of_neighbors(self, config: Any) -> int:
    """Bytes of what finds and holds neighbors of a new text."""
    source = config.neighbors.source
    if source not in names.WORDS:
      expected = f'one of {names.WORDS}, without an embedder that costs, too'
      raise settings.SettingsError('neighbors.source', source, expected)
    data = self._folder(config)
    words = data.datastore.text_indices(config).words_path(source)
    if not words.is_dir():
      raise FileNotFoundError(
        f'{words}: missing; expected the index of {source}.'
      )
    stores = words, data.path('tokens'), data.path('chunks-train')
    return reached.files_bytes(*stores)

  def nats(self, arm: Arm, seed: int, split: str) -> dict[str, np.ndarray]:
    """Evaluate an arm on a split, unless that is done: nats and bytes, [D]."""
    path = self.run_of(arm.name, seed) / f'{split}.npz'
    if not path.exists():
      run = self.run_of(arm.model, seed)
      # The referee reads the tables of mixtures beside the run.
      out = run if arm.base or arm.copies else path.with_suffix('')
      more = {'workdir': run, 'split': split, 'max_documents': 0}
      self.call(arm, seed, 'evaluate', out, **more)
      result = compare.read(f'{arm.name}={out}/{arm.table}')
      arrays = {'nats': result.values[''], 'bytes': result.num_bytes}
      reports.write_arrays(path, arrays)
    with np.load(path) as arrays:
      return dict(arrays)

  def failed(self, arm: Arm, seed: int) -> list[str]:
    """Return the referee's verdicts that an arm fails, once it is evaluated."""
    path = self.run_of(arm.name, seed) / 'referee.json'
    if not path.exists():
      run = str(self.run_of(arm.model, seed))
      mixture = 'copying' if arm.copies else ''
      report = referee.judge(
        referee.Place(workdir=run, data_dir=str(self._data), mixture=mixture),
        split=self._config.splits[0],
        max_documents=_JUDGED,
        num_places=_JUDGED,
      )
      logging.info('Arm %s:\n%s', arm.name, report)
      reports.write_json(path, report.failed)
    return json.loads(path.read_text())

  def overlap(self, split: str) -> np.ndarray:
    """Mean r(C) of the chunks of each document, [D], with their stored neighbors."""
    config = self.build(self.arms[self._config.against], 0)[0]
    k = min(leakage.NUM_NEIGHBORS, config.neighbors.stored)
    reader = loading.chunk_reader(config, self._folder(config), split, k)
    documents = windows.find_documents(reader.stores.chunks)
    ids, document = windows.chunk_ids(documents)
    total = np.bincount(document, leakage.overlaps(reader, ids))
    return total / np.bincount(document)

  def finished(self) -> list[int]:
    """Return the seeds of which all arms are evaluated, whoever ran them."""
    files = [
      f'{x.name}/{split}.npz'
      for x in self.shown
      for split in self._config.splits
    ]
    return sorted(
      int(folder.name.removeprefix('seed_'))
      for folder in self._root.glob('seed_*')
      if folder.name.removeprefix('seed_').isdecimal()
      and all((folder / file).exists() for file in files)
    )

  def report(self) -> pathlib.Path:
    """Write raw values and costs of all finished seeds."""
    arrays, c, seeds = {}, self._config, self.finished()
    for arm, seed in itertools.product(self.shown, seeds):
      self.make(arm, seed)  # refuses other texts
    for split in c.splits:
      for arm in self.shown:
        each = [self.nats(arm, seed, split) for seed in seeds]
        sizes = arrays.setdefault(f'{split}/bytes', each[0]['bytes'])
        if not all(np.array_equal(x['bytes'], sizes) for x in each):
          expected = f'an arm that is evaluated on all documents of {split}'
          raise settings.SettingsError(f'arms.{arm.name}', None, expected)
        arrays[f'{split}/{arm.name}'] = np.stack([x['nats'] for x in each])
      arrays[f'{split}/overlap'] = self.overlap(split)
    rows = {
      arm.name: {
        'texts': c.arms[arm.name],
        'costs': [self.cost(arm, seed) for seed in seeds],
        'failed': self.failed(arm, seeds[0]),
      }
      for arm in self.shown
    }
    facts = {x: getattr(c, x) for x in ('corpus', 'equal', 'budget', 'against')}
    path = pathlib.Path(c.output or self._root) / f'{c.corpus}_{c.equal}.json'
    reports.write_arrays(path.with_suffix('.npz'), arrays)
    return reports.write_json(path, {**facts, 'seeds': seeds, 'arms': rows})


def arena(config: Config, workdir: str) -> None:
  """Run all arms of all seeds, and report after each."""
  runs = Runs(config, workdir)
  for seed in range(config.seed, config.seed + config.num_seeds):
    with locks.writer(runs.run_of('', seed), LOCK):
      for arm in runs.arms.values():
        runs.make(arm, seed)
        for split in config.splits if arm in runs.shown else ():
          runs.nats(arm, seed, split)
    with locks.maker(pathlib.Path(workdir, 'report')):  # the last has all seeds
      logging.info('Seed %d is finished: %s.', seed, runs.report())


if __name__ == '__main__':
  command.main('arena')
