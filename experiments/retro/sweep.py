# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure bits per byte by datastore, neighbors, their ranks, parts and source.

  python -m experiments.retro.sweep --config=configs/<name>.py --workdir=DIR \
    --sweep=datastore --sweep=neighbors --sweep=ranks --sweep=parts --sweep=sources

Evaluates one trained RETRO several times (Borgeaud et al. 2021, figures 1 and 5,
Tables 13 and 14):

  datastore  neighbors in nested random parts of the datastore,
             config.sweep.shares, each searched exactly
  neighbors  k = config.sweep.num_neighbors, at most the stored number
  ranks      one neighbor alone, of each of these ranks
  parts      chunks alone (N), continuations alone (F), both ([N, F])
  sources    neighbors of each source that the data folder has (docs/data.md)

For every --sweep, prints a table and writes sweep_<name>.json and .png into DIR. A
setting that an earlier run measured with the same model, data and settings is not
measured again.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import json
import pathlib
from typing import Any

from absl import flags, logging
import jax
import ml_collections

from experiments.engine import command, progress, reports
from experiments.retro import (
  evaluate as retro_evaluate,
  settings as settings_lib,
)
from retrieval.index import datastore_subsets, sources
from retrieval.store import locks, store
from retro_jax.data import pipeline
from retro_jax.trained import loading

Config = ml_collections.ConfigDict
PARTS = {'neighbor': 'N', 'continuation': 'F', 'full': '[N, F]'}


@dataclasses.dataclass(frozen=True)
class Setting:
  """One line of a sweep."""

  name: str  # name of the line
  reader: pipeline.ChunkReader  # reader of the held-out chunks
  facts: dict[str, Any]  # the varied values, as JSON


def _readers(
  trained: loading.TrainedRetro, config: Config, name: str, ks: Sequence[int]
) -> list[pipeline.ChunkReader]:
  """Readers with k neighbors, for every k of a config's field."""
  split = config.evaluate.split
  stored = trained.data.neighbors(split).num_neighbors
  if not ks or min(ks) < 0 or max(ks) > stored:
    raise ValueError(
      f'{name} {tuple(ks)}: expected numbers of 0 to {stored}, the neighbors '
      f'stored in {trained.data.neighbors_path(split)}; for more, prepare the '
      'neighbors again with --config.neighbors.stored=N.'
    )
  return [
    loading.chunk_reader(trained.config, trained.data, split, k) for k in ks
  ]


def _first_reader(
  trained: loading.TrainedRetro, config: Config
) -> pipeline.ChunkReader:
  """The reader with the first of `evaluate.num_neighbors`."""
  ks = retro_evaluate.numbers_of_neighbors(config.evaluate)[:1]
  return _readers(trained, config, 'evaluate.num_neighbors', ks)[0]


def by_neighbors(
  trained: loading.TrainedRetro, config: Config, root
) -> Iterator[Setting]:
  """Settings with k neighbors; k = 0 is RETRO[OFF]."""
  del root
  ks = config.sweep.num_neighbors
  readers = _readers(trained, config, 'sweep.num_neighbors', ks)
  for k, reader in zip(ks, readers, strict=True):
    yield Setting(f'k = {k}', reader, {'num_neighbors': k})


def by_ranks(
  trained: loading.TrainedRetro, config: Config, root
) -> Iterator[Setting]:
  """Settings with the neighbor of one rank alone, and with none."""
  del root
  ranks = config.sweep.num_neighbors
  readers = _readers(trained, config, 'sweep.num_neighbors', ranks)
  for rank, reader in zip(ranks, readers, strict=True):
    if rank:
      one = {'num_neighbors': 1, 'skipped_neighbors': rank - 1}
      facts = {'rank': rank, 'num_neighbors': 1}
      yield Setting(f'rank {rank}', dataclasses.replace(reader, **one), facts)
  off = dataclasses.replace(readers[0], num_neighbors=0)
  yield Setting('none', off, {'rank': 0, 'num_neighbors': 0})


def by_parts(
  trained: loading.TrainedRetro, config: Config, root
) -> Iterator[Setting]:
  """Neighbors without continuations, continuations alone, both, and neither."""
  del root
  reader = _first_reader(trained, config)
  for part, name in PARTS.items():
    facts = {'num_neighbors': reader.num_neighbors, 'part': part}
    yield Setting(name, dataclasses.replace(reader, neighbor_part=part), facts)
  off = dataclasses.replace(reader, num_neighbors=0)
  yield Setting('none', off, {'num_neighbors': 0, 'part': 'none'})


