# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of the `tokenizers` library from files that may be hostile.

The library allocates by the largest id, keeps one of two tokens that have the same id,
and panics where a regex runs away.
"""

from collections.abc import Iterator, Mapping
import contextlib
import json
import os
import pathlib
from typing import Any

from retrieval.store import manifests

_MAX_IDS = 2**22


@contextlib.contextmanager
def refusing(path: str | os.PathLike, what: str = 'damaged') -> Iterator[None]:
  """Turn errors and panics of the library into a ValueError of one line."""
  try:
    yield
  except (KeyboardInterrupt, SystemExit, GeneratorExit, OSError):
    raise
  except BaseException as e:  # A panic is no Exception.
    text = ' '.join(f'{type(e).__name__}: {e}'.split())
    raise ValueError(f'{path}: {what} ({text}).') from None


def read_spec(path: pathlib.Path) -> dict[str, Any]:
  """Read a tokenizer.json; errors name a token whose id is out of range or taken."""
  spec = manifests.read_object(path)
  with refusing(path):
    vocab = spec['model']['vocab']
    added = {x['content']: x['id'] for x in spec.get('added_tokens') or ()}
    ids = {**vocab, **added} if isinstance(vocab, dict) else added
  owners: dict[int, str] = {}
  for token, i in ids.items():
    if type(i) is not int or not 0 <= i < _MAX_IDS:
      raise ValueError(
        f'{path}: token {token!r} has id {i!r}; expected 0 to {_MAX_IDS - 1:,}.'
      )
    if owners.setdefault(i, token) != token:
      raise ValueError(f'{path}: {token!r} and {owners[i]!r} have the id {i}.')
  return spec


def make(spec: Mapping[str, Any], path: str | os.PathLike) -> Any:
  """Return a `tokenizers.Tokenizer` that reads special tokens in a text as text.

  It neither pads nor cuts, and lacks dropout, which is for its training. Errors name
  `path`.
  """
  import tokenizers

  with refusing(path):
    model = {k: x for k, x in spec['model'].items() if k != 'dropout'}
    parts = {**spec, 'model': model, 'truncation': None, 'padding': None}
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(parts))
  tokenizer.encode_special_tokens = True
  return tokenizer
