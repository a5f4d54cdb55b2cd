# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What RETRO's paper draws and does not tabulate: RETROfit, and leakage.

Borgeaud et al. 2021, arXiv 2112.04426, figures 5, 6 and 10 to 12. Figures are
strings as printed there; '-' where there is none.
"""

from experiments.tables.paper_table import Row
from experiments.tables.paper_table import Source
from experiments.tables.paper_table import Table

MODES = ('baseline', 'off', 'on')
PERPLEXITY = 'word_perplexity'
SIZES = ('172M', '425M', '1.5B', '7.5B')

# From Tables 4 and 14, section 4.2 and appendix C.2.
RETROFIT = Table(
  title='RETROfit against RETRO from scratch: bits per byte, perplexity',
  columns=(
    *(f'C4, {size}' for size in SIZES),
    'Wikitext103, valid',
    'Wikitext103, test',
  ),
  ours=('bits per byte', 'perplexity of a word'),
  rows=[
    Row(
      name,
      paper,
      [Source(mode=mode, run=run), Source(PERPLEXITY, mode, run=run)],
    )
    for name, mode, run, paper in (
      (
        'baseline',
        'baseline',
        '',
        ('.98', '.92', '.84', '.78', '21.53', '22.96'),
      ),
      ('RETROfit, off', 'off', 'retrofit', ('= baseline',) * 6),
      (
        'RETROfit, on',
        'on',
        'retrofit',
        ('-', '-', '-', '-', '18.46', '18.97'),
      ),
      (
        'RETRO from scratch, off',
        'off',
        'scratch',
        ('.98', '.92', '.84', '.78', '-', '-'),
      ),
      (
        'RETRO from scratch, on',
        'on',
        'scratch',
        ('.82', '.77', '.71', '.66', *('worse than baseline',) * 2),
      ),
    )
  ],
  scale='C4: 419 B training tokens, RETROfit on 3 % of their sequences; '
  'Wikitext103: baseline of 35,000 steps of 128 x 3072 tokens, RETROfit from '
  'there, which retrieves from Wikipedia',
  note='No figure of RETROfit on C4 (its Figure 5) is recorded here; with frozen '
  'weights off is the baseline itself. From scratch it over-fits Wikitext103. '
  'Name the runs retrofit and scratch; the baseline is the model that they were '
  'evaluated beside, with evaluate.baseline_workdir.',
)

# Figures 6, 10, 11 and 12 have no numbers.
LEAKAGE = Table(
  title='Bits per byte over chunks with r(C) <= alpha',
  columns=('RETRO below the baseline',),
  ours=('chunks', 'baseline', 'RETRO[OFF]', 'RETRO[ON]'),
  rows=[
    Row(
      f'alpha {12.5 * i:g} %',
      ('yes',),
      [
        Source(
          *('share', '', 'leakage.json', ('alpha', i / 8)),
          drawn=False,  # a share is on no axis of the others
        ),
        *(
          Source('bits_per_byte', mode, 'leakage.json', ('alpha', i / 8))
          for mode in MODES
        ),
      ],
    )
    for i in range(1, 9)
  ],
  scale='7.5 B parameters; C4, Curation, Wikitext103, Wikipedia and the Pile',
  note='The paper draws curves and gives no figures: RETRO is below the baseline '
  'down to 12.5 % on all five, and gains the more the more overlaps.',
)
