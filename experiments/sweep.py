# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure RETRO's bits per byte by datastore, neighbors, ranks, parts and source.

  python -m experiments.sweep --config=configs/<name>.py --workdir=DIR \
    --sweep=datastore --sweep=neighbors --sweep=ranks --sweep=parts --sweep=sources

Evaluates one trained RETRO several times (Borgeaud et al. 2021, figures 1 and 5,
Tables 13 and 14):

  datastore  neighbors in nested random parts of the datastore,
             config.evaluate.sweep.shares, each searched exactly
  neighbors  k = config.evaluate.sweep.num_neighbors, at most the stored number
  ranks      one neighbor alone, of each of these ranks
  parts      chunks alone (N), continuations alone (F), both ([N, F])
  sources    neighbors of each source that the data folder has (docs/retrieval.md)

For every --sweep, prints a table, with the paired difference of each setting to the
first, and writes sweep_<name>.json and .png into DIR. A
setting that an earlier run measured with the same model, data and settings is not
measured again.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import pathlib
from typing import Any

from absl import flags, logging
import numpy as np

from experiments.engine import command, pictures, reports, stages
from experiments.retro import (
  compare,
  config as config_lib,
  evaluate as retro_evaluate,
)
from retrieval.index import datastore_subsets
from retrieval.search import names
from retrieval.store import locks, manifests
from retro_jax.data import windows
from retro_jax.evaluation import evaluate as evaluate_lib
from retro_jax.trained import loading

_NATS = 'nats_of_documents'  # field of a row, by which rows are compared
_OFF = compare.Run(retrieval='off')
_PARTS = {'neighbor': 'N', 'continuation': 'F', 'full': '[N, F]'}


@dataclasses.dataclass(frozen=True)
class Setting:
  """One line of a sweep."""

  name: str
  run: compare.Run  # how the held-out chunks are read
  facts: dict[str, Any]  # the varied values, as JSON


