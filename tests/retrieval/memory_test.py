# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of retrieval/memory.py."""

import resource

import numpy as np
import pytest

from retrieval import memory, searchers


def test_names_the_largest_number_that_fits():
  memory.check('config.k', 10, 100, 1000)
  memory.check('config.k', 10**9, 100, None)
  with pytest.raises(ValueError, match=r'^config\.k=10: expected at most 9: '):
    memory.check('config.k', 10, 100, 999)
  with pytest.raises(ValueError, match='at most 4: '):
    memory.check('k', 10, 100, 999, fixed_bytes=550)


def test_names_the_largest_number_of_things_that_share(monkeypatch):
  with pytest.raises(ValueError, match=r'^k=40: expected at most 30: '):
    memory.check_growth('k', 40, lambda n: n**2, 960)
  with pytest.raises(ValueError, match=r'^k=2: expected smaller ones: it '):
    memory.check_growth('k', 2, lambda n: 7 * n, 6)
  monkeypatch.setattr(memory, '_free_of_machine', lambda: 1 << 30)
  memory.check_processes('num_workers', 8)
  with pytest.raises(ValueError, match=r'^num_workers=9: expected at most 8: '):
    memory.check_processes('num_workers', 9)


def test_a_process_has_no_more_than_its_own_limit(monkeypatch):
  limits = (1 << 45, resource.RLIM_INFINITY)
  monkeypatch.setattr(resource, 'getrlimit', lambda kind: limits)
  before = memory.available_bytes()
  used = int(memory._STATM.read_text().split()[0]) * resource.getpagesize()
  limits = (used + (64 << 20), resource.RLIM_INFINITY)
  assert memory.available_bytes() <= 64 << 20 < before


@pytest.mark.parametrize(
  ('limit', 'free'), [('max', 7 << 20), ('4000', 1500), ('900000000', 7 << 20)]
)
def test_a_container_has_no_more_than_its_limit(
  tmp_path, monkeypatch, limit, free
):
  for name, content in (
    ('memory.max', f'{limit}\n'),
    ('memory.current', '3000\n'),
    ('memory.stat', 'anon 2500\ninactive_file 400\nactive_file 100\n'),
    ('meminfo', 'MemTotal: 9000 kB\nMemAvailable: 7168 kB\n'),
  ):
    (tmp_path / name).write_text(content)
  monkeypatch.setattr(memory, '_CGROUP', tmp_path)
  monkeypatch.setattr(memory, '_MEMINFO', tmp_path / 'meminfo')
  assert memory.available_bytes() == free


def test_a_search_for_more_than_fits_is_refused(monkeypatch):
  monkeypatch.setattr(memory, 'available_bytes', lambda: 10**9)
  search = searchers.ExactSearcher(np.eye(3, dtype=np.float32)).search
  with pytest.raises(ValueError, match=r'^k=1000000000: expected at most 41,6'):
    search(np.eye(2, 3, dtype=np.float32), 10**9)
