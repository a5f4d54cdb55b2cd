# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Dates: a table of texts with and without dates."""

import pytest

from retrieval.text import dates

# Brackets stand around what must be found.
FOUND = """
It was signed on [4 July 1776].
It was signed on [July 4, 1776], in Philadelphia.
On [July 4 1776] and again on [July 4th].
On the [4th of July, 1776].
The [4th July 1776] was warm.
[JULY 4, 1776]: a declaration.
Every [Fourth of July] and [fifth of November].
The [twenty-first of June, 1990].
They met on [July the 4th, 1776].
Dated [1776-07-04], printed [1776-07-05]T10:00.
Either [7/4/1776] or [04.07.1776] or [4-7-1776].
Stamped [04-Jul-1776].
The eclipse of [1999 August 11].
From [4-6 June 1999] and [June 4–6, 1999].
On [4 and 5 July], or [July 4 and 5], it rained.
On [June 6] and 12 people came.
From [30 June] to [4 July 1999].
He lived ([12 January 1729]-[9 July 1797]).
Divided at Verdun on [10 August 843].
Vesuvius, [24 August AD 79].
The Ides: [15 March 44 BC].
In [March 1999] and [Mar. 1999] and [Sept 1999].
In [March of 1999], in [May, 2001].
During [March-April 1999] it snowed.
In [March 44 BC].
Born in [1999].
Born in [1999], [2000] and [2001].
([1999])
The [1994] film won the [1996] award.
[1999]: the year began.
By [1066] all was lost, since [1012].
Painted c. [1412] or c.[1420].
Einstein ([1879]–[1955]) and Dante ([1265]–[1321]).
From [1914] to [1918], or [1914]-[1918].
The [1998]/[1999] season.
The war of [1914–18], the season of [1999/00], the years [1865-9].
The [1500] edition.
In [1999] people danced.
The [2021]-present line.
Caesar died in [44 BC], Vesuvius in [AD 79].
In [480 BCE], in [300 CE], in [A.D. 601], in [323 B.C.].
About [10,000 BC] or [12000 BC].
From [264–146 BC].
Han ([202 BC]-[220 AD]).
From [27 BC] to [14 AD].
Anno [AD 43–410].
In the [1990s], in the mid-[1990s], in the [1990's].
In the [1970s-80s] and the [1970s]–[1980s].
Back in the '[90s].
Pericles, in the [430s BC].
All through the [sixties], and the early [Nineties].
A [19th century] house, a [19th-century] house.
In the [nineteenth century], in the [twenty-first century].
In the late [18th and 19th centuries].
The mid-[12th century BC].
In the [2nd millennium BC].
In the [1st century A.D.] it fell.
“[1999]”, she said.
Von [1999]–heute.
Zürich, [4 July 1776], Ünder [1999].
"""

NOT_FOUND = """
There were 1,000 people and 12,500 dogs.
It cost $1999, or US$ 1500, or €2000 or £1850.
Call 12345 or 555-1999 or 1999-555.
We may go in May, or in March.
They march 15 miles.
See page 1999, pp. 1500–1510 and p. 1700.
Chapter 1500, line 1600, no. 1700.
There were 1800 people and 1900 soldiers.
It is 1500 km long and 2000 metres high.
It took 1600 hours, 2000 years, 1700 dollars.
More than 1700, less than 1800, over 1900.
The population is 1240.
Version 1.1999 and 1999.5 and 3.1415.
A 1500-meter race, a 2000-year-old tree.
A screen of 1600×1200 or 1080p.
The rank #1999, the part X-1999, model R1999.
At 1999% or 1500°.
The year 3000, the year 999.
It is 25/13/1999 or 1999-13-45 or 7.4.12.
An address: http://x.org/1999/12345/2001_a.
He scored his first century, her 20th century.
A film of 20th Century Fox.
The first of many, the second of them, a third of Marc's.
In his sixties, the two nineties.
Two centuries ago, a century later.
The BC coast, an AD campaign.
Asteroid 2060, NGC 1999 and RFC 1912.
Mayor 4, Marching 12, Decade 1.
July 45 and 45 July.
The 4 Marchers.
It melts at about 1426 degrees.
S/2004 S 13 is a moon.
"""


def _lines(table):
  return [line for line in table.splitlines() if line]


@pytest.mark.parametrize('line', _lines(FOUND))
def test_finds_dates(line):
  text = line.replace('[', '').replace(']', '')
  want = [part.split(']')[0] for part in line.split('[')[1:]]
  assert [text[slice(*span)] for span in dates.find_dates(text)] == want


@pytest.mark.parametrize('line', _lines(NOT_FOUND))
def test_finds_nothing_else(line):
  assert [line[slice(*span)] for span in dates.find_dates(line)] == []
