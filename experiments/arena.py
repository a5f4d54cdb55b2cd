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
  flops    of training, by `presets.flops_per_token`; a kNN-LM's keys count, too
  seconds  of training, of a CPU; a kNN-LM's keys count, too

Under flops and seconds an arm without num_steps takes the steps that the budget
allows. DATA is a folder of experiments.prepare with neighbors of a source of words, since
an embedder's bytes and FLOPs would not count; its splits are --config.splits.

A killed command goes on when run again. experiments.referee judges each arm's first
seed. After each seed OUTPUT/<corpus>_<equal>.npz has the nats of each document,
SPLIT/ARM [seeds, documents], its bytes, and its mean r(C), SPLIT/overlap; the .json
beside it has the costs. `experiments.tables.memories` writes the page.
"""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import json
import pathlib
import time
from typing import Any, Literal

from absl import logging
import jax
import numpy as np

from experiments import compare, referee
from experiments.engine import command, configs, reports, rooms
from experiments.retro import task as retro_task
from retrieval import settings
from retrieval.search import names
from retrieval.store import array_store, checkpoints
from retro_jax.data import folder as retro_data, windows
from retro_jax.evaluation import leakage, reached
from retro_jax.nn import presets
from retro_jax.trained import loading

FILE = 'arena.json'  # lock of a workdir
_MADE = 'made.json'  # what a finished run was made from
_SECONDS = 'seconds.json'
_WEIGHT_BYTES = 4
_TIMED_STEPS = 10, 40
_JUDGED = 4  # documents and places of each, by the referee
# Tables of results, and the row that counts, None for the first.
_TABLES = {
  'copying': ('copying.json', 'with n-grams of neighbors'),
  'knn_lm': ('knn_lm.json', 'kNN-LM'),
  'retro': ('evaluation.json', ''),
}


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
    """Check the fields."""
    settings.check(self)
    for name in (self.against, *self.arms):
      arm_of(self, name)


@dataclasses.dataclass(frozen=True)
class Arm:
  """A model and how it is read."""

  name: str
  model: str  # arm that trains it: itself, or the one of @ARM
  file: str  # of configs/, with its argument
  fields: Mapping[str, str]  # that all of its commands get
  evaluation: Mapping[str, str]  # of config.evaluate

  @property
  def base(self) -> str:
    """The arm whose run a kNN-LM reads, '' for others."""
    return self.fields.get('knn_lm.model_workdir', '').removeprefix('@')

  @property
  def copies(self) -> bool:
    """Whether n-grams of the neighbors are mixed in."""
    return self.evaluation.get('evaluators') == 'copying'


def arm_of(config: Config, name: str) -> Arm:
  """Read an arm; an unknown name or a text of another form is a ValueError."""
  field = f'arms.{name}'
  if name not in config.arms:
    raise settings.SettingsError(field, None, f'one of {[*config.arms]}')
  texts = config.arms[name]
  pairs = [x.partition('=') for x in (*config.fields, *texts[1:])]
  if not texts or not all(equals for _, equals, _ in pairs):
    raise settings.SettingsError(
      field, texts, 'a config or @ARM, then FIELD=VALUE'
    )
  given = {key: value for key, _, value in pairs}
  evaluation = {
    key.removeprefix('evaluate.'): given.pop(key)
    for key in [*given]
    if key.startswith('evaluate.')
  }
  arm = Arm(name, name, texts[0], given, evaluation)
  if texts[0].startswith('@'):
    other = arm_of(config, texts[0][1:])
    fields = {**other.fields, **given}
    arm = Arm(name, other.model, other.file, fields, evaluation)
  elif not (configs.FOLDER / f'{texts[0].partition(":")[0]}.py').is_file():
    raise settings.SettingsError(field, texts[0], 'a file of configs/ or @ARM')
  if arm.base:
    arm_of(config, arm.base)
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

  def run_of(self, name: str, seed: int) -> pathlib.Path:
    """Folder of an arm's run."""
    return self._root / f'seed_{seed}' / name

  def build(self, arm: Arm, seed: int, verb: str = '', **more: Any) -> list:
    """Build an arm's config, and the section of a verb from `more`."""
    name, colon, argument = arm.file.partition(':')
    config = configs.load(f'{configs.FOLDER / name}.py{colon}{argument}')
    section = rooms.section(config.task, verb) if verb else None
    fields = {'data_dir': str(self._data), 'seed': str(seed), **arm.fields}
    if verb == 'evaluate':
      more = {**arm.evaluation, **more}
    if section:
      fields |= {f'{verb}.{key}': str(x) for key, x in more.items()}
    overrides = [
      (key, str(self.run_of(x[1:], seed)) if x.startswith('@') else x)
      for key, x in fields.items()
    ]
    cls = rooms.config_class(config.task)
    return configs.complete(config, overrides, cls, section)

  def call(self, arm: Arm, seed: int, verb: str, folder: pathlib.Path, **more):
    """Run a verb of an arm's room, and release what it compiled."""
    built = self.build(arm, seed, verb, **more)
    run = rooms.function(built[0].task, verb)
    run(built[0], str(folder), *built[1:])
    jax.clear_caches()

  def make(self, arm: Arm, seed: int) -> None:
    """Train an arm, or build its datastore, unless that is done."""
    folder = self.run_of(arm.name, seed)
    for needed in {arm.model, arm.base} - {arm.name, ''}:
      self.make(self.arms[needed], seed)
    if arm.model != arm.name or self._is_made(arm, folder):
      return
    logging.info('Arm %s, seed %d: %s.', arm.name, seed, folder)
    folder.mkdir(parents=True, exist_ok=True)
    made = _texts(arm)
    if not arm.base and 'num_steps' not in arm.fields:
      arm = self._within_budget(arm)
    with _count_seconds(folder):
      self.call(arm, seed, 'prepare' if arm.base else 'train', folder)
    reports.write_json(folder / _MADE, made)

  def _is_made(self, arm: Arm, folder: pathlib.Path) -> bool:
    """Whether an arm has run; ValueError if it ran with other texts."""
    path = folder / _MADE
    if not path.exists():
      return False
    texts = json.loads(path.read_text())
    if texts != _texts(arm):
      raise ValueError(
        f'{folder}: was made from {texts}, but config.arms.{arm.name} has '
        f'{_texts(arm)}: remove the folder, or name another --workdir.'
      )
    return True

  def _within_budget(self, arm: Arm) -> Arm:
    """Give an arm the steps of a budget of FLOPs or seconds."""
    if self._config.equal == 'bytes':
      return arm
    step = self._step_flops(arm)
    if self._config.equal == 'seconds':
      step = self._step_seconds(arm)
    steps = max(1, int(self._config.budget / step))
    return _with(arm, num_steps=steps)

  def _step_flops(self, arm: Arm) -> float:
    config = self.build(arm, 0)[0]
    model = loading.model_config_of(config, self._folder(config))
    neighbors = config.num_neighbors if config.retrieval else 0
    fields = retro_task.model_fields(config, model, neighbors)
    return fields['flops_per_step']

  def _step_seconds(self, arm: Arm) -> float:
    """CPU seconds of a step, from two short runs, which compile the same."""
    spent = []
    for steps in _TIMED_STEPS:
      folder = self._root / 'timed' / f'{arm.name}_{steps}'
      warmup = {'optimizer.warmup_steps': 1}
      if steps not in checkpoints.numbers(checkpoints.folder_of(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        short = _with(arm, num_steps=steps, eval_batches=0, **warmup)
        with _count_seconds(folder):
          self.call(short, 0, 'train', folder)
      spent.append(_seconds(folder))
    return (spent[1] - spent[0]) / (_TIMED_STEPS[1] - _TIMED_STEPS[0])

  def _folder(self, config: Any) -> retro_data.DataFolder:
    return retro_data.DataFolder.of(config, self._data)

  def cost(self, arm: Arm, seed: int) -> dict[str, float]:
    """Bytes to keep, and FLOPs and CPU seconds of training."""
    trained = self.arms[arm.base or arm.model]
    run, config = self.run_of(trained.name, seed), self.build(trained, seed)[0]
    saved = checkpoints.find(str(run))
    weights = sum(int(np.prod(x.shape)) for x in jax.tree.leaves(saved.params))
    cost = {
      'weights': _WEIGHT_BYTES * weights,
      'memory': 0,
      'flops': saved.step * self._step_flops(trained),
      'seconds': _seconds(run),
      'steps': saved.step,
    }
    if arm.base:
      folder = self.run_of(arm.name, seed)
      pairs = array_store.Store.open(folder / 'knn_lm/datastore', 'key-values')
      length = config.sequence_chunks * config.model.chunk_length
      model = loading.model_config_of(config, self._folder(config))
      forward = presets.flops_per_token(model, length)
      cost['memory'] = reached.files_bytes(folder / 'knn_lm')
      cost['flops'] += len(pairs.array('keys')) * forward
      cost['seconds'] += _seconds(folder)
    elif arm.copies or config.retrieval:
      cost['memory'] = self._size_of_neighbors(config)
    cost['bytes'] = cost['weights'] + cost['memory']
    return cost

  def _size_of_neighbors(self, config: Any) -> int:
    """Bytes of what finds and holds neighbors of a new text."""
    source = config.neighbors.source
    if source not in names.WORDS:
      expected = f'one of {names.WORDS}, without an embedder that costs, too'
      raise settings.SettingsError('neighbors.source', source, expected)
    patterns = 'tokens', 'chunks-train', f'sparse-{source}-*'
    return reached.files_bytes(
      *(x for p in patterns for x in self._data.glob(p))
    )

  def nats(self, arm: Arm, seed: int, split: str) -> dict[str, np.ndarray]:
    """Evaluate an arm on a split, unless that is done: nats and bytes, [D]."""
    folder = self.run_of(arm.name, seed)
    path = folder / f'{split}.npz'
    if not path.exists():
      kind = 'knn_lm' if arm.base else 'copying' if arm.copies else 'retro'
      table, row = _TABLES[kind]
      out, more = folder / split, {'split': split, 'max_documents': 0}
      run = self.run_of(arm.model, seed)
      if (
        arm.base or arm.copies
      ):  # the referee reads their tables beside the run
        out = run
      if not arm.base:
        more['workdir'] = run
      self.call(arm, seed, 'evaluate', out, **more)
      result = compare.read(f'{arm.name}={out / table}:{row}')
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

  def report(self, seeds: int) -> pathlib.Path:
    """Write raw values and costs of so many seeds."""
    arrays, first = {}, self._config.seed
    shown = [x for x in self.arms.values() if not x.name.startswith('_')]
    runs = range(first, first + seeds)
    for split in self._config.splits:
      for arm in shown:
        each = [self.nats(arm, seed, split) for seed in runs]
        arrays[f'{split}/{arm.name}'] = np.stack([x['nats'] for x in each])
        arrays[f'{split}/bytes'] = each[0]['bytes']
      arrays[f'{split}/overlap'] = self.overlap(split)
    c = self._config
    content = {
      'corpus': c.corpus,
      'equal': c.equal,
      'budget': c.budget,
      'against': c.against,
      'seeds': [*runs],
      'planned': c.num_seeds,
      'arms': {
        arm.name: {
          'texts': c.arms[arm.name],
          'costs': [self.cost(arm, seed) for seed in runs],
          'failed': self.failed(arm, first),
        }
        for arm in shown
      },
    }
    path = pathlib.Path(c.output or self._root) / f'{c.corpus}_{c.equal}.json'
    reports.write_arrays(path.with_suffix('.npz'), arrays)
    return reports.write_json(path, content)


def _with(arm: Arm, **fields: Any) -> Arm:
  text = {key: str(x) for key, x in fields.items()}
  return dataclasses.replace(arm, fields={**arm.fields, **text})


def _texts(arm: Arm) -> list[Any]:
  return [arm.file, dict(sorted(arm.fields.items()))]


@contextlib.contextmanager
def _count_seconds(folder: pathlib.Path) -> Iterator[None]:
  """Add the CPU seconds of a block, also of one that ends early, to seconds.json."""
  began = _seconds(folder) - time.process_time()
  try:
    yield
  finally:
    reports.write_json(folder / _SECONDS, began + time.process_time())


def _seconds(folder: pathlib.Path) -> float:
  path = folder / _SECONDS
  return json.loads(path.read_text()) if path.exists() else 0.0


def arena(config: Config, workdir: str) -> None:
  """Run all arms of all seeds, and report after each."""
  runs = Runs(config, workdir)
  for number in range(config.num_seeds):
    seed = config.seed + number
    for arm in runs.arms.values():
      runs.make(arm, seed)
      for split in () if arm.name.startswith('_') else config.splits:
        runs.nats(arm, seed, split)
    path = runs.report(number + 1)
    logging.info('%d of %d seeds: %s.', number + 1, config.num_seeds, path)


if __name__ == '__main__':
  command.main('arena', writes=FILE)
