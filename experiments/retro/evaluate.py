# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure bits per byte of whole held-out documents, with and without retrieval.

  python -m experiments.retro.evaluate --config=configs/<name>.py \
    --workdir=DIR --config.evaluate.baseline_workdir=BASELINE

Evaluates the newest checkpoint of DIR with retrieval on for every k of
--config.evaluate.num_neighbors, with retrieval off, and with shuffled neighbors (a
control: each chunk gets the neighbors of another document's chunk). The baseline
is evaluated if its folder is given. --config.evaluate.oracle adds a diagnostic
that is not a score: each chunk gets itself with its continuation, which shows how
well the model copies. Prints a table and writes DIR/evaluation.json.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
from typing import Any

from absl import logging
from flax import linen as nn
import jax
from jax.sharding import NamedSharding, PartitionSpec as P
import ml_collections

from experiments.engine import command, progress, reports
from experiments.retro import settings as settings_lib
from retrieval.nn import sharding
from retrieval.questions import bootstrap
from retro_jax.data import pipeline
from retro_jax.evaluation import evaluate
from retro_jax.nn import initial
from retro_jax.trained import language_model, loading

Config = ml_collections.ConfigDict
FILE = 'evaluation.json'
OFF, BASELINE = 'RETRO off', 'baseline'  # names of rows
Mode = tuple[str, str, int]  # name, retrieval, k


@dataclasses.dataclass(frozen=True)
class Result:
  """One row of the table."""

  name: str  # model and kind of retrieval
  retrieval: str  # 'on', 'off', 'shuffled' or 'oracle'
  num_neighbors: int  # k, 0 without retrieval
  step: int  # number of the checkpoint
  evaluation: evaluate.Evaluation  # measurements of the documents
  # bits per byte minus those of the same RETRO with retrieval off
  minus_off: bootstrap.Interval | None = None
  # and minus those of the baseline
  minus_baseline: bootstrap.Interval | None = None

  def to_json(self) -> dict[str, Any]:
    """The row as JSON values."""
    differences = {
      'minus_off': self.minus_off,
      'minus_baseline': self.minus_baseline,
    }
    return {
      'name': self.name,
      'retrieval': self.retrieval,
      'num_neighbors': self.num_neighbors,
      'step': self.step,
      **self.evaluation.summary(),
      **{
        name: interval and dataclasses.asdict(interval)
        for name, interval in differences.items()
      },
    }


@contextlib.contextmanager
def scorer(
  trained: loading.TrainedRetro,
  config: Config,
  score: Callable[..., jax.Array] = evaluate.score_chunks,
) -> Iterator[evaluate.ScoreFn]:
  """Yield a compiled score function; parameters are sharded over the mesh."""
  mesh, rules = mesh_and_rules(config)
  rows = sharding.batch_sharding(mesh, config.evaluate.batch_size)
  with on_mesh(score, trained, mesh, rules) as compiled:
    yield lambda row: compiled(sharding.global_batch(row, rows))


@contextlib.contextmanager
def on_mesh(
  function: Callable[..., Any],
  trained: loading.TrainedRetro,
  mesh,
  rules,
  replicate: bool = True,
) -> Iterator[Callable[..., Any]]:
  """Yield `function(model, params, batch)` compiled, as a function of the batch.

  Args:
    replicate: whether every device gets the whole result; otherwise it stays
      divided by rows.
  """
  shardings, compiled = _compile(
    function, trained.model, mesh, rules, replicate
  )
  params = jax.device_put(trained.params, shardings)
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    yield functools.partial(compiled, params)


@functools.cache
def _compile(function, model, mesh, rules, replicate):
  """Shardings of the parameters, and the function, compiled once."""
  shardings = initial.param_shardings(model.config, mesh, rules)
  rows = NamedSharding(mesh, P(sharding.BATCH_AXES))
  compiled = jax.jit(
    functools.partial(function, model),
    in_shardings=(shardings, rows),
    out_shardings=sharding.replicated(mesh) if replicate else rows,
  )
  return shardings, compiled


def mesh_and_rules(config: Config, devices: Sequence[jax.Device] | None = None):
  """The mesh of a config over all or some devices, and its sharding rules."""
  mesh = sharding.make_mesh(**config.mesh, devices=devices)
  return mesh, sharding.make_rules(config.get('sharding_rules'))


def numbers_of_neighbors(settings: Config) -> tuple[int, ...]:
  """Return `evaluate.num_neighbors` of a config, one or more numbers above 0."""
  ks = tuple(settings.num_neighbors)
  if not ks or min(ks) < 1:
    raise ValueError(
      f'evaluate.num_neighbors {ks}: expected one or more numbers above 0.'
    )
  return ks


def on_and_off(
  trained: loading.TrainedRetro, settings: Config, most: int | None = 1
) -> list[Mode]:
  """Modes with retrieval on for the first `most` numbers of neighbors, and off."""
  if not trained.model.config.cca_layers:
    return [(BASELINE, 'off', 0)]
  ks = numbers_of_neighbors(settings)[:most]
  return [*((f'RETRO, k={k}', 'on', k) for k in ks), (OFF, 'off', 0)]


def _modes(trained: loading.TrainedRetro, settings: Config) -> list[Mode]:
  """Every row for one model."""
  modes = on_and_off(trained, settings, None)
  if trained.model.config.cca_layers:
    k = settings.num_neighbors[0]
    if settings.shuffled:
      modes.append((f'RETRO shuffled, k={k}', 'shuffled', k))
    if settings.oracle:
      modes.append(('RETRO oracle', 'oracle', 1))
  return modes


def stride_chunks(settings: Config, sequence_chunks: int) -> int:
  """Number of chunks between the starts of windows; 0 is half a sequence.

  Args:
    settings: section `evaluate` of a config: stride_chunks, or overlap, the
      share of a sequence that is context only (Wikitext103: 0.75 or 0.875).

  Raises:
    ValueError: for both at once, or an overlap that is not a whole number of
      chunks.
  """
  overlap = settings.overlap
  if overlap is None:
    return settings.stride_chunks
  if settings.stride_chunks:
    raise ValueError(
      f'evaluate.overlap {overlap} and evaluate.stride_chunks '
      f'{settings.stride_chunks}: expected one of them.'
    )
  stride = (1 - overlap) * sequence_chunks
  if not 0 <= overlap < 1 or abs(stride - round(stride)) > 1e-6:
    raise ValueError(
      f'evaluate.overlap {overlap}: expected 0 or above, less than 1, and a '
      f'whole number of the {sequence_chunks} chunks of a sequence.'
    )
  return round(stride)


def measure(
  score: evaluate.ScoreFn,
  reader: pipeline.ChunkReader,
  trained: loading.TrainedRetro,
  config: Config,
  retrieval: str,
  name: str,
) -> evaluate.Evaluation:
  """Run `evaluate.evaluate` with the config's settings and a progress bar."""
  settings = config.evaluate
  with progress.bar(f'evaluate {name}', 'chunks') as update:
    return evaluate.evaluate(
      score,
      reader,
      sequence_chunks=trained.config.sequence_chunks,
      stride_chunks=stride_chunks(settings, trained.config.sequence_chunks),
      batch_size=settings.batch_size,
      retrieval=retrieval,
      max_documents=settings.max_documents,
      seed=config.seed,
      process_index=jax.process_index(),
      process_count=jax.process_count(),
      progress=update,
    )


def check(
  trained: loading.TrainedRetro,
  config: Config,
  modes: Sequence[Mode] | None = None,
) -> dict[int, pipeline.ChunkReader]:
  """Raise the errors of `evaluate_trained` before any work.

  Returns:
    k -> reader of the split with k neighbors.
  """
  settings = config.evaluate
  stride_chunks(settings, trained.config.sequence_chunks)
  mesh, _ = mesh_and_rules(config)
  sharding.batch_sharding(mesh, settings.batch_size)
  readers = {
    k: loading.chunk_reader(trained.config, trained.data, settings.split, k)
    for k in {k for _, _, k in modes or _modes(trained, settings)}
  }
  _ = [reader.stores for reader in readers.values()]  # opened and compared
  return readers


def evaluate_trained(
  trained: loading.TrainedRetro,
  config: Config,
  modes: Sequence[Mode] | None = None,
  score: Callable[..., jax.Array] = evaluate.score_chunks,
) -> list[Result]:
  """Evaluate a RETRO or a baseline in some modes, by default all.

  Raises:
    FileNotFoundError: for a split without stores.
    ValueError: for settings that do not fit data, model or devices.
  """
  modes = modes or _modes(trained, config.evaluate)
  readers, results = check(trained, config, modes), []
  with scorer(trained, config, score) as compiled:
    for name, retrieval, k in modes:
      found = measure(compiled, readers[k], trained, config, retrieval, name)
      results.append(Result(name, retrieval, k, trained.step, found))
  return compare(results)


def compare(results: Sequence[Result]) -> list[Result]:
  """Compare results with RETRO[OFF] and the baseline among them."""
  others = {x.name: x for x in results}

  def minus(x: Result, name: str) -> bootstrap.Interval | None:
    other = others.get(name)
    if other is None or x is other:
      return None
    return evaluate.compare(x.evaluation, other.evaluation)

  return [
    dataclasses.replace(
      x, minus_off=minus(x, OFF), minus_baseline=minus(x, BASELINE)
    )
    for x in results
  ]


def load(
  config: Config,
  workdir: str | os.PathLike,
  baseline_workdir: str | os.PathLike = '',
  on_mesh: bool = True,
) -> tuple[loading.TrainedRetro, loading.TrainedRetro | None]:
  """Load the newest checkpoints of a run and of its baseline, if one is named.

  Args:
    config: `data_dir` is the data folder, by default the one of the training;
      `mesh` and `sharding_rules` place the parameters.
    workdir: folder of a RETRO's run, or of any run.
    baseline_workdir: folder of the baseline's run; the baseline reads the same data.
    on_mesh: whether the parameters are sharded over the config's mesh.

  Raises:
    FileNotFoundError: for a folder without a checkpoint or without data.
    ValueError: when the baseline retrieves.
  """
  placed = {}
  if on_mesh:
    placed['mesh'], placed['rules'] = mesh_and_rules(config)
  settings = config.evaluate
  trained = language_model.load(
    workdir,
    config.data_dir,
    source=settings.source,
    reranker=settings.reranker,
    step=settings.step,
    **placed,
  )
  if not baseline_workdir:
    return trained, None
  baseline = language_model.load(
    baseline_workdir,
    str(trained.data.root),
    step=settings.baseline_step,
    **placed,
  )
  if baseline.model.config.cca_layers:
    raise ValueError(
      f'{baseline_workdir}: evaluate.baseline_workdir names a model that retrieves; '
      'expected one trained with the baseline config.'
    )
  return trained, baseline


def evaluate_workdir(
  config: Config,
  workdir: str | os.PathLike,
  baseline_workdir: str | os.PathLike = '',
) -> list[Result]:
  """Evaluate the checkpoints that the config names; see `load`.

  Returns:
    The rows of the table, compared with each other.
  """
  trained, baseline = load(config, workdir, baseline_workdir)
  results = evaluate_trained(trained, config)
  if baseline is not None:
    results = compare(results + evaluate_trained(baseline, config))
  return results


def _print(results: Sequence[Result]) -> None:
  one = results[0].evaluation.summary()
  steps = sorted({result.step for result in results})
  reports.print_table(
    ('model', 'bits/byte', 'minus off', 'interval', 'token ppl', 'word ppl'),
    [(x.name, *cells(x.evaluation, x.minus_off)) for x in results],
    title=f'{one["documents"]:,} held-out documents, {one["tokens"]:,} tokens, '
    f'{one["bytes"]:,} bytes, step {" and ".join(f"{s:,}" for s in steps)}',
    caption='Minus off: bits per byte less those of RETRO with retrieval off; '
    'interval: 95 % of a paired bootstrap over documents.',
  )
  compared = [x for x in results if x.minus_baseline]
  if compared:
    reports.print_table(
      ('model', 'bits/byte', 'minus baseline', 'interval'),
      [(x.name, *cells(x.evaluation, x.minus_baseline)[:3]) for x in compared],
    )


def cells(
  found: evaluate.Evaluation, difference: bootstrap.Interval | None
) -> tuple[str, ...]:
  """Bits per byte, a difference, its interval and perplexities for a table.

  Args:
    difference: of the bits per byte; None leaves its two cells empty.
  """
  return (
    f'{found.bits_per_byte:.4f}',
    f'{difference.mean:+.4f}' if difference else '',
    f'{difference.low:+.4f} {difference.high:+.4f}' if difference else '',
    *(
      f'{x:,.2f}' if x < 1e5 else f'{x:.3g}'
      for x in (found.token_perplexity, found.word_perplexity)
    ),
  )


def write(
  results: Sequence[Result], config: Config, workdir: str | os.PathLike
) -> pathlib.Path:
  """Write evaluation.json and return its path."""
  content = {
    'rows': [result.to_json() for result in results],
    'settings': json.loads(config.evaluate.to_json()),
  }
  return reports.write_json(pathlib.Path(workdir) / FILE, content)


def run(config: Config, workdir: str) -> None:
  """Evaluates, prints the table and writes evaluation.json."""
  source = config.evaluate.workdir or workdir
  logging.info('Evaluating %s.', source)
  results = evaluate_workdir(config, source, config.evaluate.baseline_workdir)
  if jax.process_index():
    return
  path = write(results, config, workdir)
  _print(results)
  logging.info('The figures are in %s.', path)


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=FILE)
