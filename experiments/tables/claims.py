# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Judge the papers' claims by the measured intervals, and write docs/results/claims.md.

  python -m experiments.tables.claims --runs=runs/claims

claims.json beside this module holds the claims: what the paper says, in which results
files of --runs our differences are, and which sign the claim gives them. A claim is
decided for (or against) if all of its intervals, and each seed's difference, lie on its
side of zero (or on the other side); a claim that two models are near to each other, if
they all lie within (or outside) its tolerance. Else it is undecided.

Writes into --output claims.md, the figures of figures.json and claims.png in figures/,
and what both cite of the results files in evidence/, which the command reads where
--runs has no such file.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import pathlib
from typing import Any, Literal

from absl import flags
import numpy as np

from experiments.engine import command, pictures, progress, reports
from experiments.tables import evidence, figures, paper_table
from retrieval.store import store

CLAIMS = pathlib.Path(__file__).with_suffix('.json')
FILE, PICTURE, EVIDENCE = 'claims.md', 'figures/claims.png', 'evidence'
FOR, AGAINST, UNDECIDED = 'decided for', 'decided against', 'undecided'
NAMES = FOR, AGAINST, UNDECIDED, paper_table.NOT_RUN


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference(evidence.Value):
  """A measured difference with its 95 % interval."""

  what: str
  percent: bool = False  # shares of questions; otherwise bits per byte

  def text(self) -> str:
    """The difference in words and figures."""
    values = self.mean, self.low, self.high
    mean, low, high = (
      f'{100 * x:+.1f}' if self.percent else f'{x:+.4f}' for x in values
    )
    seeds = f', {len(self.of_seeds)} seeds' if len(self.of_seeds) > 1 else ''
    return f'{self.what} {mean} [{low}, {high}]{seeds}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
  """A claim of a paper and where its evidence is."""

  system: str
  claim: str
  source: str  # paper and place
  paper: str  # the paper's figures
  expected: Literal[
    'below', 'above', 'near'
  ]  # sign of each difference, by the claim
  within: float = 0.0  # tolerance of 'near'
  evidence: Sequence[Mapping[str, Any]]
  measured: str  # by which commands: a key of the file's `commands`
  remark: str = ''  # what to know, and what would decide an undecided claim
  figure: str = ''  # name of the figure that shows it
  control: bool = False  # a comparison of our own, which is not counted


@dataclasses.dataclass(frozen=True)
class Judged:
  """A claim, its differences and the verdict."""

  claim: Claim
  found: Sequence[Difference]
  verdict: str


def read(claim: Claim, folders: Sequence[pathlib.Path]) -> list[Difference]:
  """Read the differences of a claim from the first folder with each results file.

  Returns:
    [] where a file, or a row of it that the claim names, is missing: not run.

  Raises:
    ValueError: for a file of another form.
  """
  found = []
  for one in claim.evidence:
    value = evidence.read(folders, one['file'], one['at'], interval=True)
    if value is None:
      return []
    percent, fields = one.get('percent', False), dataclasses.asdict(value)
    found.append(Difference(what=one['what'], percent=percent, **fields))
  return found


def verdict(claim: Claim, found: Sequence[Difference]) -> str:
  """Judge a claim; see the module."""
  if not found:
    return paper_table.NOT_RUN
  sign = -1 if claim.expected == 'below' else 1
  ends = [sign * y for x in found for y in (x.low, x.high, *x.of_seeds)]
  if claim.expected == 'near':
    apart = min(ends) > claim.within or max(ends) < -claim.within
    inside = max(map(abs, ends)) < claim.within
    return FOR if inside else AGAINST if apart else UNDECIDED
  return FOR if min(ends) > 0 else AGAINST if max(ends) < 0 else UNDECIDED


