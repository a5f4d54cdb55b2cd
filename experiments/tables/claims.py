# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Judge the papers' claims by the measured intervals, and write their page.

  python -m experiments.tables.claims

claims.json beside this module holds the claims: which files in docs/results/evidence have
our differences, and which sign the claim gives them. docs/lab-notes/claims.md has the rule
of the verdicts: a claim says that all of its differences have its sign, and one is enough
to refute it.

Reads <output>/results/evidence and writes <output>/results/claims.md.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import pathlib
from typing import Any, Literal

from absl import flags
import numpy as np

from experiments.engine import command, progress, reports
from experiments.tables import evidence, intervals, paper_table
from retrieval.store import output_files

CLAIMS = pathlib.Path(__file__).with_suffix('.json')
FILE, EVIDENCE = 'results/claims.md', 'results/evidence'
VERDICTS = 'for', 'against', 'undecided', 'not tested'
FOR, AGAINST, UNDECIDED, NOT_TESTED = VERDICTS
LEVEL = 0.05  # of Holm's correction
FEWEST_SEEDS = 3


@dataclasses.dataclass(frozen=True)
class Difference:
  """A measured difference."""

  what: str
  estimate: intervals.Estimate
  percent: bool = False  # shares of questions or facts; otherwise bits per byte

  @property
  def few_seeds(self) -> bool:
    """Whether something was trained with too few seeds for a verdict."""
    return 0 < len(self.estimate.of_seeds) < FEWEST_SEEDS

  def figures(self) -> str:
    """The difference with its interval."""
    values = self.estimate.mean, *self.estimate.interval()
    mean, low, high = (
      f'{100 * x:+.1f}' if self.percent else f'{x:+.4f}' for x in values
    )
    return f'{mean} [{low}, {high}]'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
  """A claim of a paper, or a control of ours, and where its evidence is."""

  claim: str  # in some eight words
  machine: str = ''  # that trained our models
  added: bool = False  # when figures were known, not planned before them
  expected: Literal['below', 'above', 'near']  # sign of each difference
  within: float = 0.0  # tolerance of 'near'
  evidence: Sequence[Mapping[str, Any]] = ()  # as of `evidence.difference`
  control: bool = False  # a comparison beside the papers, corrected apart

  @property
  def planned(self) -> str:
    """Whether the row came before its figures, and its machine; '' for no machine."""
    planned = 'after' if self.added else 'before'
    return f'{planned}; {self.machine}' if self.machine else ''


@dataclasses.dataclass(frozen=True)
class Judged:
  """A claim, its differences and the verdict."""

  claim: Claim
  differences: Sequence[Difference]
  verdict: str
  p: float = 1.0  # after Holm's correction


def read(claim: Claim, folder: pathlib.Path) -> list[Difference]:
  """Read the differences of a claim; [] for a claim that was not tested."""
  return [
    Difference(
      x['what'], evidence.difference(folder, x), x.get('percent', False)
    )
    for x in claim.evidence
  ]


def p_values(
  claim: Claim, differences: Sequence[Difference]
) -> tuple[float, float]:
  """p-values for a claim, that all differences hold, and against it, that one fails."""
  estimates, within = [x.estimate for x in differences], claim.within
  above = [x.above(-within) for x in estimates]
  below = [x.below(within) for x in estimates]
  holds = above + below
  fails = [min(x.above(within), x.below(-within)) for x in estimates]
  if claim.expected == 'below':
    holds, fails = below, above
  if claim.expected == 'above':
    holds, fails = above, below
  return max(holds), min(1.0, len(fails) * min(fails))


def judge(
  claims: Sequence[tuple[Claim, Sequence[Difference]]],
) -> list[Judged]:
  """Judge all claims of a page together, by the rule of the module."""
  both = [p_values(*x) if x[1] else (1.0, 1.0) for x in claims]
  p = np.array([min(1.0, 2 * min(x)) for x in both])
  testable = np.array(
    [bool(x) and not any(y.few_seeds for y in x) for _, x in claims]
  )
  controls = np.array([claim.control for claim, _ in claims])
  for family in (testable & ~controls, testable & controls):
    p[family] = intervals.holm(p[family])
  p[~testable] = 1.0
  judged = []
  for (claim, measured), (for_, against), corrected in zip(
    claims, both, p, strict=True
  ):
    verdict = UNDECIDED if measured else NOT_TESTED
    if corrected < LEVEL:
      verdict = FOR if for_ < against else AGAINST
    judged.append(Judged(claim, measured, verdict, float(corrected)))
  return judged


def markdown(head: Sequence[str], judged: Sequence[Judged]) -> str:
  """The page: a table of the papers' claims, and one of our controls."""
  lines = ["# The papers' claims, tested in small", '', *head]
  for name, control in (("The papers' claims", False), ('Our controls', True)):
    rows = [x for x in judged if x.claim.control is control]
    verdicts = [x.verdict for x in rows]
    counts = [f'{verdicts.count(x)} {x}' for x in VERDICTS if x in verdicts]
    lines += ['', f'## {name}', '', f'{", ".join(counts)}.', '']
    cells = []
    for x in rows:
      figures = '; '.join(y.figures() for y in x.differences)
      cells.append((x.claim.claim, x.verdict, figures, x.claim.planned))
    heads = ('claim', 'verdict', 'difference', 'planned')
    lines += paper_table.markdown(heads, cells, '|---|---|---|---|')
  return '\n'.join(lines) + '\n'


def load(docs: pathlib.Path) -> tuple[str, list[Judged]]:
  """Return the page that claims.json and the evidence in `docs` make, and its rows."""
  content = json.loads(CLAIMS.read_text(encoding='utf-8'))
  claims = [Claim(**fields) for fields in content['claims']]
  judged = judge([(x, read(x, docs / EVIDENCE)) for x in claims])
  return markdown(content['summary'], judged), judged


def main(argv: list[str]) -> None:
  """Print the verdicts and write the page."""
  del argv
  docs = pathlib.Path(flags.FLAGS.output)
  page, judged = load(docs)
  rows = []
  for x in judged:
    figures = '\n'.join(f'{y.what} {y.figures()}' for y in x.differences)
    verdict = f'{x.verdict}, p = {x.p:.2g}' if x.p < 1 else x.verdict
    rows.append((x.claim.claim, figures, verdict))
  reports.print_table(['claim', 'ours', 'verdict'], rows, wrap=True)
  output_files.write(docs / FILE, page.encode())
  progress.console().print(f'The page is {docs / FILE}.')


if __name__ == '__main__':
  command.define_output(
    'output', 'docs', 'Folder with results/evidence.', is_folder=True
  )
  command.main_of_script(main)
