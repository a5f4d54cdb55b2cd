# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The README.md of a packed model: its data, its scores and its licence.

The form is that of the Hugging Face Hub's model cards.
"""

from collections.abc import Iterator, Mapping
import json
import math
import os
import pathlib
import re
from typing import Any

import jax

from experiments.engine import metric_writer
from retrieval.store import checkpoints, manifests, output_files, packed

FILE = 'README.md'
_RESULTS = ('evaluation.json', 'qa_evaluation.json')
_STARTS = ('realm_from', 'encoder_from', 'embedder_from')
_FOLDERS = re.compile('[^=]*/')  # of a path, perhaps behind a name and '='
_TEXT = """\
---
license: {license}
library_name: realm-retro-jax
tags: [jax, flax, retrieval-augmented-generation, {task}]
---

# {title}

A model of the task `{task}` with {count:,} parameters after {step:,} steps, {bits}
bits a value. `config.json` holds its settings.

```
import {module}

model = {module}.load({source}, 'DATA')
```

DATA is a data folder of `experiments.prepare` with this tokenizer: the documents that
the model retrieves from.

## Data

{data}

## Scores

{scores}

## Licence

{terms}
"""


def write(
  folder: str | os.PathLike,
  workdir: str | os.PathLike,
  *,
  bits: int,
  license_id: str = '',
  name: str = '',
) -> None:
  """Write README.md into a packed model that has none.

  Args:
    folder: packed model.
    workdir: run that it was packed from.
    bits: of a value.
    license_id: the Hub's name of a licence; '' is 'unknown'.
    name: OWNER/NAME on the Hub, '' for a folder of this machine.
  """
  path = pathlib.Path(folder) / FILE
  if path.exists():
    return
  saved = checkpoints.find(str(workdir))
  terms = f'{license_id}, as its owner says.'
  shapes = jax.tree.leaves(packed.param_shapes(folder))
  text = _TEXT.format(
    license=json.dumps(license_id or 'unknown'),
    task=saved.config.task,
    title=name.split('/')[-1] or path.parent.resolve().name,
    count=sum(math.prod(x.shape) for x in shapes),
    step=saved.step,
    bits=bits,
    module='retro_jax' if saved.config.task == 'retro' else 'realm_jax',
    source=repr(f'hf://{name}' if name else 'FOLDER'),
    data='\n'.join(_data(saved.config)) or 'Not told by its settings.',
    scores=_scores(pathlib.Path(workdir), saved.step),
    terms=terms if license_id else 'Unknown: ask the owners of the data.',
  )
  output_files.write(path, text.encode())


def _data(config: Mapping[str, Any]) -> Iterator[str]:
  """Yield bullet lines; local paths keep only their last component."""
  corpus = config.get('corpus') or {}
  rows = {'corpus': [corpus.get('kind'), corpus.get('path')]}
  if most := corpus.get('max_documents'):
    rows['corpus'].append(f'the first {most:,} documents')
  sets = config.get('questions', {}).get('train') or ()
  rows['questions'] = [sets] if isinstance(sets, str) else sets
  rows |= {name: [config.get(name)] for name in _STARTS}
  for part in ('embedder', 'encoder'):
    start = (config.get(part) or {}).get('checkpoint')
    rows[f'{part}.checkpoint'] = [start]
  for name, texts in rows.items():
    texts = [x if 'hf://' in x else _FOLDERS.sub('', x) for x in texts if x]
    if texts:
      yield f'- {name}: {", ".join(f"`{x}`" for x in texts)}'


def _scores(workdir: pathlib.Path, step: int) -> str:
  """Return a table of the scores of a step, at 32 bits a value."""
  rows = []
  for path in (workdir / file for file in _RESULTS):
    content = manifests.read_object(path) if path.is_file() else {'rows': []}
    masked = content.get('masked', {})  # of a REALM
    named = [{'name': name} | row for name, row in masked.items()]
    for row in [*content['rows'], *named]:
      if row.get('step', content.get('step')) == step:
        texts = {f'{row["name"]} {key}': _text(x) for key, x in row.items()}
        rows += [x for x in texts.items() if x[1]]
  for row in metric_writer.read(workdir):
    if row['step'] == step:  # on held-out data
      rows += [(name, f'{x:.4g}') for name, x in row.items() if '/' in name]
  if not rows:
    return 'None were measured at this step.'
  lines = [f'| {name} | {text} |' for name, text in rows]
  head = 'Measured before values were rounded; intervals are of 95 %.'
  return '\n'.join([head, '', '| measure | value |', '|---|---|', *lines])


def _text(value: Any) -> str:
  """A number, or {mean, low, high}, in figures; '' for anything else."""
  if isinstance(value, Mapping) and None not in value.values():
    if {*value} == {'mean', 'low', 'high'}:
      return '{mean:.4g} [{low:.4g}, {high:.4g}]'.format(**value)
  return f'{value:.6g}' if type(value) in (int, float) else ''