def neighbors_in_part(
  trained: loading.TrainedRetro,
  config: Config,
  root: str | pathlib.Path,
  share: float,
  k: int,
) -> pathlib.Path:
  """Find the k neighbors of the evaluated split in a part of the datastore.

  Returns:
    The neighbor store, a folder below `root`. An existing store is used again.

  Raises:
    ValueError: for another source than dense, whose vectors are searched.
  """
  data, split = trained.data, config.evaluate.split
  if data.source_name != 'dense':
    raise ValueError(
      f'A part of the datastore is searched by vectors, but the source of the '
      f'neighbors is {data.source_name}; expected dense.'
    )
  metric = data.index.searcher.metric
  stores = [
    open_store(x).fingerprint
    for open_store in (data.chunks, data.vectors)
    for x in (split, 'train')
  ]
  made_of = store.fingerprint([*stores, metric, k, config.seed])[:12]
  name = f'neighbors-{split}-{share:g}-{made_of}'
  path = pathlib.Path(root) / 'sweep_datastore' / name
  with progress.bar(f'neighbors in {100 * share:g} %', 'chunks') as update:
    datastore_subsets.build_part_neighbors(
      path,
      data.chunks(split),
      data.vectors(split),
      data.chunks('train'),
      data.vectors('train'),
      metric=metric,
      share=share,
      k=k,
      seed=config.seed,
      progress=update,
    )
  return path


def by_datastore(
  trained: loading.TrainedRetro, config: Config, root: pathlib.Path
) -> Iterator[Setting]:
  """Settings with parts of the datastore; the neighbors in each are found first."""
  reader = _first_reader(trained, config)
  k, datastore = reader.num_neighbors, trained.data.chunks('train')
  if not config.sweep.shares:
    raise ValueError(
      'sweep.shares is empty: expected shares such as (1.0, 0.1).'
    )
  parts = {  # A part without a document is an error before any work.
    float(share): datastore_subsets.chunks_of_part(
      datastore, float(share), config.seed
    )
    for share in config.sweep.shares
  }
  for share, ids in parts.items():
    path = neighbors_in_part(trained, config, root, share, k)
    facts = {
      'share': share,
      'datastore_chunks': len(ids),
      'datastore_tokens': int(datastore.lengths(ids).sum()),
      'num_neighbors': k,
    }
    name = f'{100 * share:g} %'
    yield Setting(name, dataclasses.replace(reader, neighbors=path), facts)


def by_sources(
  trained: loading.TrainedRetro, config: Config, root
) -> Iterator[Setting]:
  """Settings with the neighbors of each source that there is, and with none."""
  del root
  reader, split = _first_reader(trained, config), config.evaluate.split
  for source in sources.NAMES:
    data = dataclasses.replace(trained.data, source=source)
    path = data.neighbors_path(split)
    if path.is_dir():
      facts = {
        'source': source,
        'num_neighbors': reader.num_neighbors,
        'neighbors': data.neighbors(split).store.fingerprint,
      }
      yield Setting(source, dataclasses.replace(reader, neighbors=path), facts)
  off = dataclasses.replace(reader, num_neighbors=0)
  yield Setting('none', off, {'source': 'none', 'num_neighbors': 0})


SWEEPS = dict(
  datastore=by_datastore,
  neighbors=by_neighbors,
  ranks=by_ranks,
  parts=by_parts,
  sources=by_sources,
)


def _identity(trained: loading.TrainedRetro, config: Config) -> str:
  """Hash of checkpoint, data and settings."""
  return store.fingerprint(
    [
      trained.step,
      trained.config.to_json(sort_keys=True),
      trained.data.neighbors(config.evaluate.split).store.fingerprint,
      config.evaluate.to_json(sort_keys=True),
      config.seed,
    ]
  )


