# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Claims with labels of their evidence, from the published forms.

  fever: lines {"id", "claim", "label": SUPPORTS, REFUTES or NOT ENOUGH INFO} with
    "evidence": lists of [_, _, title, sentence] (Thorne et al. 2018).
  hover: a list of {"uid", "claim", "label": SUPPORTED or NOT_SUPPORTED} with
    "supporting_facts": [title, sentence] (Jiang et al. 2020).
  custom: lines {"claim", "label"}; any labels; optional "id" and "titles".

DATASET:SPLIT=PATH,PATH names a claim set. Files may be packed as .gz, .bz2 or
.xz. Either every claim of a set has a label, or no claim (blind test sets).
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import pathlib
import re
from typing import Any
import unicodedata

from retrieval import arguments
from retrieval.questions import questions as questions_lib
from retrieval.readers import base, json_files, text_files

NO_LABEL = -1
SPLITS = ('train', 'dev', 'test')
# FEVER's escapes of characters that its file format reserves.
_ESCAPES = {'-LRB-': '(', '-RRB-': ')', '-LSB-': '[', '-RSB-': ']'}
_ESCAPES |= {'-COLON-': ':'}


@dataclasses.dataclass(frozen=True)
class Claim:
  """A claim with its label."""

  id: str  # unique id in the claim set
  claim: str  # text, exactly as in the source
  label: int  # index among the labels of the set; NO_LABEL where unknown
  # normalized titles of the evidence documents; () where unknown
  titles: tuple[str, ...] = ()

  def __post_init__(self):
    arguments.make_tuple(self, 'titles')


@dataclasses.dataclass(frozen=True)
class ClaimSet:
  """Claims of one split, in the files' order, with the names of the classes."""

  dataset: str
  split: str
  labels: tuple[str, ...]
  claims: tuple[Claim, ...]

  @property
  def name(self) -> str:
    """DATASET:SPLIT."""
    return f'{self.dataset}:{self.split}'

  @property
  def labelled(self) -> bool:
    """Whether the claims have labels."""
    return self.claims[0].label != NO_LABEL


@dataclasses.dataclass(frozen=True)
class Dataset:
  """Form of a data set."""

  evidence: str  # field of the evidence
  titles: Callable[[list], list[Any]]  # evidence -> titles, None for none
  # labels in the order of the classes; () where a config names them
  labels: tuple[str, ...] = ()
  id_field: str = 'id'


def _item(fact: Any, i: int) -> Any:
  if not isinstance(fact, list):
    raise TypeError
  return fact[i]


DATASETS: Mapping[str, Dataset] = {
  'fever': Dataset(
    'evidence',
    lambda sets: [_item(fact, 2) for facts in sets for fact in facts],
    ('SUPPORTS', 'REFUTES', 'NOT ENOUGH INFO'),
  ),
  'hover': Dataset(
    'supporting_facts',
    lambda facts: [_item(fact, 0) for fact in facts],
    ('SUPPORTED', 'NOT_SUPPORTED'),
    'uid',
  ),
  'custom': Dataset('titles', list),
}


def normalize_title(title: str) -> str:
  """Return a title that matches across sources.

  Undoes FEVER's underscores and escapes, composes characters and raises the
  first letter, whose case Wikipedia ignores.
  """
  for written, meant in _ESCAPES.items():
    title = title.replace(written, meant)
  title = re.sub(r'[\s_]+', ' ', unicodedata.normalize('NFC', title)).strip()
  return title[:1].upper() + title[1:]


def check_labels(dataset: str, labels: Sequence[str]) -> tuple[str, ...]:
  """Return the labels of a data set, which 'custom' takes from `labels`.

  Raises:
    ValueError: for an unknown data set, or labels of another one.
  """
  if dataset not in DATASETS:
    raise ValueError(
      f'no claim set {dataset!r}; expected one of {sorted(DATASETS)}.'
    )
  own, given = DATASETS[dataset].labels, tuple(labels)
  if own and given and own != given:
    raise ValueError(f'labels {given} for {dataset}: expected {own}.')
  found = own or given
  if len(found) < 2 or len(set(found)) < len(found):
    raise ValueError(
      f'labels {found} for {dataset}: expected at least two different ones.'
    )
  return found


def load(spec: str, labels: Sequence[str] = (), most: int = 0) -> ClaimSet:
  """Read the first `most` claims, 0 for all, of DATASET:SPLIT=PATH,PATH.

  Args:
    labels: labels of the set in the order of the classes, which 'custom' needs.

  Raises:
    ValueError: for an unknown set or split, other labels, and for the first
      invalid record.
  """
  dataset, split, paths = questions_lib.parse_spec(spec)
  if split not in SPLITS or not paths:
    raise ValueError(
      f'{spec!r}: expected DATASET:SPLIT=PATH,PATH with one of '
      f'{sorted(DATASETS)} and one of {SPLITS}.'
    )
  try:
    labels = check_labels(dataset, labels)
  except ValueError as e:
    raise ValueError(f'{spec!r}: {e}') from None
  claims: dict[str, Claim] = {}
  files: set[str] = set()
  for number, path in enumerate(map(pathlib.Path, paths)):
    # The id of a claim without one has its file's name; two files may share it.
    prefix = f'{number}/' if path.name in files else ''
    files.add(path.name)
    for where, record in json_files.read(path):
      claim = _claim(record, where, dataset, labels, prefix)
      if claim.id in claims:
        raise ValueError(f'{where}: an earlier claim has id {claim.id!r}.')
      claims[claim.id] = claim
      if len({x.label < 0 for x in (claim, next(iter(claims.values())))}) > 1:
        raise ValueError(f'{where}: some claims have a label, some have none.')
  if not claims:
    raise ValueError(f'{spec!r}: no claims.')
  kept = tuple(claims.values())[: most or None]
  return ClaimSet(dataset, split, labels, kept)


def _claim(
  record: Mapping[str, Any],
  where: str,
  dataset: str,
  labels: tuple[str, ...],
  prefix: str,
) -> Claim:
  """Return the claim of a record; made ids start with `prefix`."""
  form = DATASETS[dataset]
  text = base.string(record, 'claim', where)
  if not text.strip():
    raise ValueError(f'{where}: the claim is blank.')
  label = record.get('label')
  if label is not None and label not in labels:
    raise ValueError(
      f'{where}: label {label!r}: {dataset} expects one of {list(labels)}.'
    )
  identifier = record.get(form.id_field, prefix + text_files.line_name(where))
  if isinstance(identifier, bool) or not isinstance(identifier, int | str):
    raise ValueError(
      f'{where}: field {form.id_field!r}: expected a string or a number, found '
      f'{identifier!r}.'
    )
  try:
    # Claims without decisive evidence have null titles.
    evidence = record.get(form.evidence) or []
    found = form.titles(base.check_type(evidence, where, list))
    titles = [normalize_title(title) for title in found if title is not None]
  except (TypeError, IndexError, KeyError, AttributeError):
    raise ValueError(
      f'{where}: field {form.evidence!r} has no titles where {dataset} has them.'
    ) from None
  return Claim(
    str(identifier),
    text,
    NO_LABEL if label is None else labels.index(label),
    tuple(dict.fromkeys(titles)),
  )