def markdown(
  content: Mapping[str, Any],
  judged: Sequence[Judged],
  drawn: Sequence[Mapping[str, Any]] = (),
) -> str:
  """The page: a table for each verdict, the figures, and the commands."""
  papers = [x.verdict for x in judged if not x.claim.control]
  controls = len(judged) - len(papers)
  counts = [f'{papers.count(x)} {x}' for x in NAMES if x in papers]
  lines = ["# The papers' claims, tested in small", '', *content['preface'], '']
  beside = f'; beside them {controls} controls of our own.' if controls else '.'
  lines.append(', '.join(counts) + beside)
  if any(x.found for x in judged):
    lines += ['', f'![Intervals of all claims]({PICTURE})']
  links = {
    x['name']: f' [Figure](#{x["title"].lower().replace(" ", "-")}).'
    for x in drawn
  }
  heads = ('claim', 'paper', 'ours', 'commands', 'remark')
  for name in NAMES:
    rows = [
      (
        f'**{claim.system}**: {claim.claim} ({claim.source})',
        claim.paper,
        '; '.join(x.text() for x in row.found) or name,
        f'[{claim.measured}](#{claim.measured})',
        (claim.remark + links.get(claim.figure, '')).strip(),
      )
      for row in judged
      if row.verdict == name
      for claim in [row.claim]
    ]
    if rows:
      table = paper_table.markdown(heads, rows, '|' + '---|' * len(heads))
      lines += ['', f'## {name.capitalize()}', '', *table]
  lines += figures.markdown(drawn)
  lines += ['', '## Commands']
  for name, text in content['commands'].items():
    lines += ['', f'### {name}', '', *text]
  return '\n'.join(lines) + '\n'


def plot(judged: Sequence[Judged], path: pathlib.Path) -> None:
  """Draw every interval, a panel for each unit; color and marker are the verdict."""
  from matplotlib import lines, ticker

  looks = {FOR: ('C0', 'o'), AGAINST: ('C1', 'X'), UNDECIDED: ('C7', 's')}
  drawn: dict[str, list[tuple[str, Difference, str]]] = {}
  for percent in (False, True):
    unit = 'percent of questions or facts' if percent else 'bits per byte'
    for x in judged:
      for one in x.found:
        if one.percent is percent:
          system = f'{x.claim.system}: '
          name = '' if system[:-2] in one.what else system
          name += one.what
          drawn.setdefault(unit, []).append((name, one, x.verdict))
  heights = [len(rows) + 3 for rows in drawn.values()]
  shape = {
    'nrows': len(drawn),
    'figsize': (9.6, 0.3 * sum(heights)),
    'height_ratios': heights,
    'squeeze': False,
  }
  with pictures.picture(path, **shape) as (figure, panels):
    for axes, (unit, rows) in zip(panels[:, 0], drawn.items(), strict=True):
      scale = 100 if rows[0][1].percent else 1
      for i, (_, one, found) in enumerate(rows):
        color, marker = looks[found]
        low, high, mean, *seeds = scale * np.array(
          [one.low, one.high, one.mean, *one.of_seeds]
        )
        axes.plot([low, high], [i, i], color=color)
        axes.plot(mean, i, marker, color=color)
        axes.plot(seeds, [i] * len(seeds), '|', color=color, markersize=9)
      axes.axvline(0, color='black', linewidth=0.8)
      # The gains of kNN-LM are ten times those of RETRO.
      axes.set_xscale('symlog', linthresh=0.02 * scale, linscale=1)
      low, high = axes.get_xlim()
      ticks = scale * np.array([0, 0.01, 0.02, 0.05, 0.1, 0.2])
      ticks = [x for x in {*ticks, *-ticks} if low <= x <= high]
      axes.xaxis.set_major_locator(ticker.FixedLocator(sorted(ticks)))
      axes.xaxis.set_major_formatter(lambda x, _: f'{x:+g}' if x else '0')
      axes.xaxis.set_minor_locator(ticker.NullLocator())
      axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
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
  kept = output / EVIDENCE
  folders = [kept] if runs is None else [runs, kept]
  read_all = [(claim, read(claim, folders)) for claim in claims]
  judged = [Judged(x, found, verdict(x, found)) for x, found in read_all]
  rows = [
    (
      f'{x.claim.system}: {x.claim.claim}',
      '\n'.join(y.text() for y in x.found),
      x.verdict,
    )
    for x in judged
  ]
  reports.print_table(['claim', 'ours', 'verdict'], rows, wrap=True)
  shown = figures.load()
  if runs is not None:
    values = [(x['file'], x['at']) for y in claims for x in y.evidence]
    evidence.copy(runs, kept, [*values, *figures.places(shown)])
  drawn = figures.draw_all(shown, folders, output / figures.FOLDER)
  if any(x.found for x in judged):
    plot(judged, output / PICTURE)
  page = markdown(content, judged, drawn)
  store.write_atomically(output / FILE, page.encode())
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
    'output', 'docs/results', 'Folder of the page.', is_folder=True
  )
  command.main_of_script(main)
