# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Bits per byte of whole held-out documents, with and without retrieval.

  python -m experiments.retro.evaluate --config=configs/<name>.py \
    --workdir=DIR --config.evaluate.baseline_workdir=TWIN

Evaluates the newest checkpoint of DIR: retrieval on for every k of
--config.evaluate.num_neighbors, off, and shuffled (a control: each chunk gets the
neighbors of another document's chunk), and the baseline if its folder is given.
--config.evaluate.oracle adds a diagnostic that is no score: each chunk gets
itself with its continuation, which shows how well the model copies. Prints a
table and writes DIR/evaluation.json.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import json
import math
import os
import pathlib
from typing import Any

from absl import logging
from flax import linen as nn
import jax
import ml_collections
import rich.box
import rich.table

from experiments.engine import command
from experiments.engine import progress
from experiments.retro import task as retro_task
from retrieval.nn import sharding
from retrieval.questions import bootstrap
from retrieval.store import store
from retro_jax.data import pipeline
from retro_jax.evaluation import evaluate

FILE = 'evaluation.json'


@dataclasses.dataclass(frozen=True)
class Result:
  """One row of the table.

  Attributes:
    name: what was evaluated.
    retrieval: 'on', 'off', 'shuffled' or 'oracle'.
    num_neighbors: k, 0 without retrieval.
    step: of the checkpoint.
    evaluation: what was measured.
    minus_off: bits per byte minus those of the same RETRO with retrieval off.
  """

  name: str
  retrieval: str
  num_neighbors: int
  step: int
  evaluation: evaluate.Evaluation
  minus_off: bootstrap.Interval | None = None

  def to_json(self) -> dict[str, Any]:
    """JSON values; what is not finite becomes null."""
    row = {
      'name': self.name,
      'retrieval': self.retrieval,
      'num_neighbors': self.num_neighbors,
      'step': self.step,
      **self.evaluation.summary(),
    }
    row['minus_off'] = (
      dataclasses.asdict(self.minus_off) if self.minus_off else None
    )
    return finite(row)


def finite(value: Any) -> Any:
  """JSON values, null in place of what JSON cannot say."""
  if isinstance(value, dict):
    return {key: finite(x) for key, x in value.items()}
  if isinstance(value, list):
    return [finite(x) for x in value]
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value


@contextlib.contextmanager
def scorer(
  trained: retro_task.Trained,
  config: ml_collections.ConfigDict,
  score: Callable[..., jax.Array] = evaluate.score_chunks,
) -> Iterator[evaluate.ScoreFn]:
  """Yields a compiled score function, parameters sharded over the mesh.

  Args:
    trained: the model.
    config: `mesh`, `sharding_rules` and `evaluate.batch_size` are read from it.
    score: `evaluate.score_chunks` or `evaluate.score_parts`.

  Yields:
    What `evaluate.evaluate` takes.
  """
  mesh, rules = _mesh_and_rules(config)
  rows = sharding.batch_sharding(mesh, config.evaluate.batch_size)
  shardings = retro_task.param_shardings(trained.model.config, mesh, rules)
  params = jax.device_put(trained.params, shardings)
  length = trained.model.config.chunk_length
  compiled = jax.jit(
    functools.partial(score, trained.model, chunk_length=length),
    in_shardings=(shardings, rows),
    out_shardings=sharding.replicated(mesh),
  )
  with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
    yield lambda row: compiled(params, sharding.global_batch(row, rows))


def _mesh_and_rules(config: ml_collections.ConfigDict):
  mesh = sharding.make_mesh(**config.mesh)
  return mesh, sharding.make_rules(config.get('sharding_rules'))


def numbers_of_neighbors(
  settings: ml_collections.ConfigDict,
) -> tuple[int, ...]:
  """The config's `evaluate.num_neighbors`.

  Raises:
    ValueError: when it is empty or has a number below 1.
  """
  ks = tuple(settings.num_neighbors)
  if not ks or min(ks) < 1:
    raise ValueError(
      f'evaluate.num_neighbors {ks}: expected one or more numbers above 0.'
    )
  return ks


def _modes(
  trained: retro_task.Trained, settings: ml_collections.ConfigDict
) -> list[tuple[str, str, int]]:
  """(name, retrieval, k) of every row for one model."""
  if not trained.model.config.cca_layers:
    return [('baseline', 'off', 0)]
  ks = numbers_of_neighbors(settings)
  modes = [(f'RETRO, k={k}', 'on', k) for k in ks]
  modes.append(('RETRO off', 'off', 0))
  if settings.shuffled:
    modes.append((f'RETRO shuffled, k={ks[0]}', 'shuffled', ks[0]))
  if settings.oracle:
    modes.append(('RETRO oracle', 'oracle', 1))
  return modes


def stride_chunks(
  settings: ml_collections.ConfigDict, sequence_chunks: int
) -> int:
  """Chunks between the starts of windows; 0 is half a sequence.

  Args:
    settings: the config's `evaluate`: stride_chunks, or overlap, the share of a
      sequence that is context to what is scored (Wikitext103: 0.75 or 0.875).
    sequence_chunks: chunks of a sequence.

  Raises:
    ValueError: for both at once, or an overlap that is no whole number of chunks.
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
  trained: retro_task.Trained,
  config: ml_collections.ConfigDict,
  retrieval: str,
  name: str,
) -> evaluate.Evaluation:
  """`evaluate.evaluate` with the config's settings and a progress bar."""
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
  trained: retro_task.Trained, config: ml_collections.ConfigDict
) -> dict[int, pipeline.ChunkReader]:
  """Tells before any work what `evaluate_trained` of the same would raise.

  Returns:
    k -> reader of the split with so many neighbors.
  """
  settings = config.evaluate
  stride_chunks(settings, trained.config.sequence_chunks)
  sharding.batch_sharding(_mesh_and_rules(config)[0], settings.batch_size)
  readers = {
    k: retro_task.chunk_reader(trained.config, trained.data, settings.split, k)
    for k in {k for _, _, k in _modes(trained, settings)}
  }
  _ = [reader.stores for reader in readers.values()]  # opened and compared
  return readers


