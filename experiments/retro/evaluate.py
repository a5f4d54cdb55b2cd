# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Bits per byte of whole held-out documents, with and without retrieval.

The newest checkpoint of a workdir, with retrieval on for every k of
config.evaluate.num_neighbors, off, and with shuffled neighbors (a control: each chunk
gets those of another document's chunk); the named baseline; and rows that read other
neighbors (Borgeaud et al. 2021, figures 1 and 5, Tables 13 and 14), whose options are
the fields of `Reading`. Prints a table and writes DIR/evaluation.json, and the nats of
each document to .npz beside it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import importlib
import os
import pathlib
from typing import Annotated, Any, Literal

from flax import linen as nn
import jax

from experiments.engine import (
  configs,
  program as program_lib,
  progress,
  stages,
)
from experiments.retro import config as config_lib, rows as rows_lib
from retrieval import settings
from retrieval.nn import sharding
from retrieval.search import names
from retrieval.text import chunks as chunks_lib
from retro_jax.data import pipeline
from retro_jax.evaluation import evaluate as evaluate_lib
from retro_jax.nn import initial, losses
from retro_jax.trained import language_model, loading

FILE = 'evaluation.json'
# Function of (config, workdir, evaluate) -> its module.
EVALUATORS = {
  'bits_per_byte': 'evaluate',
  'copying': 'copying',
  'lambada': 'examples',
  'summary': 'examples',
  'leakage': 'leakage',
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
  """JSON lines for the evaluators lambada and summary."""

  path: str = ''
  max_examples: settings.Count = 0  # 0: all


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leakage:
  """Leakage: r(C) of the evaluation's chunks (section 2.6 of the paper)."""

  # nearest training chunks that a chunk is compared with
  num_neighbors: Annotated[int, settings.Range(1, 2**16)] = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
  """The neighbors that a model reads."""

  source: str = ''  # '': as trained
  k: settings.Size = 0  # 0: the first of config.evaluate.num_neighbors
  rank: settings.Size = 0  # of the one neighbor that is read; 0: the first k
  part: Literal[*chunks_lib.PARTS] = ''  # '': as trained
  # of the datastore; 0: the neighbors of the data folder
  share: Annotated[float, settings.Range(0, 1, above=True)] = 0.0
  retrieval: Literal[*evaluate_lib.RETRIEVALS] = 'on'

  def __post_init__(self):
    reads = self.retrieval in ('on', 'shuffled')
    if (self.part or self.share or self.rank) and not reads:
      raise ValueError(
        f'part, share and rank are of retrieved neighbors, but {self} reads none.'
      )
    if self.k and self.rank:
      raise ValueError(f'expected k or rank, not both: {self}.')

  def num_neighbors(self, k: int) -> int:
    """Return the neighbors that are looked at, by default k."""
    fixed = {'off': 0, 'oracle': 1}
    return fixed.get(self.retrieval, self.rank or self.k or k)


def _reading(text: str) -> Reading:
  """Parse OPTION=VALUE,OPTION=VALUE."""
  pairs = [x.partition('=')[::2] for x in text.split(',') if text]
  values, hints = dict(pairs), settings.hints(Reading)
  if len(values) < len(pairs):
    raise ValueError(f'rows: {text!r}: expected each option once.')
  return settings.build(
    Reading,
    {k: configs.parse(x, hints.get(k, str)) for k, x in values.items()},
    f'rows: {text!r}',
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate:
  """Evaluation: whole documents, every token scored once."""

  evaluators: tuple[Literal[*EVALUATORS], ...] = ('bits_per_byte',)
  workdir: str = ''  # '': --workdir
  step: str = ''  # a number, 'best' (by best_metric), or '' for the newest
  baseline_workdir: str = ''
  split: str = 'test'  # valid, or the name of an evaluation set
  source: Literal['', names.Name] = ''  # of the neighbors; '': as trained
  reranker: str = ''  # of `source`, as neighbors.reranker
  num_neighbors: tuple[Annotated[int, settings.Range(1, 2**16)], ...] = (2,)
  shuffled: bool = True
  oracle: bool = False  # a diagnostic: the text to be predicted as neighbor
  rows: tuple[str, ...] = ()  # further rows: options of `Reading`
  # Chunks between the starts of windows; 0: half a sequence.
  stride_chunks: settings.SizeOrZero = 0
  max_documents: settings.Count = 0  # 0: all
  batch_size: settings.Size = 8
  examples: Examples = Examples()
  leakage: Leakage = Leakage()

  def __post_init__(self):
    settings.check(self)
    if not self.num_neighbors:
      raise ValueError('num_neighbors: expected at least one number.')
    _ = self.readings

  @property
  def readings(self) -> dict[str, Reading]:
    """The further rows by their texts."""
    return {x: _reading(x) for x in self.rows}

  @property
  def k(self) -> int:
    """The first number of neighbors."""
    return self.num_neighbors[0]


@contextlib.contextmanager
def scorer(
  trained: loading.TrainedRetro,
  config: config_lib.Config,
  batch_size: int,
  score: Callable[..., Any] = losses.batch_nll,
) -> Iterator[Callable[[pipeline.Row], Any]]:
  """Yield `score(model, params, batch)`, compiled, as a function of the batch.

  Parameters and rows are divided over the mesh; every device gets the whole result.
  """
  mesh, rules = program_lib.mesh_and_rules(config)
  rows = sharding.batch_sharding(mesh, batch_size)
  shardings, compiled = _compile(score, trained.model, mesh, rules)
  params = jax.device_put(trained.params, shardings)
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    yield lambda row: compiled(params, sharding.global_batch(row, rows))


@functools.cache
def _compile(function, model, mesh, rules):
  shardings = initial.param_shardings(model.config, mesh, rules)
  rows = sharding.batch_sharding(mesh)
  compiled = jax.jit(
    functools.partial(function, model),
    in_shardings=(shardings, rows),
    out_shardings=sharding.replicated(mesh),
  )
  return shardings, compiled


def on_and_off(
  trained: loading.TrainedRetro, ks: Sequence[int]
) -> dict[str, Reading]:
  """Return rows with retrieval on for numbers of neighbors, and off."""
  off = Reading(retrieval='off')
  if not trained.model.config.cca_layers:
    return {rows_lib.BASELINE: off}
  return {f'RETRO, k={k}': Reading(k=k) for k in ks} | {rows_lib.OFF: off}


def readings_of(
  trained: loading.TrainedRetro, evaluate: Evaluate
) -> dict[str, Reading]:
  """Return every row of one model."""
  rows, k = on_and_off(trained, evaluate.num_neighbors), evaluate.k
  if trained.model.config.cca_layers:
    if evaluate.shuffled:
      rows[f'RETRO shuffled, k={k}'] = Reading(k=k, retrieval='shuffled')
    if evaluate.oracle:
      rows['RETRO oracle'] = Reading(retrieval='oracle')
    rows |= evaluate.readings
  return rows


def open_reader(
  trained: loading.TrainedRetro, evaluate: Evaluate, reading: Reading
) -> pipeline.ChunkReader:
  """Open and compare the stores that a reading needs, without `share`."""
  data, k = trained.data, reading.num_neighbors(evaluate.k)
  if reading.source:
    data = dataclasses.replace(data, source=reading.source)
  reader = loading.chunk_reader(trained.config, data, evaluate.split, k)
  _ = reader.stores
  if reading.rank:
    one = {'num_neighbors': 1, 'skipped_neighbors': reading.rank - 1}
    reader = dataclasses.replace(reader, **one)
  if reading.part:
    reader = dataclasses.replace(reader, neighbor_part=reading.part)
  return reader


def evaluate_trained(
  trained: loading.TrainedRetro,
  config: config_lib.Config,
  evaluate: Evaluate,
  readings: Mapping[str, Reading] | None = None,
  *,
  root: str | os.PathLike = '',
) -> dict[str, evaluate_lib.Evaluation]:
  """Evaluate a RETRO or a baseline; stores are checked before any work.

  Args:
    readings: default `readings_of`.
    root: folder of neighbors in parts of the datastore.
  """
  readings = readings or readings_of(trained, evaluate)
  if any(x.share for x in readings.values()):
    stages.check_alone()  # neighbors are searched and written
  readers = {k: open_reader(trained, evaluate, x) for k, x in readings.items()}
  results = {}
  with scorer(trained, config, evaluate.batch_size) as compiled:
    for name, reading in readings.items():
      reader = readers[name]
      if reading.share:
        k = reading.num_neighbors(evaluate.k)
        with progress.bar(f'neighbors in {name}', 'chunks') as update:
          path = trained.data.datastore.neighbors_in_part(
            root, evaluate.split, reading.share, k, config.seed, update
          )
        reader = dataclasses.replace(reader, neighbors=path)
      how = reading.retrieval, name, config.seed
      results[name] = measure(compiled, reader, trained, evaluate, *how)
  return results


def measure(
  score: Callable[[pipeline.Row], Any],
  reader: pipeline.ChunkReader,
  trained: loading.TrainedRetro,
  evaluate: Evaluate,
  retrieval: str,
  name: str,
  seed: int,
) -> evaluate_lib.Evaluation:
  """Run `evaluate.evaluate` with the config's settings and a progress bar."""
  with progress.bar(f'evaluate {name}', 'chunks') as update:
    return evaluate_lib.evaluate(
      score,
      reader,
      sequence_chunks=trained.config.sequence_chunks,
      stride_chunks=evaluate.stride_chunks,
      batch_size=evaluate.batch_size,
      retrieval=retrieval,
      max_documents=evaluate.max_documents,
      seed=seed,
      process_index=jax.process_index(),
      process_count=jax.process_count(),
      progress=update,
    )


def load(
  config: config_lib.Config,
  evaluate: Evaluate,
  workdir: str | os.PathLike,
  *,
  on_mesh: bool = True,
) -> loading.TrainedRetro:
  """Load a run, `evaluate.workdir` or `workdir`, with the config's embedder.

  Args:
    on_mesh: whether the parameters are sharded over the config's mesh.
  """
  mesh = rules = None
  if on_mesh:
    mesh, rules = program_lib.mesh_and_rules(config)
  trained = language_model.load(
    evaluate.workdir or workdir,
    config.data_dir,
    source=evaluate.source,
    reranker=evaluate.reranker,
    where=config.neighbors.where,
    step=evaluate.step,
    mesh=mesh,
    rules=rules,
  )
  return loading.with_models(trained, config)


def load_runs(
  config: config_lib.Config,
  evaluate: Evaluate,
  workdir: str | os.PathLike,
  *,
  on_mesh: bool = True,
) -> dict[str, loading.TrainedRetro]:
  """Load a run, as `load`, and the named baseline with its data, by workdir."""
  trained = load(config, evaluate, workdir, on_mesh=on_mesh)
  runs = {str(evaluate.workdir or workdir): trained}
  if baseline := evaluate.baseline_workdir:
    config = dataclasses.replace(config, data_dir=str(trained.data.root))
    run = load(config, Evaluate(), baseline, on_mesh=on_mesh)
    if run.model.config.cca_layers:
      raise ValueError(
        f'{baseline}: evaluate.baseline_workdir names a model that retrieves; '
        'expected one trained with the baseline config.'
      )
    runs[baseline] = run
  return runs


def bits_per_byte(
  config: config_lib.Config, workdir: str, evaluate: Evaluate
) -> None:
  """Evaluate a run and its baseline; print the table and write evaluation.json."""
  rows = []
  for run in load_runs(config, evaluate, workdir).values():
    readings = readings_of(run, evaluate)
    results = evaluate_trained(run, config, evaluate, readings, root=workdir)
    for name, result in results.items():
      reading = readings[name]
      facts = {k: x for k, x in vars(reading).items() if x and k != 'k'}
      facts['num_neighbors'] = reading.num_neighbors(evaluate.k)
      rows.append(rows_lib.of(name, result, step=run.step, **facts))
  if not jax.process_index():
    steps = dict.fromkeys(f'{row.facts["step"]:,}' for row in rows)
    rows_lib.report(
      pathlib.Path(workdir) / FILE,
      rows,
      {'minus_off': rows_lib.OFF, 'minus_baseline': rows_lib.BASELINE},
      title=f'Step {" and ".join(steps)}',
      caption='Minus off: bits per byte less those of RETRO with retrieval off. ',
      settings=dataclasses.asdict(evaluate),
    )


def evaluate(
  config: config_lib.Config, workdir: str, options: Evaluate
) -> None:
  """Run the evaluators that are named."""
  for name in options.evaluators:
    module = importlib.import_module(f'experiments.retro.{EVALUATORS[name]}')
    getattr(module, name)(config, workdir, options)
