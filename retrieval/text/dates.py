# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Dates in English text, by regular expressions.

Guu et al. 2020, section 3.4, finds dates with "a regular expression" that is
not published. The expressions here cover the usual orders and spellings:
  days       4 July 1776, July 4th, 1776-07-04, 04/07/1776, Fourth of July
  months     March 1999, Mar. 1999, March-April 1999; never a month alone
  years      1000 to 2099 where they read as years; any year with an era: 44 BC
  decades    1990s, '90s, 430s BC, the late sixties
  centuries  19th century, twelfth century BC, 2nd millennium
A range of days with its month is one span (4-6 June 1999), and so is a range
with an abbreviated end (1914-18, 100-44 BC). Otherwise the ends of a range are
two spans: 1914-1918 holds two dates.
"""

import bisect
from collections.abc import Iterable
import re
from typing import TypeVar

_Span = TypeVar('_Span', bound=tuple)

_S = r'[ \xa0\u2009\u202f]'  # a blank within a date
_DASH = r'[-\u2010-\u2015\u2212]'
_TO = f'{_S}?{_DASH}{_S}?'


def _any(*parts: str) -> str:
  return f'(?:{"|".join(parts)})'


def _either_case(words: str) -> str:
  """Pattern of the words, capitalized or not."""
  return _any(*(f'[{w[0].upper()}{w[0]}]{w[1:]}' for w in words.split()))


_MONTHS = (
  'January February March April May June July August September October '
  'November December'
)
_MONTH = _any(
  *_MONTHS.split(),
  *_MONTHS.upper().split(),
  r'(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)(?:\.|(?!\w))',
)
_UNITS_TH = 'first second third fourth fifth sixth seventh eighth ninth'
_ORDINAL_WORD = _any(
  f'(?:[Tt]wenty|[Tt]hirty)[- ]{_any(*_UNITS_TH.split())}',
  _either_case(
    f'{_UNITS_TH} tenth eleventh twelfth thirteenth fourteenth fifteenth '
    'sixteenth seventeenth eighteenth nineteenth twentieth thirtieth'
  ),
)
_DECADE_WORD = _either_case(
  'twenties thirties forties fifties sixties seventies eighties nineties'
)

# Nothing before a number makes it money, another number or part of a name.
# Joined by a hyphen or a slash: mid-1990s, c.1200, 1998/1999.
_FRESH = (
  r'(?:(?<![\w$€£¥₹#%.,:/+=*^~@&\\-])|(?<=[a-z]-)|(?<=\b[BA][CD]-)'
  r'|(?<=\b[bcd]\.)|(?<=\b[12]\d\d\d[-/])|(?<=[a-z],))'
)
_DAY = r'(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?(?![\w%°$€£¥]|[.,:]\d)'
_WORD_TO = ' (?:and|to|or|&) '
_DAYS = rf'{_DAY}(?:(?:{_TO}|,?{_WORD_TO}){_DAY})?'
_YEAR = r'(?:1\d\d\d|20\d\d)'
# Nothing after a year continues the number or makes it one of another kind.
_DONE = rf'(?![\w%°$€£¥]|[.,:]\d|[-/](?!{_YEAR}(?!\d)|{_DAY}{_S}{_MONTH})\d)'
_ERA = r'(?:BCE?|CE|AD|B\.C\.(?:E\.)?|C\.E\.|A\.D\.)(?!\w)'
_NUMBER = r'(?:\d{1,3},\d{3}|\d{1,5})'
_YEAR_ERA = f'(?:{_NUMBER}{_TO})?{_NUMBER}{_S}?{_ERA}'
_ERA_YEAR = (
  rf'(?:AD|A\.D\.){_S}?\d{{1,4}}(?:{_TO}\d{{1,4}}(?!{_S}?{_ERA}))?{_DONE}'
)
_YEAR_OF_MONTH = _any(_YEAR_ERA, _ERA_YEAR, _YEAR + _DONE)
_YEAR_OF_DAY = _any(_YEAR_OF_MONTH, r'[1-9]\d\d' + _DONE)
_ORDINAL = rf'(?:\d\d?(?:st|nd|rd|th)|{_ORDINAL_WORD})'
_AGE = r'(?:[Cc]entur(?:y|ies)|[Mm]illenni(?:um|a))'
_ISO_MONTH = r'(?:0[1-9]|1[0-2])'
_ISO_DAY = r'(?:0[1-9]|[12]\d|3[01])'
_ANY_MONTH = r'(?:0?[1-9]|1[0-2])'
_ANY_DAY = r'(?:0?[1-9]|[12]\d|3[01])'

_DAY_MONTH = rf'{_DAYS}{_S}(?:of{_S})?{_MONTH}(?!\w)'
_MONTH_DAY = (
  rf'{_MONTH}{_S}(?:the{_S})?'
  rf'{_DAY}(?:{_TO}{_DAY}|{_WORD_TO}{_DAY}(?!{_S}[a-z]))?'
)
# Excludes a person's hundred runs and film studios.
_CENTURY = (
  rf'{_ORDINAL}(?:(?:{_TO}| (?:and|or|to) ){_ORDINAL})?[- ]{_AGE}'
  rf'(?:{_S}{_ERA})?(?!\w| Fox| Studios)'
)
_NOBODYS = ''.join(
  rf'(?<!\b{word} )' for word in ('his', 'her', 'their', 'maiden')
)

# Dates that begin with a number.
_NUMBER_FORMS = (
  # 4 July 1776, 5th of November, 24 August AD 79, 10 August 843
  rf'{_DAY_MONTH}(?:,?{_S}{_YEAR_OF_DAY})?',
  # 1776 July 4
  rf'{_YEAR},?{_S}{_MONTH_DAY}',
  # 04-Jul-1776
  rf'{_ANY_DAY}-{_MONTH}-{_YEAR}{_DONE}',
  # 1776-07-04, 1776-07-04T12:00
  rf'{_YEAR}(?P<iso>[-/.\u2011]){_ISO_MONTH}(?P=iso){_ISO_DAY}'
  rf'(?:(?=T\d)|{_DONE})',
  # 7/4/1776, 04.07.1776
  rf'(?:{_ANY_MONTH}(?P<us>[-/.]){_ANY_DAY}(?P=us)'
  rf'|{_ANY_DAY}(?P<eu>[-/.]){_ANY_MONTH}(?P=eu)){_YEAR}{_DONE}',
  # 44 BC, 79 AD, 10,000 BCE, 100-44 BC
  _YEAR_ERA,
  # 1914-18, 1914-8, 1999/00
  rf'{_YEAR}(?:{_DASH}\d\d?|/\d\d)(?!\w|[.,:]\d|[-/]\w)',
  # 1990s, 1990's, 1970s-80s, 430s BC
  rf"(?:1\d|20)\d0['’]?s(?:{_TO}\d0s)?(?:{_S}{_ERA})?(?!\w)",
  rf'\d\d?0s{_S}{_ERA}',
  # 19th century, 18th and 19th centuries, 2nd millennium BC
  _NOBODYS + _CENTURY,
)
# Dates that begin with a word.
_WORD_FORMS = (
  # July 4, 1776; July 4th; June 4-6, 1999
  rf'{_MONTH_DAY}(?:,?{_S}{_YEAR_OF_DAY})?',
  # Fourth of July, 1776
  rf'{_ORDINAL_WORD}{_S}of{_S}{_MONTH}(?!\w)(?:,?{_S}{_YEAR_OF_DAY})?',
  # March 1999, March of 1999, March-April 44 BC
  rf'(?:{_MONTH}(?:{_TO}|/))?{_MONTH},?{_S}(?:of{_S})?{_YEAR_OF_MONTH}',
  # AD 79
  _ERA_YEAR,
  # the sixties, the early Nineties
  r'(?:(?<=[Tt]he )|(?<=[Tt]he early )|(?<=[Tt]he late ))'
  rf'{_DECADE_WORD}(?!\w)',
  # twelfth century BC
  _NOBODYS + _CENTURY,
)
_FROM_NUMBER = tuple(re.compile(_FRESH + form) for form in _NUMBER_FORMS)
_FROM_NUMBER += (
  re.compile(r"(?<=['‘’])(?<!\w['‘’])\d0['’]?s(?!\w)"),  # 90s after its '
)
_FROM_WORD = tuple(re.compile(form) for form in _WORD_FORMS)
_NUMBER_START = re.compile(r'\d+')
_WORD_START = re.compile(
  rf'(?<!\w)(?:{_MONTH}|{_ORDINAL_WORD}|{_DECADE_WORD}|AD|A\.D\.)'
)
_BARE_YEAR = re.compile(
  rf'(?=[12]){_FRESH}{_YEAR}(?![\w%°$€£¥+×*=@^~]|[.,:]\d'
  rf'|[-/](?!{_YEAR}(?!\d)|present|today|born|era)\w)'
)

# Words around a number that tell its kind.
_TIME_BEFORE = re.compile(
  r'\b(?:in|since|until|till|by|during|from|between|before|after|circa'
  r'|year|early|late|mid|spring|summer|autumn|fall|winter|of|born|died|and|to'
  r'|about|around|roughly|through)\s\(?$'
  rf'|\bca?\.{_S}?$|\b\d{{3,4}}{_TO}$',
  re.I,
)
_RANGE_AFTER = re.compile(rf'{_TO}(?:c\.{_S}?)?\d{{3,4}}(?!\d)')
_SURE_BEFORE = re.compile(r'\b(?:in|since|until|during|by|year)\s$', re.I)
_NUMBER_BEFORE = re.compile(
  r'(?:[$€£¥₹#×=<>≈~±]|\b(?:over|than|least|most|nearly|almost|only|exactly'
  r'|approximately|another|up to|some|all|first|last|next|other|these'
  r'|pages?|pp?\.|nos?\.|numbers?|num\.|chapter|verses?|versions?|lines?'
  r'|section|articles?|rooms?|box|highway|route|interstate|flight|unit|area'
  r'|channel|ngc|ic|hd|hr|iso|rfc|ieee|class|model|asteroid|psalm|windows'
  rf'|office|server|mark|sr|us\$))\s?(?:\d+{_TO})?$',
  re.I,
)
_UNIT_AFTER = re.compile(
  rf'{_S}(?:years?|months?|weeks?|days?|hours?|hrs?|minutes?|seconds|UTC|GMT'
  r'|(?:k|c|m|n)?m[²³]?|mi|ft|(?:kilo|centi|milli)?met(?:er|re)s?|miles?|feet'
  r'|foot|yards?|inch(?:es)?|square|sq|cubic|[km]?g|(?:kilo)?grams?|lbs?'
  r'|ton(?:ne)?s?|m?l|(?:milli)?lit(?:er|re)s?|[kMG]?(?:W|V|Hz|B)|(?:kilo|mega)?'
  r'watts?|volts?|h?k?Pa|psi|bar|(?:kilo|mega)?b(?:yte|it)s?|hp|horsepower|rpm'
  r'|K|kelvins?|degrees|°|per|percent|%|calories|dollars?|pounds?|euros?|cents'
  r'|yen|francs|times|thousand|million|billion|or more|of the[ms]e?)(?!\w)'
)
_COUNTED_AFTER = re.compile(
  rf'{_S}(?:people|persons|(?:wo)?men|children|soldiers|troops|students|pupils'
  r'|workers|employees|residents|families|inhabitants|members|players|Jews'
  r'|passengers|prisoners|speakers|households|houses|homes|buildings|villages'
  r'|species|animals|birds|ships|aircraft|copies|pages|seats|words|songs'
  r'|islands|languages|cells|neurons|genes|stars|varieties|companies|items'
  r'|points|goals|runs|victims|casualties|deaths|tanks|civilians|refugees'
  r'|hectares|acres|jobs|Guineas|other|different|more)(?![\w’\'])'
)
_STARTS = ((_NUMBER_START, _FROM_NUMBER), (_WORD_START, _FROM_WORD))
_LEFT = 24  # characters read before a number


def _reads_as_year(text: str, start: int, limit: int) -> bool:
  """Whether a bare number from 1000 to 2099 reads as a year in its context."""
  left = text[max(0, start - _LEFT) : start]
  if _NUMBER_BEFORE.search(left) or _UNIT_AFTER.match(text, limit):
    return False
  if _COUNTED_AFTER.match(text, limit) and not _SURE_BEFORE.search(left):
    return False
  return bool(
    text[start:limit] >= '1500'
    or _TIME_BEFORE.search(left)
    or _RANGE_AFTER.match(text, limit)
  )


def find_dates(text: str) -> list[tuple[int, int]]:
  """Return first and past-last character of the dates in a text, in order.

  Of overlapping dates the longest is taken, of equally long ones the first.
  """
  spans = [
    match.span()
    for start, forms in _STARTS
    for at in start.finditer(text)
    for form in forms
    if (match := form.match(text, at.start()))
  ]
  spans += [
    match.span()
    for match in _BARE_YEAR.finditer(text)
    if _reads_as_year(text, *match.span())
  ]
  return keep_longest(sorted(spans))


def keep_longest(spans: Iterable[_Span]) -> list[_Span]:
  """Take the longest span, then the next longest without overlap, and so on.

  Spans are tuples that begin with first and past-last. Of equally long spans
  that overlap the first is taken. The result is in order of place.
  """
  taken: list[_Span] = []
  for span in sorted(spans, key=lambda s: s[0] - s[1]):
    at = bisect.bisect(taken, span[0], key=lambda s: s[0])
    if at and taken[at - 1][1] > span[0]:
      continue
    if at < len(taken) and taken[at][0] < span[1]:
      continue
    taken.insert(at, span)
  return taken