def sweep(
  name: str,
  score,
  trained: loading.TrainedRetro,
  config: Config,
  workdir: pathlib.Path,
) -> list[dict[str, Any]]:
  """Measure every setting and write the file after each.

  Raises:
    ValueError: for settings out of range.
  """
  path = workdir / f'sweep_{name}.json'
  identity = _identity(trained, config)
  known = reports.known_rows(path, identity)
  rows = []
  for setting in SWEEPS[name](trained, config, workdir):
    row = next((x for x in known if _is_of(x, setting)), None)
    if row is None:
      row = _measure(score, setting, trained, config)
    rows.append(row)
    others = [x for x in known if x not in rows]  # they stay
    content = {
      'measured_as': identity,
      'settings': {'evaluate': json.loads(config.evaluate.to_json())},
      'rows': [*rows, *others],
    }
    reports.write_json(path, content)
  return rows


def _is_of(row: dict[str, Any], setting: Setting) -> bool:
  return {name: row.get(name) for name in setting.facts} == setting.facts


def _measure(score, setting, trained, config) -> dict[str, Any]:
  retrieval = 'on' if setting.reader.num_neighbors else 'off'
  found = retro_evaluate.measure(
    score, setting.reader, trained, config, retrieval, setting.name
  )
  row = {
    'name': setting.name,
    'retrieval': retrieval,
    'step': trained.step,
    **setting.facts,
    **found.summary(),
  }
  return reports.finite(row)


def _print(name: str, rows: Sequence[dict[str, Any]]) -> None:
  def figure(value: float | None, form: str) -> str:
    return '-' if value is None else format(value, form)

  heads = ['setting', 'bits/byte', 'token ppl', 'word ppl']
  lines = [
    [
      row['name'],
      figure(row['bits_per_byte'], '.4f'),
      figure(row['token_perplexity'], ',.2f'),
      figure(row['word_perplexity'], ',.2f'),
    ]
    for row in rows
  ]
  if name == 'datastore':
    heads.insert(1, 'tokens')
    for line, row in zip(lines, rows, strict=True):
      line.insert(1, f'{row["datastore_tokens"]:,}')
  reports.print_table(heads, lines, title=f'Sweep: {name}')


def plot(name: str, rows: Sequence[dict[str, Any]], path: pathlib.Path) -> None:
  """Draw bits per byte over the settings."""
  axis = {'datastore': 'datastore_tokens', 'neighbors': 'num_neighbors'}
  labels = {
    'parts': 'part of each',
    'ranks': 'rank of the',
    'sources': 'source of',
  }
  values = [row['bits_per_byte'] for row in rows]
  with reports.picture(path, figsize=(6, 4)) as (_, axes):
    if name in axis:
      points = sorted(zip((r[axis[name]] for r in rows), values, strict=True))
      axes.plot(*zip(*points, strict=True), marker='o')
      axes.set_xlabel(axis[name].replace('_', ' '))
    else:
      axes.plot([row['name'] for row in rows], values, 'o')
      axes.set_xlabel(f'{labels[name]} neighbor')
    if name == 'datastore':
      axes.set_xscale('log')
    axes.set_ylabel('bits per byte')
    axes.grid(alpha=0.3)


def run(
  config: Config, workdir: str, *names: str
) -> dict[str, list[dict[str, Any]]]:
  """Return the rows of every named sweep; print and draw each.

  Raises:
    ValueError: for a model that does not retrieve, several processes, or
      settings out of range.
  """
  source, root = config.evaluate.workdir or workdir, pathlib.Path(workdir)
  logging.info('Sweeps of %s.', source)
  trained, _ = retro_evaluate.load(config, source)
  if not trained.model.config.cca_layers:
    raise ValueError(
      'A sweep is of a model that retrieves; this is a baseline.'
    )
  if jax.process_count() > 1:
    raise ValueError('experiments.retro.sweep runs in one process.')
  found = {}
  with retro_evaluate.scorer(trained, config) as score:
    for name in names:
      with locks.writer(root, f'sweep_{name}.json'):
        rows = found[name] = sweep(name, score, trained, config, root)
        plot(name, rows, root / f'sweep_{name}.png')
        _print(name, rows)
        logging.info('The figures are in %s.', root / f'sweep_{name}.json')
  return found


def _define_flags() -> None:
  flags.DEFINE_multi_enum('sweep', None, list(SWEEPS), 'Quantities to vary.')
  flags.mark_flag_as_required('sweep')


if __name__ == '__main__':
  command.main(
    lambda config, workdir: run(config, workdir, *flags.FLAGS.sweep) and None,
    settings_lib.Settings,
    _define_flags,
  )
