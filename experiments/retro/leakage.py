# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure bits per byte by how much of the text is in the training data.

  python -m experiments.retro.leakage --config=configs/<name>.py --workdir=DIR \
    --config.evaluate.baseline_workdir=BASELINE

Measures r(C) of every held-out chunk against its --config.leakage.num_neighbors
nearest training chunks, and the bits per byte over the chunks with r(C) <= alpha
for RETRO with retrieval on and off and for the baseline (Borgeaud et al. 2021,
section 2.6). A second table has the chunks by the longest run of tokens that they
share with the neighbors that RETRO reads, by the bounds of --config.leakage.runs.
Prints the tables and writes leakage.json and leakage.png into DIR. The settings are those of experiments.retro.evaluate; with retrieval on, k is the first
number of --config.evaluate.num_neighbors.
"""

from collections.abc import Sequence
import dataclasses
import itertools
import json
import math
import pathlib

from absl import logging
import jax
import ml_collections
import numpy as np

from experiments.engine import command, progress, reports
from experiments.retro import (
  evaluate as retro_evaluate,
  settings as settings_lib,
)
from retro_jax.data import windows
from retro_jax.evaluation import evaluate, leakage
from retro_jax.trained import loading

Config = ml_collections.ConfigDict
FILE, PICTURE = 'leakage.json', 'leakage.png'


@dataclasses.dataclass(frozen=True)
class Curve:
  """The filtered bits per byte of one model."""

  name: str  # name of the model
  step: int  # number of its checkpoint
  points: Sequence[leakage.Point]  # one for each alpha
  # RETRO with retrieval on less this model; () for itself
  minus_on: Sequence[leakage.Point] = ()
  runs: Sequence[leakage.RunPoint] = ()  # by the longest run
  runs_minus_on: Sequence[leakage.RunPoint] = ()


def _token_num_bytes(data) -> np.ndarray:
  tokenizer = data.tokenizer
  data.tokens.check_tokenizer(tokenizer)
  if not hasattr(tokenizer, 'token_num_bytes'):
    raise ValueError(
      f'{data.tokenizer_path}: the bytes of a chunk are known for SentencePiece '
      f'and byte pairs alone, but this is a {type(tokenizer).__name__}.'
    )
  return tokenizer.token_num_bytes


def curves(
  trained: loading.TrainedRetro,
  baseline: loading.TrainedRetro | None,
  config: Config,
) -> list[Curve]:
  """Evaluate the models chunk by chunk and filters by r(C).

  Raises:
    ValueError: for settings that do not fit data or model.
  """
  settings, data = config.leakage, trained.data
  compared = leakage.whole_neighbors(
    loading.chunk_reader(
      trained.config, data, config.evaluate.split, settings.num_neighbors
    )
  )
  models = [trained, baseline] if baseline is not None else [trained]
  # Too few neighbors and lost bytes are errors before any work.
  chunks = compared.stores.chunks
  modes = [
    retro_evaluate.on_and_off(model, config.evaluate) for model in models
  ]
  for model, its in zip(models, modes, strict=True):
    retro_evaluate.check(model, config, its)
  documents = windows.find_documents(chunks, config.evaluate.max_documents)
  ids, document = windows.chunk_ids(documents)
  num_bytes = leakage.count_bytes(chunks, ids, _token_num_bytes(data))
  _check_bytes(num_bytes, document, documents, chunks.tokens)
  rows = []
  for model, its in zip(models, modes, strict=True):
    rows += retro_evaluate.evaluate_trained(
      model, config, its, evaluate.score_parts
    )
  with progress.bar('overlaps', 'chunks') as update:
    overlap = leakage.overlaps(compared, ids, update)
  of_run = _read_runs(compared, config, ids, document)
  nats = [row.evaluation.chunks.nats for row in rows]

  def curves_of(values):
    where = values, num_bytes, document
    return (
      leakage.curve(*where, overlap, tuple(settings.alphas)),
      leakage.by_run(*where, of_run, (-1, *settings.runs)),
    )

  found = []
  for i, (row, own) in enumerate(zip(rows, nats, strict=True)):
    points, runs = curves_of(own)
    less = curves_of(nats[0] - own) if i else ((), ())
    found.append(Curve(row.name, row.step, points, less[0], runs, less[1]))
  return found


def _read_runs(compared, config: Config, ids, document) -> np.ndarray:
  """Longest runs shared with the neighbors that RETRO reads."""
  k = config.evaluate.num_neighbors[0]
  reader = dataclasses.replace(compared, num_neighbors=k)
  with progress.bar('runs', 'chunks') as update:
    return leakage.read_runs(reader, ids, document, update)


def _check_bytes(num_bytes, document, documents, tokens) -> None:
  """Raise ValueError unless the chunks have all bytes of the documents."""
  by_document = np.bincount(document, num_bytes, len(documents.index))
  wanted = tokens.num_bytes[documents.index]
  if not np.array_equal(by_document, wanted):
    raise ValueError(
      f'{tokens.path}: its tokens stand for {int(num_bytes.sum()):,} bytes, but '
      f'its documents have {int(wanted.sum()):,}.'
    )


def _print(found: Sequence[Curve]) -> None:
  names = [f'{100 * point.alpha:g} %' for point in found[0].points]
  _print_table(
    'alpha',
    'Bits per byte over chunks with r(C) <= alpha',
    names,
    [line.points for line in found],
    [line.minus_on for line in found],
    found,
  )
  edges = [point.run for point in found[0].runs]
  names = ['reads none'] + [
    f'{low}' if high == low + 1 else f'{low} to {high - 1}'
    for low, high in itertools.pairwise(edges[1:])
  ]
  _print_table(
    'tokens',
    'Bits per byte by the longest run shared with the neighbors read',
    [*names, f'{edges[-1]} and more'],
    [line.runs for line in found],
    [line.runs_minus_on for line in found],
    found,
  )


def _print_table(head, title, names, points, minus_on, found) -> None:
  rows = []
  for i, name in enumerate(names):
    point = points[0][i]
    rows.append(
      (
        name,
        f'{100 * point.share:.1f} %',
        f'{point.documents:,}',
        *(_figure(line[i].bits_per_byte, '.4f') for line in points),
        *(_difference(line[i]) for line in minus_on[1:]),
      )
    )
  reports.print_table(
    (
      head,
      'chunks',
      'documents',
      *(line.name for line in found),
      *(f'less {line.name}' for line in found[1:]),
    ),
    rows,
    title=title,
    caption=f'{found[0].name} less the others, with the 95 % interval of a '
    'paired bootstrap over documents.',
  )


def _figure(value: float, form: str) -> str:
  return '-' if math.isnan(value) else format(value, form)


def _difference(gain: leakage.Part) -> str:
  if math.isnan(gain.bits_per_byte):
    return '-'
  return f'{gain.bits_per_byte:+.4f}\n{gain.low:+.4f} {gain.high:+.4f}'


def plot(found: Sequence[Curve], path: pathlib.Path) -> None:
  """Draw the curves with intervals; below, the share of chunks at each alpha."""
  shape = {'figsize': (7, 6), 'height_ratios': (3, 1), 'sharex': True}
  with reports.picture(path, nrows=2, **shape) as (_, (top, bottom)):
    for line in found:
      alphas = [100 * p.alpha for p in line.points]
      values = [p.bits_per_byte for p in line.points]
      (drawn,) = top.plot(alphas, values, marker='o', label=line.name)
      top.fill_between(
        alphas,
        [p.low for p in line.points],
        [p.high for p in line.points],
        color=drawn.get_color(),
        alpha=0.12,
        linewidth=0,
      )
    bottom.plot(alphas, [100 * p.share for p in found[0].points], color='gray')
    top.set(ylabel='bits per byte')
    bottom.set(
      xlabel='most overlap with training data r(C), %',
      ylabel='chunks left, %',
      ylim=(0, 105),
    )
    top.legend()
    for axes in (top, bottom):
      axes.grid(alpha=0.3)


def write(
  found: Sequence[Curve], config: Config, workdir: pathlib.Path
) -> None:
  """Write leakage.json and leakage.png."""
  content = {
    'rows': [dataclasses.asdict(line) for line in found],
    'settings': {
      'evaluate': json.loads(config.evaluate.to_json()),
      'leakage': json.loads(config.leakage.to_json()),
    },
  }
  reports.write_json(workdir / FILE, content)
  plot(found, workdir / PICTURE)


def run(config: Config, workdir: str) -> None:
  """Measures, prints the table and writes the files."""
  settings = config.evaluate
  source = settings.workdir or workdir
  logging.info('Leakage of %s.', source)
  trained, baseline = retro_evaluate.load(
    config, source, settings.baseline_workdir
  )
  found = curves(trained, baseline, config)
  if jax.process_index():
    return
  write(found, config, pathlib.Path(workdir))
  _print(found)
  logging.info('The figures are in %s, with %s.', workdir, PICTURE)


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=FILE)
