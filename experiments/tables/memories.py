# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Write the page of memories at equal cost from the values of experiments.arena.

  python -m experiments.tables.memories

Reads <output>/results/evidence/memories/*.json with their .npz and writes
<output>/results/memories.md, and <output>/lab-notes/memories.md with costs, intervals
and thirds. An arm is judged by the rule of `experiments.tables.claims`:
it pays if it is below the baseline on every split, and Holm's correction is over the
arms of a table. A table of fewer than five seeds has no verdicts.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import json
import pathlib
from typing import Any

from absl import flags
import numpy as np

from experiments.engine import command, progress
from experiments.tables import claims, intervals, paper_table
from retrieval.store import manifests, output_files

FILE, EVIDENCE = 'results/memories.md', 'results/evidence/memories'
NOTES = 'lab-notes/memories.md'
_CORPORA = {'quickstart': 'packaged', 'simplewiki': 'Simple English'}
_COLUMNS = {'bytes': 'bytes', 'flops': 'FLOPs', 'seconds': 'seconds'}
_VERDICTS = {claims.FOR: 'pays', claims.AGAINST: 'does not pay'}
_REFUSED = 'refused by the referee'
_SHOWN = {'pays': '**{}**', 'does not pay': '({})', _REFUSED: 'refused'}
_SHOWN |= dict.fromkeys(('', claims.UNDECIDED), '{}')
_ABOVE = 1.05  # of the budget: marked
_SEEDS = 5  # of the rule
# Row, file of docs/results/evidence/reading and its modes of documents and swapped, and
# the row's name in facts_costs.json.
_FACTS = (
  ('nothing', 'facts_rows', 'off', '', 'nothing'),
  ('kNN-LM', 'facts_knn', 'best', 'best_swapped', 'knn'),
  (
    *('its document in the prompt, untrained', 'facts_rows'),
    *('prompt', '', 'prompt'),
  ),
  (
    *('its document in the prompt, trained', 'facts_control'),
    *('document', 'document_swapped', 'prompt'),
  ),
  ('two neighbors (RETROfit)', 'facts_rows', 'real', 'swapped', 'neighbors'),
)
_OF_FACTS = (
  'Right facts of 24 documents, one seed, greedy '
  '([how](../lab-notes/retro.md#a-retrofit-that-reads)). Seconds: of a CPU, a fact of 14 '
  'tokens. MB: what is kept of the 24 documents. kNN-LM has the best of 36 settings, '
  'chosen in hindsight.'
)
HEAD = """# Memories at equal cost

- **Train longer first**: in as many bytes, 2.7 times the steps gain more than any memory of 14 MB; of 92 MB (Simple English), only kNN-LM over
  hashed n-grams gains more (0.02).
- **Where bytes are short**, hashed n-grams gain most, in 92 MB kNN-LM over them; a wider model gains 0.1 at 3 and 15 times the
  FLOPs; RETRO little (ten neighbors at six times; two only in 92 MB).
- **Where training is short**, kNN-LM over hashed n-grams gains most, in 315 and 390 MB against 14; others gain less (copies once as much).
- **RETRO does not pay for its training**: in its FLOPs or seconds the baseline takes twice the steps (six to eight times those of ten
  neighbors, mostly warm-up). Neither does a wider model.
- **In the third of Simple English that repeats the corpus most** copies gain 0.44 ±0.08, RETRO loses 0.20 ±0.03 (equal FLOPs; equal bytes: 0.57 ±0.10, and RETRO gains 0.10 ±0.03).

All models are small and read 0.2 to 1.4 M tokens; trained longer, they gain less from copies and n-grams.

Bits a byte minus the baseline's, on held-out articles and fresh documents; five seeds. **Bold**: pays; (in brackets): does not; plain: undecided.
"""
TEXT = """
*longer* is the baseline with more steps; *retro_k* reads k neighbors from the copying start;
*copier* mixes the baseline with n-grams of ten neighbors; *ngrams* looks its last tokens up in hashed tables (Engram);
*knn_lm_ngrams* is a kNN-LM over it ([arms](../../configs/retro_arena_quickstart.py)). Neighbors come from BM25.
Left out: the start of the RETROfit that reads, which [did not serve](../lab-notes/retro.md#reading-with-its-own-attention-from-scratch).

**Equal bytes** of weights and memory: those of retro_2; all but *longer* take 250 steps of 2,048 tokens, so FLOPs differ. **Equal FLOPs** of
training, those of retro_2, a kNN-LM's keys included; bytes differ. **Equal seconds** of a CPU, those of that kNN-LM with its index, without the search for neighbors.

**Rule**, written before the first figure: an arm pays if it is below the baseline on `test` and on
300 fresh documents of the other corpus; one failure refutes it. p-values join documents and five seeds; Holm's correction is over
the arms of a column, level 0.05 ([rule](../lab-notes/claims.md#rule)). An arm that `experiments.referee` refuses has no verdict. Weights of
copies and of kNN-LM are tuned on `valid`. [Costs, intervals, thirds](../lab-notes/memories.md),
by `python -m experiments.tables.memories` from [raw values](evidence/).
"""
DETAILS = """# Memories at equal cost: details

Of the [page](../results/memories.md) that says what the arms are. Bits a byte, baseline first, then differences from it with half of their 95 % interval over
documents and seeds; thirds are those of `test` by r(C), what a document shares with the training. MB: weights and memory; TFLOP and CPU seconds: training, and a
kNN-LM's keys, without the search for neighbors. ^ is more than 5 % above the budget; kNN-LMs of Simple English Wikipedia have 3 % more FLOPs than others.

The wider model of 92 MB learns at a rate of 0.001, chosen on `valid` (seed 0): it has 3.98 nats a token there, at 0.003, the rate of all other arms, 4.62; the baseline has
4.13. The wider model of 14 MB keeps 0.003 (4.17; at half of it 4.19). The first ran on another machine; its seconds are divided by the
ratio of the baseline's. kNN-LM of that column, ^, gains 0.270 / 0.276 in 81.9 MB (465 documents) where it gains 0.282 / 0.294 in 98.6 (seed 0).

The referee read the copiers of these tables with two neighbors, although their weights were fitted to ten. It was corrected; with ten it passed a copier over the baseline of equal
bytes on Simple English (seed 0). The others were not judged again.

Arms of equal texts are trained once a seed: retro_2 of equal bytes stands in equal FLOPs, kNN-LMs of equal FLOPs in equal seconds. The budget of seconds was 160 at first, which
building kNN-LM's index overran; it was set to 187, what kNN-LM takes (208 on Simple English Wikipedia), before any figure of that column.
"""


def estimate(
  arrays: Mapping[str, np.ndarray],
  split: str,
  arm: str,
  against: str = '',
  chosen: Any = slice(None),
) -> intervals.Estimate:
  """Estimate bits a byte of an arm, minus those of another, over some documents."""
  values = arrays[f'{split}/{arm}'].astype(np.float64)
  if against:
    values = values - arrays[f'{split}/{against}']
  weights = arrays[f'{split}/bytes'] * np.log(2)
  return intervals.of_values(values[:, chosen], weights[chosen])


def thirds(overlap: np.ndarray) -> list[np.ndarray]:
  """Split the documents' places into thirds by r(C), lowest first."""
  return np.array_split(np.argsort(overlap, kind='stable'), 3)


@dataclasses.dataclass(frozen=True)
class Table:
  """Costs and nats of the arms of one corpus and column."""

  content: Mapping[str, Any]
  arrays: Mapping[str, np.ndarray]

  @property
  def splits(self) -> list[str]:
    """Names of the splits, `test` first."""
    return list(dict.fromkeys(x.partition('/')[0] for x in self.arrays))

  @property
  def title(self) -> str:
    """Corpus and what is equal."""
    name = self.content['corpus']
    equal = _COLUMNS[self.content['equal']]
    return f'{_CORPORA.get(name, name)}, equal {equal}'

  def differences(self, arm: str) -> list[intervals.Estimate]:
    """An arm minus the baseline, on each split."""
    against = self.content['against']
    return [estimate(self.arrays, x, arm, against) for x in self.splits]

  @functools.cached_property
  def verdicts(self) -> dict[str, str]:
    """The verdict on each arm but the baseline."""
    arms, done = self.content['arms'], len(self.content['seeds'])
    others = [arm for arm in arms if arm != self.content['against']]
    if done < _SEEDS:
      return dict.fromkeys(others, f'{done} of {_SEEDS} seeds')
    rows = []
    for arm in others:
      each = [*map(claims.Difference, self.splits, self.differences(arm))]
      rows.append((claims.Claim(claim=arm, expected='below'), each))
    verdicts = {
      x.claim.claim: _VERDICTS.get(x.verdict, x.verdict)
      for x in claims.judge(rows)
    }
    refused = {
      x: _REFUSED
      for x in others
      if arms[x]['failed'] or arms[self.content['against']]['failed']
    }
    return verdicts | refused


def _half(x: intervals.Estimate) -> str:
  low, high = x.interval()
  return f'{x.mean:+.4f} ±{(high - low) / 2:.4f}'


def details(table: Table) -> list[str]:
  """Lines of the table of one corpus and column, with costs and thirds."""
  content, arrays, splits = table.content, table.arrays, table.splits
  against = content['against']
  parts = thirds(arrays[f'{splits[0]}/overlap'])
  means = {
    arm: estimate(arrays, splits[0], arm).mean for arm in content['arms']
  }
  cells = []
  for arm in sorted(means, key=lambda x: (x != against, means[x])):
    costs = content['arms'][arm]['costs']
    cost = {x: float(np.mean([y[x] for y in costs])) for x in _COLUMNS}
    over = cost[content['equal']] > _ABOVE * content['budget']
    row = [arm + '^' * over, f'{cost["bytes"] / 1e6:.1f}']
    row += [f'{cost["flops"] / 1e12:.0f}', f'{cost["seconds"]:.0f}']
    if arm == against:
      row += [f'{estimate(arrays, x, arm).mean:.4f}' for x in splits]
      each = [estimate(arrays, splits[0], arm, '', x) for x in parts]
      row += [' '.join(f'{x.mean:.3f}' for x in each), '']
    else:
      row += [_half(x) for x in table.differences(arm)]
      each = [estimate(arrays, splits[0], arm, against, x) for x in parts]
      row += [' '.join(f'{x.mean:+.3f}' for x in each), table.verdicts[arm]]
    cells.append(row)
  heads = ('arm', 'MB', 'TFLOP', 's', *splits, 'thirds', 'verdict')
  lines = paper_table.markdown(heads, cells, '|' + '---|' * len(heads))
  sizes = [f'{len(arrays[f"{x}/bytes"])} of `{x}`' for x in splits]
  said = f'{len(content["seeds"])} seeds; {", ".join(sizes)}.'
  return ['', f'## {table.title}', '', said, '', *lines]


def overview(tables: Sequence[Table]) -> list[str]:
  """Lines of the table of all verdicts: an arm a row, a table a column."""
  gains = {}
  for table in tables:
    for arm in table.verdicts:
      gains.setdefault(arm, []).append(table.differences(arm)[0].mean)
  cells = []
  for arm in sorted(gains, key=lambda x: np.mean(gains[x])):
    row = [arm]
    for table in tables:
      verdict = table.verdicts.get(arm, '')
      means = table.differences(arm) if verdict else ()
      text = ' '.join(f'{x.mean:+.3f}' for x in means)
      row.append(_SHOWN.get(verdict, f'{{}} {verdict}').format(text))
    cells.append(row)
  heads = ('arm', *(x.title for x in tables))
  return paper_table.markdown(heads, cells, '|' + '---|' * len(heads))


def facts(folder: pathlib.Path) -> list[str]:
  """Lines of the table of facts, from the sentences that were written."""
  costs, cells = manifests.read_object(folder / 'facts_costs.json'), []
  for name, file, *modes, of_costs in _FACTS:
    rows = json.loads((folder / f'{file}.json').read_text(encoding='utf-8'))
    each = [[x['right'] for x in rows if x['mode'] == mode] for mode in modes]
    right = [f'{sum(x)} of {len(x)}' if x else '' for x in each]
    cost = costs[of_costs]
    megabytes = f'{cost["bytes"] / 1e6:.2f}'
    cells.append((name, *right, f'{cost["seconds"]:.1f}', megabytes))
  heads = ('SmolLM2-135M writes from', 'facts', 'swapped', 's', 'MB')
  lines = paper_table.markdown(heads, cells, '|' + '---|' * len(heads))
  return ['', '## Facts of own documents', '', *lines, '', _OF_FACTS]


def pages(folder: pathlib.Path) -> dict[str, str]:
  """The pages that the files of a folder and of `reading` beside it make."""
  tables = []
  for path in folder.glob('*_*.json'):
    with np.load(path.with_suffix('.npz')) as arrays:
      tables.append(Table(manifests.read_object(path), dict(arrays)))
  tables.sort(
    key=lambda x: (x.content['corpus'], [*_COLUMNS].index(x.content['equal']))
  )
  lines = [HEAD, *overview(tables), TEXT, *facts(folder.parent / 'reading')]
  notes = [DETAILS, *(line for x in tables for line in details(x))]
  return {FILE: '\n'.join(lines) + '\n', NOTES: '\n'.join(notes) + '\n'}


def main(argv: list[str]) -> None:
  """Write the pages."""
  del argv
  docs = pathlib.Path(flags.FLAGS.output)
  for name, text in pages(docs / EVIDENCE).items():
    output_files.write(docs / name, text.encode())
    progress.console().print(f'Written: {docs / name}.')


if __name__ == '__main__':
  command.define_output(
    'output', 'docs', 'Folder with results/evidence.', is_folder=True
  )
  command.main_of_script(main)