def evaluate_trained(
  trained: retro_task.Trained, config: ml_collections.ConfigDict
) -> list[Result]:
  """Evaluates one model in all its modes.

  Args:
    trained: a RETRO or a baseline.
    config: `evaluate`, `mesh`, `sharding_rules` and `seed` are read from it; the
      rest comes from the model's own.

  Returns:
    A row for each mode.

  Raises:
    FileNotFoundError: for a split whose stores do not stand.
    ValueError: for settings that do not fit data, model or devices.
  """
  readers, found = check(trained, config), {}
  modes = _modes(trained, config.evaluate)
  with scorer(trained, config) as score:
    for name, retrieval, k in modes:
      found[name] = measure(score, readers[k], trained, config, retrieval, name)
  off = found.get('RETRO off')
  return [
    Result(
      name,
      retrieval,
      k,
      trained.step,
      found[name],
      None
      if off is None or retrieval == 'off'
      else evaluate.compare(found[name], off),
    )
    for name, retrieval, k in modes
  ]


def load(
  config: ml_collections.ConfigDict,
  workdir: str | os.PathLike,
  baseline_workdir: str | os.PathLike = '',
) -> tuple[retro_task.Trained, retro_task.Trained | None]:
  """The newest checkpoints of a run and of its baseline's, over the same data.

  Args:
    config: see `evaluate_trained`; data_dir is where the data lie, by default
      where they lay in training.
    workdir: of the RETRO, or of any run.
    baseline_workdir: of the baseline; '' for none.

  Returns:
    Both; None in place of no baseline.

  Raises:
    FileNotFoundError: for a folder without a checkpoint or without data.
    ValueError: when the baseline retrieves.
  """
  mesh, rules = _mesh_and_rules(config)
  read = functools.partial(retro_task.load, mesh=mesh, rules=rules)
  trained, baseline = read(workdir, config.data_dir), None
  if baseline_workdir:
    baseline = read(baseline_workdir, str(trained.data.root))
    if baseline.model.config.cca_layers:
      raise ValueError(
        f'{baseline_workdir}: evaluate.baseline_workdir names a model that retrieves; '
        'expected one trained with the baseline config.'
      )
  return trained, baseline


