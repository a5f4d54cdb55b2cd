# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Predict what a datastore of many chunks takes, and what breaks first.

  python -m experiments.scale.plan --chunks=1e9 --hosts=64

Prints hours, memory, disk and network of each stage, from the rates in rates.json or
--rates, which experiments.scale.measure writes. All figures are predictions.
--refresh_every=500 adds a refresh of REALM's index. --markdown prints Markdown;
--page=docs/scale.md writes the tables of that page anew, each from the flags in the
comment before it.
"""

from collections.abc import Mapping, Sequence
import json
import math
import pathlib
import re

from absl import flags

from experiments.engine import command, reports
from experiments.scale import (
  cost_model,
  job as job_lib,
  limits,
  rates as rates_lib,
)
from retrieval.store import store

VALIDATION = pathlib.Path(__file__).with_name('validation.json')
# What a page holds between a comment and the next `<!-- end -->`.
_PART = re.compile(
  r'(<!-- (plan|rates|validation)(.*?) -->\n).*?(<!-- end -->)', re.S
)
_SHOWN = 5  # limits that do not break


def _size(num_bytes: float) -> str:
  """Bytes in a unit that suits them."""
  for unit in ('B', 'kB', 'MB', 'GB', 'TB'):
    if num_bytes < 999.5:
      return f'{num_bytes:.3g} {unit}'
    num_bytes /= 1000
  return f'{num_bytes:,.3g} PB' if num_bytes < 999.5 else f'{num_bytes:,.0f} PB'


def _number(value: float) -> str:
  """Three digits of a number, none of them in an exponent."""
  if not value:
    return '0'
  digits = max(0, 2 - math.floor(math.log10(abs(value))))
  return f'{value:,.{min(digits, 6)}f}'


def _amount(value: float, unit: str) -> str:
  return _size(value) if unit == 'bytes' else f'{_number(value)} {unit}'


def heads(job: job_lib.Job) -> list[str]:
  """Columns of the table of stages."""
  return [
    'stage',
    'hours',
    'work',
    'RAM a host',
    'disk',
    'network',
    'waits for',
    f'hosts, {job.within_hours:g} h',
    'rates',
  ]


def _cells(job: job_lib.Job, stage: cost_model.Stage) -> list[str]:
  times, hours = stage.times, stage.seconds / 3600
  work = [
    f'{_number(times[x] * n / 3600)} {unit}'
    for x, n, unit in (
      (cost_model.CORES, job.all_cores, 'core-h'),
      (cost_model.CHIPS, job.all_chips, 'chip-h'),
    )
    if x in times
  ]
  hosts = math.ceil(job.hosts * hours / job.within_hours)
  alone = stage.bottleneck == cost_model.DRIVER
  return [
    stage.name,
    _number(hours),
    ', '.join(work),
    _size(stage.ram) if stage.ram else '-',
    _size(stage.disk),
    _size(stage.network),
    stage.bottleneck,
    '-' if alone else f'{hosts:,}',
    stage.rates,
  ]


def _total(stages: Sequence[cost_model.Stage]) -> list[str]:
  hours = sum(x.seconds for x in stages) / 3600
  return [
    'all',
    _number(hours),
    '',
    _size(max(x.ram for x in stages)),
    _size(sum(x.disk for x in stages)),
    _size(sum(x.network for x in stages)),
    '',
    '',
    '',
  ]


def _counted(number: int, noun: str) -> str:
  return f'{number:,} {noun}{"s" if number != 1 else ""}'


def title(job: job_lib.Job, rates: rates_lib.Rates) -> str:
  """The job in a line."""
  index = f'{job.codes} in {_counted(job.num_shards, "shard")}'
  if job.codes == 'scann':
    found = cost_model.scann_settings(job)
    searched = found.num_leaves_to_search
    index += f', {searched:,} of {found.num_leaves:,} leaves searched in each'
  if job.shards_asked < job.num_shards:
    index += f'; a query asks {_counted(job.shards_asked, "shard")}'
  machines = _counted(job.hosts, 'host')
  if job.accelerators:
    machines += f' with {job.accelerators} {job.chip} each'
  return (
    f'Predicted, not measured: {job.chunks:,.0f} chunks, '
    f'{_number(job.tokens / 1e9)} billion tokens, {_size(job.text_bytes(rates))} '
    f'of text; vectors of {job.embedder}, {job.width} x {job.vectors_dtype}; '
    f'{index}; {machines}, {job.cores} cores and {job.ram_gib:g} GiB a host'
  )


def _line(limit: limits.Limit) -> str:
  needed, there = (_amount(x, limit.unit) for x in (limit.needed, limit.there))
  said = f'{limit.what}: {needed} of {there}, {_number(limit.ratio)} times'
  if not limit.breaks:
    return f'{said}.'
  does = 'Stops' if limit.stops else 'Slows'
  return f'{does}: {said}. Change: {limit.change}.'


def predict(
  job: job_lib.Job, rates: rates_lib.Rates
) -> tuple[list[list[str]], list[str], list[str]]:
  """Return the rows of the table, what breaks, and what comes next."""
  stages = cost_model.stages(job, rates)
  refreshed = cost_model.refresh(job, rates) if job.refresh_every else []
  rows = [_cells(job, stage) for stage in stages]
  rows += [_total(stages), *(_cells(job, stage) for stage in refreshed)]
  found = limits.find(job, rates, stages, refreshed)
  breaks = [_line(x) for x in found if x.breaks]
  rest = [_line(x) for x in found if not x.breaks]
  return rows, breaks, rest[: max(0, _SHOWN - len(breaks))]


def markdown(job: job_lib.Job, rates: rates_lib.Rates) -> str:
  """The plan as Markdown."""
  rows, breaks, rest = predict(job, rates)
  lines = [f'{title(job, rates)}.', '', *_table(heads(job), rows), '']
  lines += ['What breaks first:', '']
  lines += [f'{i}. {x}' for i, x in enumerate(breaks, 1)] or ['- Nothing.']
  if rest:
    lines += ['', 'What comes next:', '', *(f'- {x}' for x in rest)]
  return '\n'.join(lines) + '\n'


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
  body = [columns, ['---'] * len(columns), *rows]
  return [f'| {" | ".join(row)} |' for row in body]


def rates_table(rates: rates_lib.Rates) -> str:
  """All rates as Markdown."""
  rows = [
    [f'`{name}`', f'{x.value:.4g}', x.unit, x.source, x.machine, x.note]
    for name, x in rates.items()
  ]
  columns = ['rate', 'value', 'unit', '', 'machine', 'note']
  return '\n'.join(_table(columns, rows)) + '\n'


def validation_table(found: Mapping) -> str:
  """Return the results of experiments.scale.validate as a Markdown table."""
  columns = ['stage', 'predicted CPU s', 'measured CPU s', 'ratio']
  rows = [
    [
      x['stage'],
      _number(x['predicted_sec']),
      _number(x['measured_sec']),
      f'{x["predicted_sec"] / x["measured_sec"]:.2f}',
    ]
    for x in found['rows']
  ]
  return '\n'.join(_table(columns, rows)) + '\n'


def filled(page: str, rates: rates_lib.Rates) -> str:
  """Return a page with its parts made anew."""

  def make(match):
    head, kind, arguments, end = match.groups()
    if kind == 'plan':
      said = f'`python -m experiments.scale.plan{arguments}`\n\n'
      text = said + markdown(job_lib.of_text(arguments), rates)
    elif kind == 'rates':
      text = rates_table(rates)
    else:
      text = validation_table(json.loads(VALIDATION.read_text()))
    return f'{head}\n{text}\n{end}'

  return _PART.sub(make, page)


def main(argv: list[str]) -> None:
  """Print the plan, or write the page."""
  if len(argv) > 1:
    raise ValueError(f'Unexpected arguments {argv[1:]}; flags start with --.')
  options = flags.FLAGS
  rates = rates_lib.load(options.rates)
  if options.page:
    path = pathlib.Path(options.page)
    page = path.read_text(encoding='utf-8')
    store.write_atomically(path, filled(page, rates))
    print(f'The page is {path}.')
    return
  job = job_lib.of_flags()
  if options.markdown:
    print(markdown(job, rates), end='')
    return
  rows, breaks, rest = predict(job, rates)
  reports.print_table(heads(job), rows, title(job, rates), wrap=True)
  print('What breaks first:' if breaks else 'Nothing breaks.')
  for line in breaks:
    print(f'  {line}')
  if rest:
    print('What comes next:', *rest, sep='\n  ')


if __name__ == '__main__':
  job_lib.define_flags()
  flags.DEFINE_string('rates', str(rates_lib.FILE), 'File of rates.')
  flags.DEFINE_bool('markdown', False, 'Print Markdown.')
  flags.DEFINE_string('page', '', 'Page whose parts are written anew.')
  command.main_of_script(main)
