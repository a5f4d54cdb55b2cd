# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Ask REALM for facts as masked sentences, with and without documents (LAMA).

  python -m experiments.realm.probe --workdir=DIR \
    --facts=TREx/P19.jsonl --facts=Google_RE/place_of_birth_test.jsonl

Reads facts in the form of LAMA (Petroni et al. 2019, arXiv 1909.01066); each file is a
row of the table. --num_spans=N adds N facts of the corpus itself: held-out sentences
whose masked span is one wordpiece, without the block that they come from. P@1 and P@10
are the shares of facts whose word is the first, or among the first ten, of the
predictions over the whole vocabulary: with retrieved documents, with random ones, and
with the null document alone. Differences are paired over the facts. Files whose facts
name a `predicate_id` also get the mean over relations. Writes DIR/probe.json.
"""

import dataclasses
import pathlib
from typing import Any, get_args

from absl import flags, logging
import numpy as np

from experiments.engine import command, progress, reports
from experiments.realm import (
  config as config_lib,
  evaluate as evaluators,
  facts as facts_lib,
  task as realm_task,
)
from realm_jax.trained import loading, realm
from retrieval.questions import bootstrap

FILE = 'probe.json'
DEPTHS = (1, facts_lib.MOST)


def measures(
  ranks: np.ndarray, base: np.ndarray, relations: list[str]
) -> dict[str, Any]:
  """Return shares of facts by depth, their gain over `base`, and means by relation."""
  result: dict[str, Any] = {}
  for k in DEPTHS:
    right = (ranks < k).astype(float)
    less = right - (base < k)
    result[f'p@{k}'] = dataclasses.asdict(bootstrap.bootstrap(right))
    result[f'p@{k}_less_none'] = dataclasses.asdict(bootstrap.bootstrap(less))
    if any(relations):
      names = np.asarray(relations)
      means = [right[names == name].mean() for name in np.unique(names)]
      result[f'p@{k}_over_relations'] = float(np.mean(means))
  return result


def measure(
  trained: realm.TrainedRealm,
  index: Any,
  facts: facts_lib.Facts,
  name: str,
  batch_size: int,
) -> list[dict[str, Any]]:
  """Ask all facts with each kind of documents; rows of the table."""
  ranks = {}
  for documents in get_args(facts_lib.Documents):
    with progress.bar(f'{name}, {documents} documents', 'facts') as update:
      ranks[documents] = facts_lib.ranks(
        trained,
        index,
        facts,
        documents,
        batch_size=batch_size,
        progress=update,
      )
  return [
    {
      'facts': name,
      'documents': documents,
      'number': len(facts.rows),
      'skipped': facts.skipped,
      **measures(one, ranks['none'], facts.relations),
    }
    for documents, one in ranks.items()
  ]


def _print(rows: list[dict[str, Any]]) -> None:
  lines = []
  for row in rows:
    cells = []
    for k in DEPTHS:
      less = row[f'p@{k}_less_none']
      less = {x: 100 * less[x] for x in ('low', 'mean', 'high')}
      interval = f'{less["mean"]:+.1f} [{reports.ends(less, "+.1f", ", ")}]'
      interval = '' if row['documents'] == 'none' else interval
      cells += [reports.share(row[f'p@{k}']), interval]
    name = f'{row["facts"]} ({row["number"]})'
    lines.append((name, row['documents'], *cells))
  heads = [x for k in DEPTHS for x in (f'P@{k}', 'less none')]
  reports.print_table(
    ('facts', 'documents', *heads),
    lines,
    caption='Percent; intervals: 95 % of a bootstrap over facts. Less none: paired '
    'difference to the null document alone.',
    wrap=True,
  )


def probe(
  workdir: str,
  files: list[str],
  num_spans: int = 0,
  data_dir: str = '',
  step: str = '',
) -> None:
  """Ask all facts of a checkpoint, print the table and write the file."""
  if not files and not num_spans:
    raise ValueError('Neither --facts nor --num_spans: expected facts to ask.')
  trained = loading.load(workdir, data_dir, step=step, part='realm')
  run = config_lib.of_run(workdir, step)
  sets = {pathlib.Path(x).stem: facts_lib.read(x, trained) for x in files}
  if num_spans:
    source = realm_task.masked_sentences(run, trained.data, 'valid')
    sets['held-out spans'] = facts_lib.of_spans(source, num_spans, run.seed)
  index, rows = evaluators.open_index(trained), []
  for name, facts in sets.items():
    logging.info(
      '%s: %d facts; skipped: %s.', name, len(facts.rows), facts.skipped
    )
    rows += measure(trained, index, facts, name, run.batch_size)
  _print(rows)
  content = {'step': trained.step, 'rows': rows}
  path = reports.write_json(pathlib.Path(workdir) / FILE, content)
  logging.info('Written to %s.', path)


def main(unused_argv: list[str]) -> None:
  """Probe the run of --workdir."""
  names = ('workdir', 'facts', 'num_spans', 'data_dir', 'step')
  probe(*(flags.FLAGS[name].value for name in names))


if __name__ == '__main__':
  flags.DEFINE_multi_string(
    'facts', [], "JSON lines in LAMA's form; may repeat."
  )
  flags.DEFINE_integer(
    'num_spans', 0, 'Facts of the held-out sentences.', lower_bound=0
  )
  command.define_output('workdir', None, 'Folder of the run.', is_folder=True)
  flags.DEFINE_string('data_dir', '', 'Folder of the data, if they have moved.')
  flags.DEFINE_string('step', '', 'A number, best, or the newest.')
  flags.mark_flag_as_required('workdir')
  command.main_of_script(main)
