# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Write the docstrings of six packages: python make.py > docstrings.jsonl.

A document is the docstring of one function or class, of 200 characters or more, each
text once: 8,165 of numpy 2.4.6, scipy 1.17.1, scikit-learn 1.9.1, jax 0.10.2, optax
0.2.8 and flax 0.12.8.
"""

import ast
from importlib import util
import json
import pathlib

PACKAGES = 'numpy', 'scipy', 'sklearn', 'jax', 'optax', 'flax'


def docstrings(node, name):
  """Yield name and docstring of all that a module, class or function defines."""
  for x in ast.iter_child_nodes(node):
    if isinstance(x, (ast.FunctionDef, ast.ClassDef)):
      yield f'{name}.{x.name}', ast.get_docstring(x) or ''
      yield from docstrings(x, f'{name}.{x.name}')


rows = {}
for package in PACKAGES:
  root = pathlib.Path(util.find_spec(package).origin).parent
  for path in sorted(root.rglob('*.py')):
    inside = path.relative_to(root)
    if 'test' not in str(inside):
      module = '.'.join((package, *inside.with_suffix('').parts))
      for name, text in docstrings(ast.parse(path.read_text()), module):
        if len(text) >= 200:
          rows.setdefault(text, {'id': name, 'title': name, 'text': text})
for row in rows.values():
  print(json.dumps(row))
