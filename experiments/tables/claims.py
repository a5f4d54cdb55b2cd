# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Judge the papers' claims by the measured intervals, and write their two pages.

  python -m experiments.tables.claims --runs=runs/claims

claims.json beside this module holds the claims: what the paper says, in which results
files of --runs our differences are, and which sign the claim gives them. A claim says
that all of its differences have that sign: its p-value for is the largest of theirs, and
its p-value against, as one is enough to refute it, the smallest times their number. The
smaller one is doubled, as both sides are asked; that a difference is near to zero asks
whether it lies within (or outside) the claim's tolerance. Holm's correction is over the
papers' claims, and over our controls, that were measured with three seeds or more of
everything that was trained. A claim is for (or against) if its corrected p-value is
below .05. Else it is undecided.

Writes two pages into --output: results/claims.md has the verdicts, lab-notes/claims.md the
rule, models, figures and commands. Writes their pictures into results/figures/, and copies
the values that they cite into results/evidence/. A file that --runs lacks is read there.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import pathlib
from typing import Any, Literal

from absl import flags
import numpy as np

from experiments.engine import command, pictures, progress, reports
from experiments.tables import evidence, figures, intervals, paper_table
from retrieval.store import output_files

CLAIMS = pathlib.Path(__file__).with_suffix('.json')
FILE, DETAILS = 'results/claims.md', 'lab-notes/claims.md'
PICTURE, EVIDENCE = 'results/figures/claims.png', 'results/evidence'
FOR, AGAINST, UNDECIDED, NOT_TESTED = (
  'for',
  'against',
  'undecided',
  'not tested',
)
VERDICTS = FOR, AGAINST, UNDECIDED, NOT_TESTED
LEVEL = 0.05  # of Holm's correction
FEWEST_SEEDS = 3


@dataclasses.dataclass(frozen=True)
class Difference:
  """A measured difference."""

  what: str
  percent: bool  # shares of questions or facts; otherwise bits per byte
  estimate: intervals.Estimate
  raw: bool  # computed from the values of single items

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

  def text(self) -> str:
    """The difference in words and figures."""
    seeds = len(self.estimate.of_seeds)
    count = f', {seeds} seed{"s" * (seeds > 1)}' if seeds else ''
    unit = ' points' if self.percent else ''
    return f'{self.what} {self.figures()}{unit}{count}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
  """A claim of a paper and where its evidence is."""

  system: str
  claim: str
  short: str = ''  # the claim in some eight words
  source: str  # paper and place
  paper: str  # the paper's figures
  models: str = ''  # start and size of ours
  machine: str = ''  # that trained ours
  added: bool = False  # when figures were known, not planned before them
  expected: Literal[
    'below', 'above', 'near'
  ]  # sign of each difference, by the claim
  within: float = 0.0  # tolerance of 'near'
  evidence: Sequence[Mapping[str, Any]] = ()  # of `evidence.difference`, `what`
  measured: str = ''  # by which commands: a key of the file's `commands`
  remark: str = ''  # what to know; of a claim without evidence, the reason
  figure: str = ''  # name of the figure that shows it
  control: bool = False  # a comparison beside the papers, which is not counted
  headline: bool = False  # in the first table


@dataclasses.dataclass(frozen=True)
class Judged:
  """A claim, its differences and the verdict."""

  claim: Claim
  differences: Sequence[Difference]
  verdict: str
  p: float = 1.0  # after Holm's correction

  def text(self) -> str:
    """Return the verdict with its p-value, or the reason that forbids one."""
    if not self.differences:
      return self.verdict
    few = [len(x.estimate.of_seeds) for x in self.differences if x.few_seeds]
    if few:
      return f'{self.verdict}: {min(few)} seed{"s" * (min(few) > 1)}'
    return (
      f'{self.verdict}, p {f"= {self.p:.2g}" if self.p > 1e-4 else "< .0001"}'
    )


def read(claim: Claim, folders: Sequence[pathlib.Path]) -> list[Difference]:
  """Read the differences of a claim from the first folder with each results file.

  Returns:
    [] where something that the claim names is missing: not tested.

  Raises:
    ValueError: for a file of another form.
  """
  differences = []
  for one in claim.evidence:
    estimate = evidence.difference(folders, one)
    if estimate is None:
      return []
    percent = one.get('percent', False)
    differences.append(Difference(one['what'], percent, estimate, 'row' in one))
  return differences


