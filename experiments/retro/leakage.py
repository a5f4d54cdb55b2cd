# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure bits per byte by how much of the text is in the training data.

  python -m experiments.retro.leakage --config=configs/<name>.py --workdir=DIR \
    --config.evaluate.baseline_workdir=BASELINE

Measures r(C) of every held-out chunk against its --config.leakage.num_neighbors
nearest training chunks, and the bits per byte over the chunks with r(C) <= alpha
for RETRO with retrieval on and off and for the baseline (Borgeaud et al. 2021,
section 2.6). Prints a table and writes leakage.json and leakage.png into DIR. The
settings are those of experiments.retro.evaluate; with retrieval on, k is the first
number of --config.evaluate.num_neighbors.
"""

from collections.abc import Sequence
import dataclasses
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
  where = (num_bytes, document, overlap, tuple(settings.alphas))
  nats = [row.evaluation.chunks.nats for row in rows]
  return [
    Curve(
      row.name,
      row.step,
      leakage.curve(own, *where),
      leakage.curve(nats[0] - own, *where) if i else (),
    )
    for i, (row, own) in enumerate(zip(rows, nats, strict=True))
  ]


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
  others, rows = found[1:], []
  for i, point in enumerate(found[0].points):
    rows.append(
      (
        f'{100 * point.alpha:g} %',
        f'{100 * point.share:.1f} %',
        f'{point.documents:,}',
        *(_figure(line.points[i].bits_per_byte, '.4f') for line in found),
        *(_difference(line.minus_on[i]) for line in others),
      )
    )
  reports.print_table(
    (
      'alpha',
      'chunks',
      'documents',
      *(line.name for line in found),
      *(f'less {line.name}' for line in others),
    ),
    rows,
    title='Bits per byte over chunks with r(C) <= alpha',
    caption=f'{found[0].name} less the others, with the 95 % interval of a '
    'paired bootstrap over documents.',
  )


def _figure(value: float, form: str) -> str:
  return '-' if math.isnan(value) else format(value, form)


def _difference(gain: leakage.Point) -> str:
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