@dataclasses.dataclass(frozen=True)
class Swept:
  """A RETRO to sweep, its evaluation, and the folder of results."""

  trained: loading.TrainedRetro
  evaluate: retro_evaluate.Evaluate
  seed: int
  root: pathlib.Path

  def numbers(self) -> Sequence[int]:
    """Return numbers of neighbors, up to the number that the store holds."""
    data, ks = self.trained.data, self.evaluate.sweep.num_neighbors
    stored = data.neighbors(self.evaluate.split).num_neighbors
    if not ks or max(ks) > stored:
      raise ValueError(
        f'sweep.num_neighbors {tuple(ks)}: expected numbers of 0 to {stored}, the '
        f'neighbors stored in {data.neighbors_path(self.evaluate.split)}; for more, '
        'prepare the neighbors again with --config.neighbors.stored=N.'
      )
    return ks

  def by_neighbors(self) -> Iterator[Setting]:
    """Settings with k neighbors; k = 0 is RETRO[OFF]."""
    for k in self.numbers():
      run = compare.Run(k=k) if k else _OFF
      yield Setting(f'k = {k}', run, {'num_neighbors': k})

  def by_ranks(self) -> Iterator[Setting]:
    """Settings with the neighbor of one rank alone, and with none."""
    for rank in filter(None, self.numbers()):
      facts = {'rank': rank, 'num_neighbors': 1}
      yield Setting(f'rank {rank}', compare.Run(rank=rank), facts)
    yield _none(rank=0)

  def by_parts(self) -> Iterator[Setting]:
    """Neighbors without continuations, continuations alone, both, and neither."""
    for part, name in _PARTS.items():
      facts = {'num_neighbors': self.evaluate.k, 'part': part}
      yield Setting(name, compare.Run(part=part), facts)
    yield _none(part='none')

  def by_datastore(self) -> Iterator[Setting]:
    """Settings with parts of the datastore."""
    shares = self.evaluate.sweep.shares
    datastore = self.trained.data.chunks('train')
    if not shares:
      raise ValueError('sweep.shares is empty: expected such as (1.0, 0.1).')
    parts = {  # A part without a document is an error before any work.
      share: datastore_subsets.chunks_of_part(datastore, share, self.seed)
      for share in shares
    }
    for share, ids in parts.items():
      facts = {
        'share': share,
        'datastore_chunks': len(ids),
        'datastore_tokens': int(datastore.lengths(ids).sum()),
        'num_neighbors': self.evaluate.k,
      }
      yield Setting(f'{100 * share:g} %', compare.Run(share=share), facts)

  def by_sources(self) -> Iterator[Setting]:
    """Settings with the neighbors of each source that there is, and with none."""
    split = self.evaluate.split
    for source in names.NAMES:
      data = dataclasses.replace(self.trained.data, source=source)
      if data.neighbors_path(split).is_dir():
        facts = {
          'source': source,
          'num_neighbors': self.evaluate.k,
          'neighbors': data.neighbors(split).store.fingerprint,
        }
        yield Setting(source, compare.Run(source=source), facts)
    yield _none(source='none')

  @property
  def identity(self) -> str:
    """Hash of checkpoint, data and settings."""
    trained, fields = self.trained, dataclasses.asdict(self.evaluate)
    del fields['sweep']  # rows of other values stay
    neighbors = trained.data.neighbors(self.evaluate.split).store.fingerprint
    run = trained.step, dataclasses.asdict(trained.config)
    return manifests.fingerprint([*run, neighbors, fields, self.seed, _NATS])

  def measure(self, score, setting: Setting) -> dict[str, Any]:
    """Evaluate one setting; return its row."""
    trained, run = self.trained, setting.run
    if run.source:
      data = dataclasses.replace(trained.data, source=run.source)
      trained = dataclasses.replace(trained, data=data)
    where = setting.name, self.root, self.seed
    found = compare.measure(score, trained, self.evaluate, run, *where)
    row = {'name': setting.name, 'retrieval': run.retrieval}
    row |= {'step': self.trained.step, **setting.facts, **found.summary()}
    row[_NATS] = found.nats.tolist()
    return reports.finite(row)

  def minus(self, row: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Bits per byte of a row minus another's, with a paired interval."""
    chunks = self.trained.data.chunks(self.evaluate.split)
    documents = windows.find_documents(chunks, self.evaluate.max_documents)
    one, two = (
      evaluate_lib.of_documents(np.asarray(x[_NATS]), chunks, documents)
      for x in (row, other)
    )
    return dataclasses.asdict(evaluate_lib.compare(one, two))


def _none(**facts: Any) -> Setting:
  """The setting without neighbors."""
  return Setting('none', _OFF, {**facts, 'num_neighbors': 0})


SWEEPS = {
  'datastore': Swept.by_datastore,
  'neighbors': Swept.by_neighbors,
  'ranks': Swept.by_ranks,
  'parts': Swept.by_parts,
  'sources': Swept.by_sources,
}


def sweep(name: str, score, swept: Swept) -> list[dict[str, Any]]:
  """Measure every setting and write the file after each."""
  path = swept.root / f'sweep_{name}.json'
  known = reports.known_rows(path, swept.identity)
  rows = []
  settings = {'evaluate': dataclasses.asdict(swept.evaluate)}
  content = {'measured_as': swept.identity, 'settings': settings}
  for setting in SWEEPS[name](swept):
    same = [x for x in known if setting.facts.items() <= x.items()]
    row = dict(same[0]) if same else swept.measure(score, setting)
    known = [x for x in known if x not in same[:1]]  # the others stay
    row['minus_first'] = swept.minus(row, rows[0]) if rows else {}
    rows.append(row)
    reports.write_json(path, content | {'rows': [*rows, *known]})
  return rows


def _print(name: str, rows: Sequence[dict[str, Any]]) -> None:
  columns = [
    ('datastore_tokens', 'tokens', ','),
    ('bits_per_byte', 'bits/byte', '.4f'),
    ('token_perplexity', 'token ppl', ',.2f'),
    ('word_perplexity', 'word ppl', ',.2f'),
  ][name != 'datastore' :]
  lines = []
  for row in rows:
    values = [(row[key], form) for key, _, form in columns]
    cells = ['-' if x is None else format(x, form) for x, form in values]
    if x := row['minus_first']:
      cells.append(f'{x["mean"]:+.4f} [{x["low"]:+.4f}, {x["high"]:+.4f}]')
    lines.append([row['name'], *cells])
  heads = ['setting', *(head for _, head, _ in columns), 'minus first']
  reports.print_table(
    heads,
    lines,
    title=f'Sweep: {name}',
    caption='Minus first: bits per byte less those of the first setting, with '
    'the 95 % interval of a paired bootstrap over documents.',
  )


def plot(name: str, rows: Sequence[dict[str, Any]], path: pathlib.Path) -> None:
  """Draw bits per byte over the settings, and the differences to the first."""
  field = {'datastore': 'datastore_tokens', 'neighbors': 'num_neighbors'}
  labels = {
    'datastore': 'tokens of the datastore',
    'neighbors': 'k, neighbors of each chunk',
    'parts': 'part of each neighbor',
    'ranks': 'rank of the neighbor',
    'sources': 'source of neighbors',
  }
  x, first = field.get(name, 'name'), rows[0]['name']
  if x != 'name':
    rows = sorted(rows, key=lambda row: row[x])
  points = [{'x': row[x], 'y': row['bits_per_byte']} for row in rows]
  less = [
    {'x': row[x], 'y': found['mean'], **found}
    for row in rows
    if (found := row['minus_first'])
  ]
  panels = [{'y': 'bits per byte', 'series': [{'name': '', 'points': points}]}]
  if less:
    title = f'minus {first}, 95 % intervals'
    series = [{'name': '', 'color': 1, 'points': less}]
    panels.append(panels[0] | {'title': title, 'zero': True, 'series': series})
  shared = {'x': labels[name], 'log': name == 'datastore'}
  pictures.draw([panel | shared for panel in panels], path)


def run(
  config: config_lib.Config,
  workdir: str,
  evaluate: retro_evaluate.Evaluate,
  names: Sequence[str] | None = None,
) -> dict[str, list[dict[str, Any]]]:
  """Print and draw the sweeps of --sweep; return the rows of each."""
  root = pathlib.Path(workdir)
  trained = retro_evaluate.load(config, evaluate, workdir)
  if not trained.model.config.cca_layers:
    raise ValueError(
      'A sweep is of a model that retrieves; this is a baseline.'
    )
  stages.check_alone()
  swept, found = Swept(trained, evaluate, config.seed, root), {}
  with retro_evaluate.scorer(trained, config, evaluate.batch_size) as score:
    for name in names or flags.FLAGS.sweep:
      with locks.writer(root, f'sweep_{name}.json'):
        rows = found[name] = sweep(name, score, swept)
        plot(name, rows, root / f'sweep_{name}.png')
        _print(name, rows)
        logging.info('The figures are in %s.', root / f'sweep_{name}.json')
  return found


def _define_flags() -> None:
  flags.DEFINE_multi_enum('sweep', None, list(SWEEPS), 'Quantities to vary.')
  flags.mark_flag_as_required('sweep')


if __name__ == '__main__':
  command.main(
    run,
    config_lib.Config,
    _define_flags,
    section=retro_evaluate.Evaluate,
  )