def p_values(
  claim: Claim, differences: Sequence[Difference]
) -> tuple[float, float]:
  """p-values for a claim, that all differences hold, and against it, that one fails."""
  estimates, within = [x.estimate for x in differences], claim.within
  above = [x.above(-within) for x in estimates]
  below = [x.below(within) for x in estimates]
  holds, fails = (
    above + below,
    [min(x.above(within), x.below(-within)) for x in estimates],
  )
  if claim.expected == 'below':
    holds, fails = below, above
  if claim.expected == 'above':
    holds, fails = above, below
  return max(holds), min(1.0, len(fails) * min(fails))


def judge(
  claims: Sequence[tuple[Claim, Sequence[Difference]]],
) -> list[Judged]:
  """Judge all claims of a page together; see the module."""
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


def summary(content: Mapping[str, Any], judged: Sequence[Judged]) -> str:
  """The short page: a table of the papers' claims, and one of our controls."""
  lines = ["# The papers' claims, tested in small", '', *content['summary']]
  for name, control in (("The papers' claims", False), ('Our controls', True)):
    rows = [x for x in judged if x.claim.control is control]
    lines += ['', f'## {name}', '', f'{_counts(rows)}.', '']
    cells = [
      (
        x.claim.short or x.claim.claim,
        x.verdict,
        '; '.join(y.figures() for y in x.differences),
        _planned(x.claim),
      )
      for x in rows
    ]
    heads = ('claim', 'verdict', 'difference', 'planned')
    lines += paper_table.markdown(heads, cells, '|---|---|---|---|')
  return '\n'.join(lines) + '\n'


def _counts(rows: Sequence[Judged]) -> str:
  """Count the verdicts of rows, in words and figures."""
  verdicts = [x.verdict for x in rows]
  shown = [x for x in VERDICTS if x in verdicts]
  return ', '.join(f'{verdicts.count(x)} {x}' for x in shown)


def _planned(claim: Claim) -> str:
  """Say whether a row came before its figures, and its machine; '' for no machine."""
  planned = 'after' if claim.added else 'before'
  return f'{planned}; {claim.machine}' if claim.machine else ''


def markdown(
  content: Mapping[str, Any],
  judged: Sequence[Judged],
  drawn: Sequence[Mapping[str, Any]] = (),
) -> str:
  """The page of details: rule, headline, a table for each verdict, figures and commands."""
  papers = [x for x in judged if not x.claim.control]
  lines = ["# The papers' claims, tested in small", '', *content['preface']]
  lines += ['', '## Rule', '', *content['rule'], '', '## Words', '']
  lines += paper_table.markdown(('word', 'meaning'), content['words'])
  lines += [
    '',
    '## Verdicts',
    '',
    f'Claims of the papers: {_counts(papers)}. Controls of '
    f'our own, in the same tables: {len(judged) - len(papers)}.',
  ]
  lines += ['', '### What speaks against us', '', *content['against']]
  if any(x.differences for x in judged):
    lines += ['', f'![Intervals of all claims](../{PICTURE})']
  links = {
    x['name']: f' [Figure](#{x["title"].lower().replace(" ", "-")}).'
    for x in drawn
  }
  headline = [x for x in judged if x.claim.headline]
  parts = {'Headline: RETRO against its baselines': headline} | {
    name.capitalize(): [
      x for x in judged if x.verdict == name and not x.claim.headline
    ]
    for name in VERDICTS
  }
  for name, rows in parts.items():
    if rows:
      lines += ['', f'### {name}', '', *_table(rows, links)]
  lines += figures.markdown(drawn)
  lines += ['', '## Commands']
  for name, text in content['commands'].items():
    lines += ['', f'### {name}', '', *text]
  return '\n'.join(lines) + '\n'


def _table(rows: Sequence[Judged], links: Mapping[str, str]) -> list[str]:
  """Return the table of one part of the page; rows without figures have a reason."""
  heads = ('claim', 'paper')
  if any(x.differences for x in rows):
    heads += ('our models', 'planned', 'ours', 'verdict')
  lines = []
  for row in rows:
    claim = row.claim
    remark = claim.remark + links.get(claim.figure, '')
    if claim.measured:
      remark += f' [Commands](#{claim.measured}).'
    cells = [f'**{claim.system}**: {claim.claim} ({claim.source})', claim.paper]
    if len(heads) > 2:
      ours = '<br>'.join(x.text() + '†' * (not x.raw) for x in row.differences)
      cells += [claim.models, _planned(claim), ours, row.text()]
    lines.append([*cells, remark.strip()])
  heads += ('remark',) if len(heads) > 2 else ('why not',)
  return paper_table.markdown(heads, lines, '|' + '---|' * len(heads))