def evaluate_workdir(
  config: ml_collections.ConfigDict,
  workdir: str | os.PathLike,
  baseline_workdir: str | os.PathLike = '',
) -> list[Result]:
  """Evaluates the newest checkpoint of a run, and of its baseline's.

  Args:
    config: see `load`.
    workdir: of the RETRO, or of any run.
    baseline_workdir: of the baseline; '' for none. It reads the same data.

  Returns:
    The rows of the table; the baseline's is compared with RETRO[OFF] too.

  Raises:
    FileNotFoundError: for a folder without a checkpoint or without data.
    ValueError: for settings that do not fit.
  """
  trained, baseline = load(config, workdir, baseline_workdir)
  results = evaluate_trained(trained, config)
  off = next((r for r in results if r.name == 'RETRO off'), None)
  for result in evaluate_trained(baseline, config) if baseline else ():
    if off is not None:
      difference = evaluate.compare(result.evaluation, off.evaluation)
      result = dataclasses.replace(result, minus_off=difference)
    results.append(result)
  return results


def make_table(results: Sequence[Result]) -> rich.table.Table:
  """The results as a table for the terminal."""
  one = results[0].evaluation.summary()
  steps = sorted({result.step for result in results})
  table = rich.table.Table(
    title=f'{one["documents"]:,} held-out documents, {one["tokens"]:,} tokens, '
    f'{one["bytes"]:,} bytes, step {" and ".join(f"{s:,}" for s in steps)}',
    caption='Minus off: bits per byte less those of RETRO with retrieval off; '
    'interval: 95 % of a paired bootstrap over documents.',
    box=rich.box.SIMPLE_HEAD,
  )
  table.add_column('model', no_wrap=True)
  for name in ('bits/byte', 'minus off', 'interval', 'token ppl', 'word ppl'):
    table.add_column(name, justify='right', no_wrap=True)
  for result in results:
    row, d = result.evaluation.summary(), result.minus_off
    table.add_row(
      result.name,
      f'{row["bits_per_byte"]:.4f}',
      f'{d.mean:+.4f}' if d else '',
      f'{d.low:+.4f} {d.high:+.4f}' if d else '',
      format_perplexity(row['token_perplexity']),
      format_perplexity(row['word_perplexity']),
    )
  return table


def format_perplexity(x: float) -> str:
  """A perplexity as text for a table."""
  return f'{x:,.2f}' if x < 1e5 else f'{x:.3g}'


def write(
  results: Sequence[Result],
  config: ml_collections.ConfigDict,
  workdir: str | os.PathLike,
) -> pathlib.Path:
  """Writes evaluation.json, whole or not at all, and returns its path."""
  path = pathlib.Path(workdir) / FILE
  path.parent.mkdir(parents=True, exist_ok=True)
  content = {
    'rows': [result.to_json() for result in results],
    'settings': json.loads(config.evaluate.to_json()),
  }
  data = json.dumps(content, indent=2, allow_nan=False) + '\n'
  store.write_atomically(path, data.encode())
  return path


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Evaluates, prints the table and writes evaluation.json."""
  source = config.evaluate.workdir or workdir
  logging.info('Evaluating the newest checkpoint of %s.', source)
  results = evaluate_workdir(config, source, config.evaluate.baseline_workdir)
  if jax.process_index():
    return
  path = write(results, config, workdir)
  progress.console().print(make_table(results))
  logging.info('The figures are in %s.', path)


if __name__ == '__main__':
  command.main(run, computes=True)
