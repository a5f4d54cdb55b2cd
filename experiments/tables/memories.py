# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Write the page of memories at equal cost from the values of experiments.arena.

  python -m experiments.tables.memories

Reads <output>/results/evidence/memories/*.json with their .npz and writes
<output>/results/memories.md. An arm is judged by the rule of `experiments.tables.claims`:
it pays if it is below the baseline on every split, and Holm's correction is over the
arms of a table. A table of fewer than five seeds has no verdicts.
"""

from collections.abc import Mapping
import json
import pathlib
from typing import Any

from absl import flags
import numpy as np

from experiments.engine import command, progress
from experiments.tables import claims, intervals, paper_table
from retrieval.store import manifests, output_files

FILE, EVIDENCE = 'results/memories.md', 'results/evidence/memories'
_COLUMNS = ('bytes', 'flops', 'seconds')
_VERDICTS = {claims.FOR: 'pays', claims.AGAINST: 'does not pay'}
_ABOVE = 1.05  # of the budget: marked
_SEEDS = 5  # of the rule
# Row, file of docs/results/evidence/reading and its modes of documents and swapped, and
# the row's name in facts_costs.json.
_FACTS = (
  ('nothing', 'facts_rows', 'off', '', 'nothing'),
  ('kNN-LM', 'facts_knn', 'best', 'best_swapped', 'knn'),
  (
    'its document in the prompt, untrained',
    'facts_rows',
    'prompt',
    '',
    'prompt',
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

Which memory pays at this size: a wider model, RETRO, kNN-LM, copied or hashed n-grams?
Arms are those of [retro_arena_quickstart.py](../../configs/retro_arena_quickstart.py): *longer* is the baseline with more
steps, *wider* one of more parameters; *retro_k* reads k neighbors from the copying start; *copier* mixes the baseline with n-grams of
ten neighbors; *ngrams* looks its last tokens up in hashed tables (Engram); *knn_lm_ngrams* is a kNN-LM over it. All
neighbors come from BM25, since an embedder of 91 MB would not fit a budget of 14. RETRO from the start of the RETROfit that
reads is left out: it [did not serve](../lab-notes/retro.md#reading-with-its-own-attention-from-scratch). RETRO trains for 250 steps of
2,048 tokens, a quarter of the articles: half of its [other rows](retro.md), for time. In equal bytes all but *longer* take as many steps,
so FLOPs differ, and *wider* is what a memory's bytes give without one. Not run yet: equal FLOPs, equal seconds, Simple English Wikipedia.

**Rule**, written before the first figure: an arm pays if it is below the baseline on `test` (articles like those of the training) and on
fresh documents (of Simple English Wikipedia); one failure refutes it. p-values join documents and five seeds; Holm's correction is over
the arms of a table, level 0.05 ([rule](../lab-notes/claims.md#rule)). An arm that `experiments.referee` refuses has no verdict. Weights of
copies and of kNN-LM are tuned on `valid`.

Bits a byte, baseline first, then differences from it with half of their 95 % interval over documents and seeds; thirds are those of `test` by
r(C), what a document shares with the training. MB: weights and memory; TFLOP and CPU seconds: training, and a kNN-LM's keys, without the search for neighbors. ^ is above the budget.
`python -m experiments.tables.memories` writes this page from [raw values](evidence/).
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


def judge(
  content: Mapping[str, Any], arrays: Mapping[str, np.ndarray], splits: list
) -> dict[str, str]:
  """Return the verdict on each arm but the baseline."""
  against, done = content['against'], len(content['seeds'])
  others = [arm for arm in content['arms'] if arm != against]
  if done < _SEEDS:
    return dict.fromkeys(others, f'{done} of {_SEEDS} seeds')
  rows = []
  for arm in others:
    differences = [
      claims.Difference(split, estimate(arrays, split, arm, against))
      for split in splits
    ]
    rows.append((claims.Claim(claim=arm, expected='below'), differences))
  judged = claims.judge(rows)
  return {x.claim.claim: _VERDICTS.get(x.verdict, x.verdict) for x in judged}


def _half(x: intervals.Estimate) -> str:
  low, high = x.interval()
  return f'{x.mean:+.4f} ±{(high - low) / 2:.4f}'


def table(
  content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> list[str]:
  """Lines of the table of one corpus and column."""
  against = content['against']
  splits = list(dict.fromkeys(x.partition('/')[0] for x in arrays))
  verdicts = judge(content, arrays, splits)
  parts = thirds(arrays[f'{splits[0]}/overlap'])
  means = {
    arm: estimate(arrays, splits[0], arm).mean for arm in content['arms']
  }
  cells = []
  for arm in sorted(means, key=lambda x: (x != against, means[x])):
    costs = content['arms'][arm]['costs']
    cost = {x: float(np.mean([y[x] for y in costs])) for x in _COLUMNS}
    over = cost[content['equal']] > _ABOVE * content['budget']
    if content['arms'][arm]['failed']:
      verdicts[arm] = 'refused by the referee'
    row = [arm + '^' * over, f'{cost["bytes"] / 1e6:.1f}']
    row += [f'{cost["flops"] / 1e12:.0f}', f'{cost["seconds"]:.0f}']
    if arm == against:
      row += [f'{estimate(arrays, x, arm).mean:.4f}' for x in splits]
      each = [estimate(arrays, splits[0], arm, '', x) for x in parts]
      row += [' '.join(f'{x.mean:.3f}' for x in each), verdicts.get(arm, '')]
    else:
      row += [_half(estimate(arrays, x, arm, against)) for x in splits]
      each = [estimate(arrays, splits[0], arm, against, x) for x in parts]
      row += [' '.join(f'{x.mean:+.3f}' for x in each), verdicts[arm]]
    cells.append(row)
  heads = ('arm', 'MB', 'TFLOP', 's', *splits, 'thirds', 'verdict')
  lines = paper_table.markdown(heads, cells, '|' + '---|' * len(heads))
  seeds = len(content['seeds'])
  name = f'## {content["corpus"]}, equal {content["equal"]}'
  sizes = [f'{len(arrays[f"{x}/bytes"])} of `{x}`' for x in splits]
  said = {x[-1]: [y[0] for y in cells if y[-1] == x[-1]] for x in cells[1:]}
  said = '; '.join(f'**{x}**: {", ".join(arms)}' for x, arms in said.items())
  above = f'{seeds} seeds; {", ".join(sizes)}. Most gain first, {said}.'
  return ['', name, '', above, '', *lines]


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


def page(folder: pathlib.Path) -> str:
  """The page that the files of a folder and of `reading` beside it make."""
  lines = HEAD.splitlines()
  paths = sorted(folder.glob('*_*.json'))
  for path in paths:
    content = manifests.read_object(path)
    with np.load(path.with_suffix('.npz')) as arrays:
      lines += table(content, dict(arrays))
  if not paths:
    lines += ['', 'Not run.']
  return '\n'.join([*lines, *facts(folder.parent / 'reading')]) + '\n'


def main(argv: list[str]) -> None:
  """Write the page."""
  del argv
  docs = pathlib.Path(flags.FLAGS.output)
  output_files.write(docs / FILE, page(docs / EVIDENCE).encode())
  progress.console().print(f'The page is {docs / FILE}.')


if __name__ == '__main__':
  command.define_output(
    'output', 'docs', 'Folder with results/evidence.', is_folder=True
  )
  command.main_of_script(main)