def plot(judged: Sequence[Judged], path: pathlib.Path) -> None:
  """Draw every interval, a panel for each unit; color and marker are the verdict."""
  from matplotlib import lines, ticker

  looks = {FOR: ('C0', 'o'), AGAINST: ('C1', 'X'), UNDECIDED: ('C7', 's')}
  drawn = [
    [
      (x, one)
      for x in judged
      for one in x.differences
      if one.percent is percent
    ]
    for percent in (False, True)
  ]
  drawn = [rows for rows in drawn if rows]
  heights = [len(rows) + 3 for rows in drawn]
  shape = {
    'nrows': len(drawn),
    'figsize': (9.6, 0.3 * sum(heights)),
    'height_ratios': heights,
    'squeeze': False,
  }
  with pictures.picture(path, **shape) as (figure, panels):
    for axes, rows in zip(panels[:, 0], drawn, strict=True):
      percent = rows[0][1].percent
      scale, unit = (100, 'points') if percent else (1, 'bits a byte')
      for i, (x, one) in enumerate(rows):
        (color, marker), estimate = looks[x.verdict], one.estimate
        axes.plot(scale * np.array(estimate.interval()), [i, i], color=color)
        axes.plot(scale * estimate.mean, i, marker, color=color)
        seeds = scale * np.array(estimate.of_seeds)
        axes.plot(seeds, [i] * len(seeds), '|', color=color, markersize=9)
      axes.axvline(0, color='black', linewidth=0.8)
      # The gains of kNN-LM are ten times those of RETRO.
      axes.set_xscale('symlog', linthresh=0.02 * scale, linscale=1)
      axes.xaxis.set_major_formatter(lambda x, _: f'{x:+g}' if x else '0')
      axes.xaxis.set_minor_locator(ticker.NullLocator())
      names = [one.what for _, one in rows]
      axes.set_yticks(range(len(rows)), names)
      axes.set_ylim(len(rows) - 0.5, -0.5)
      axes.set_xlabel(f'{unit} (steps beyond ±{0.02 * scale:g} are shortened)')
      axes.grid(alpha=0.3)
    keys = [
      lines.Line2D([], [], color=color, marker=marker, label=name)
      for name, (color, marker) in looks.items()
    ]
    seed = {'color': 'black', 'marker': '|', 'linestyle': '', 'markersize': 9}
    keys.append(lines.Line2D([], [], label='a seed', **seed))
    figure.legend(handles=keys, loc='outside upper center', ncols=4)


def load() -> tuple[dict[str, Any], list[Claim]]:
  """Read claims.json: all of it, and its claims."""
  content = json.loads(CLAIMS.read_text(encoding='utf-8'))
  return content, [Claim(**fields) for fields in content['claims']]


def run(runs: pathlib.Path | None, output: pathlib.Path) -> list[str]:
  """Judge all claims, write the page, and return the verdicts.

  Args:
    runs: folder of new results files; None for those of OUTPUT/evidence alone.

  Raises:
    ValueError: for a results file that lacks what a claim names.
  """
  content, claims = load()
  cited = output / EVIDENCE
  folders = [cited] if runs is None else [runs, cited]
  judged = judge([(claim, read(claim, folders)) for claim in claims])
  rows = [
    (
      f'{x.claim.system}: {x.claim.claim}',
      '\n'.join(y.text() for y in x.differences),
      x.text(),
    )
    for x in judged
  ]
  reports.print_table(['claim', 'ours', 'verdict'], rows, wrap=True)
  shown = figures.load()
  if runs is not None:
    evidence.copy(
      runs,
      cited,
      [x for y in claims for z in y.evidence for x in evidence.places(z)]
      + [*figures.places(shown)],
    )
  drawn = figures.draw_all(shown, folders, output / figures.FOLDER)
  if any(x.differences for x in judged):
    plot(judged, output / PICTURE)
  pages = {
    FILE: summary(content, judged),
    DETAILS: markdown(content, judged, drawn),
  }
  for name, page in pages.items():
    output_files.write(output / name, page.encode())
  progress.console().print(f'The page is {output / FILE}.')
  return [x.verdict for x in judged]


def main(argv: list[str]) -> None:
  """Read the flags and write the page."""
  if len(argv) > 1:
    raise ValueError(f'Unexpected arguments {argv[1:]}; flags start with --.')
  runs = pathlib.Path(flags.FLAGS.runs) if flags.FLAGS.runs else None
  if runs is not None and not runs.is_dir():
    raise ValueError(
      f'--runs={runs}: expected the folder of the results files.'
    )
  run(runs, pathlib.Path(flags.FLAGS.output))


if __name__ == '__main__':
  flags.DEFINE_string(
    'runs', '', "Folder of new results; '': only OUTPUT/evidence."
  )
  command.define_output(
    'output', 'docs', 'Folder of the pages.', is_folder=True
  )
  command.main_of_script(main)
