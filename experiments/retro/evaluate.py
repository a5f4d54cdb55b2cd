# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Bits per byte of whole held-out documents, with and without retrieval.

  python -m experiments.evaluate --config=configs/<name>.py \
    --workdir=DIR --config.evaluate.baseline_workdir=BASELINE

Evaluates the newest checkpoint of DIR with retrieval on for every k of
--config.evaluate.num_neighbors, with retrieval off, and with shuffled neighbors (a
control: each chunk gets those of another document's chunk), and the baseline if it
is given. --config.evaluate.oracle adds a diagnostic that is not a score: each chunk
gets itself with its continuation, which shows how well the model copies. Prints a
table and writes DIR/evaluation.json.

--config.evaluate.evaluators names other measurements: copying, editing, lambada,
summary (experiments/retro/{copying,examples}.py).
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import functools
import importlib
import os
import pathlib
from typing import Annotated, Any, Literal

from flax import linen as nn
import jax

from experiments.engine import program as program_lib, progress
from experiments.retro import config as config_lib, rows as rows_lib
from retrieval import settings
from retrieval.nn import sharding
from retrieval.search import names
from retro_jax.data import pipeline
from retro_jax.evaluation import evaluate as evaluate_lib
from retro_jax.nn import initial
from retro_jax.trained import language_model, loading

FILE = 'evaluation.json'
# Function of (config, workdir, evaluate) -> its module.
EVALUATORS = {
  'bits_per_byte': 'evaluate',
  'copying': 'copying',
  'editing': 'copying',
  'lambada': 'examples',
  'summary': 'examples',
}
Mode = tuple[str, str, int]  # name, retrieval, k
Number = Annotated[int, settings.Range(0, 2**16)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
  """JSON lines for the evaluators lambada and summary."""

  path: str = ''
  max_examples: settings.Count = 0  # 0: all
  batch_size: settings.Size = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leakage:
  """Leakage: r(C) of the evaluation's chunks (section 2.6 of the paper)."""

  # nearest training chunks that a chunk is compared with
  num_neighbors: Annotated[int, settings.Range(1, 2**16)] = 10
  alphas: tuple[settings.Share, ...] = tuple(i / 8 for i in range(1, 9))
  # tokens shared with the neighbors that are read: lowest of each row
  runs: tuple[settings.SizeOrZero, ...] = (0, 1, 2, 3, 4, 6, 8, 12, 16)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
  """Sweeps at evaluation (Table 14 of the paper)."""

  # of the datastore
  shares: tuple[settings.Share, ...] = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
  # at most neighbors.stored
  num_neighbors: tuple[Number, ...] = (0, 1, 2, 3, 4, 5, 10)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate:
  """Evaluation: whole documents, every token scored once."""

  evaluators: tuple[Literal[*EVALUATORS], ...] = ('bits_per_byte',)
  workdir: str = ''  # '': --workdir
  step: str = ''  # a number, 'best' (by best_metric), or '' for the newest
  baseline_workdir: str = ''
  baseline_step: str = ''
  split: str = 'test'  # valid, or the name of an evaluation set
  source: Literal['', names.Name] = ''  # of the neighbors; '': as trained
  reranker: str = ''  # of `source`, as neighbors.reranker
  num_neighbors: tuple[Annotated[int, settings.Range(1, 2**16)], ...] = (2,)
  shuffled: bool = True
  oracle: bool = False  # a diagnostic: the text to be predicted as neighbor
  # Chunks between the starts of windows; 0: half a sequence.
  stride_chunks: settings.SizeOrZero = 0
  max_documents: settings.Count = 0  # 0: all
  batch_size: settings.Size = 8
  examples: Examples = Examples()
  leakage: Leakage = Leakage()
  sweep: Sweep = Sweep()

  def __post_init__(self):
    """Check the fields, and against each other."""
    settings.check(self)
    if not self.num_neighbors:
      raise ValueError('num_neighbors: expected at least one number.')

  @property
  def k(self) -> int:
    """The first number of neighbors."""
    return self.num_neighbors[0]


@contextlib.contextmanager
def scorer(
  trained: loading.TrainedRetro,
  config: config_lib.Config,
  batch_size: int,
  score: Callable[..., Any] = evaluate_lib.score_chunks,
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


def on_and_off(trained: loading.TrainedRetro, ks: Sequence[int]) -> list[Mode]:
  """Modes with retrieval on for numbers of neighbors, and off."""
  if not trained.model.config.cca_layers:
    return [(rows_lib.BASELINE, 'off', 0)]
  return [*((f'RETRO, k={k}', 'on', k) for k in ks), (rows_lib.OFF, 'off', 0)]


def modes_of(trained: loading.TrainedRetro, evaluate: Evaluate) -> list[Mode]:
  """Every row for one model."""
  modes, k = on_and_off(trained, evaluate.num_neighbors), evaluate.k
  if not trained.model.config.cca_layers:
    return modes
  if evaluate.shuffled:
    modes.append((f'RETRO shuffled, k={k}', 'shuffled', k))
  if evaluate.oracle:
    modes.append(('RETRO oracle', 'oracle', 1))
  return modes


def measure(
  score: Callable[[pipeline.Row], Any],
  reader: pipeline.ChunkReader,
  trained: loading.TrainedRetro,
  evaluate: Evaluate,
  retrieval: str,
  name: str,
  seed: int,
  read: Callable[..., Any] = evaluate_lib.evaluate,
) -> Any:
  """Run `evaluate.evaluate` with the config's settings and a progress bar.

  Args:
    read: a function with the arguments of `evaluate.evaluate`.
  """
  with progress.bar(f'evaluate {name}', 'chunks') as update:
    return read(
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


def open_readers(
  trained: loading.TrainedRetro, evaluate: Evaluate, modes: Sequence[Mode]
) -> dict[int, pipeline.ChunkReader]:
  """Open and compare the stores of the modes: k -> reader of the split."""
  readers = {
    k: loading.chunk_reader(trained.config, trained.data, evaluate.split, k)
    for _, _, k in modes
  }
  for reader in readers.values():
    _ = reader.stores
  return readers


def evaluate_trained(
  trained: loading.TrainedRetro,
  config: config_lib.Config,
  evaluate: Evaluate,
  modes: Sequence[Mode] | None = None,
  score: Callable[..., jax.Array] = evaluate_lib.score_chunks,
) -> list[rows_lib.Row]:
  """Evaluate a RETRO or a baseline in some modes, by default all."""
  modes = modes or modes_of(trained, evaluate)
  readers, rows = open_readers(trained, evaluate, modes), []
  with scorer(trained, config, evaluate.batch_size, score) as compiled:
    for name, retrieval, k in modes:
      found = measure(
        compiled, readers[k], trained, evaluate, retrieval, name, config.seed
      )
      fields = {'retrieval': retrieval, 'num_neighbors': k}
      fields['step'] = trained.step
      rows.append(rows_lib.Row(name=name, evaluation=found, fields=fields))
  return rows


def load(
  config: config_lib.Config,
  evaluate: Evaluate,
  workdir: str | os.PathLike,
  *,
  on_mesh: bool = True,
  data_dir: str | os.PathLike = '',
) -> loading.TrainedRetro:
  """Load a run, `evaluate.workdir` or `workdir`, with the config's embedder.

  Args:
    on_mesh: whether the parameters are sharded over the config's mesh.
    data_dir: default: the config's, or that of the training.
  """
  mesh = rules = None
  if on_mesh:
    mesh, rules = program_lib.mesh_and_rules(config)
  trained = language_model.load(
    evaluate.workdir or workdir,
    str(data_dir) or config.data_dir,
    source=evaluate.source,
    reranker=evaluate.reranker,
    where=config.neighbors.where,
    step=evaluate.step,
    mesh=mesh,
    rules=rules,
  )
  return with_models(trained, config)


def with_models(
  trained: loading.TrainedRetro, config: loading.RunConfig
) -> loading.TrainedRetro:
  """Return a run whose models of retrieval are those of a config, as `merged`."""
  return dataclasses.replace(trained, config=merged(trained.config, config))


def merged(own: Any, given: loading.RunConfig) -> Any:
  """Return a run's config with the embedder of another, and its ColBERT and filter if named."""
  neighbors = dataclasses.replace(
    own.neighbors,
    colbert=given.neighbors.colbert or own.neighbors.colbert,
    where=given.neighbors.where or own.neighbors.where,
  )
  return dataclasses.replace(own, embedder=given.embedder, neighbors=neighbors)


def load_baseline(
  config: config_lib.Config, evaluate: Evaluate, data_dir: str | os.PathLike
) -> loading.TrainedRetro | None:
  """Load the baseline that is named, with the data of the RETRO beside it."""
  workdir = evaluate.baseline_workdir
  if not workdir:
    return None
  alone = dataclasses.replace(
    evaluate,
    workdir=workdir,
    step=evaluate.baseline_step,
    source='',
    reranker='',
  )
  found = load(config, alone, workdir, data_dir=data_dir)
  if found.model.config.cca_layers:
    raise ValueError(
      f'{workdir}: evaluate.baseline_workdir names a model that retrieves; '
      'expected one trained with the baseline config.'
    )
  return found


def bits_per_byte(
  config: config_lib.Config, workdir: str, evaluate: Evaluate
) -> None:
  """Evaluate a run and its baseline; print the table and write evaluation.json."""
  trained = load(config, evaluate, workdir)
  baseline = load_baseline(config, evaluate, trained.data.root)
  rows = evaluate_trained(trained, config, evaluate)
  if baseline is not None:
    rows += evaluate_trained(baseline, config, evaluate)
  if not jax.process_index():
    steps = dict.fromkeys(f'{row.fields["step"]:,}' for row in rows)
    rows_lib.report(
      pathlib.Path(workdir) / FILE,
      rows_lib.compare(rows),
      title=f'Step {" and ".join(steps)}',
      caption='Minus off: bits per byte less those of RETRO with retrieval off. ',
      settings=dataclasses.asdict(evaluate),
    )


def evaluate(
  config: config_lib.Config, workdir: str, evaluate: Evaluate
) -> None:
  """Run the evaluators that are named."""
  for name in evaluate.evaluators:
    module = importlib.import_module(f'experiments.retro.{EVALUATORS[name]}')
    getattr(module, name)(config, workdir, evaluate)
