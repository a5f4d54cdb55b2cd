# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Counts and times of a server in Prometheus' text form (version 0.0.4)."""

import collections
from collections.abc import Mapping
import threading

CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8'
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_ABOUT = {
  'requests_total': ('counter', 'Answered requests.'),
  'request_seconds': ('histogram', 'Time from a request to its answer.'),
  'batches_total': ('counter', 'Batches of equal jobs.'),
  'jobs_total': ('counter', 'Jobs of these batches.'),
  'tokens_total': ('counter', 'Tokens read and written.'),
  'waiting_jobs': ('gauge', 'Jobs in the queue.'),
}


class Metrics:
  """Numbers that any thread may add to."""

  def __init__(self):
    """Begin at nothing."""
    self._values: dict[tuple, float] = collections.defaultdict(float)
    self._lock = threading.Lock()

  def add(self, name: str, value: float = 1, **labels: str) -> None:
    """Add to a counter."""
    with self._lock:
      self._values[name, name, *sorted(labels.items())] += value

  def observe(self, name: str, value: float, **labels: str) -> None:
    """Count a value of a histogram."""
    pairs = sorted(labels.items())
    with self._lock:
      for limit in (*_SECONDS, float('inf')):
        text = '+Inf' if limit == float('inf') else f'{limit:g}'
        key = name, f'{name}_bucket', *pairs, ('le', text)
        self._values[key] += value <= limit
      self._values[name, f'{name}_sum', *pairs] += value
      self._values[name, f'{name}_count', *pairs] += 1

  def text(self, gauges: Mapping[str, float]) -> str:
    """Return all numbers, and gauges by name."""
    with self._lock:
      values = dict(self._values)
    values |= {(name, name): x for name, x in gauges.items()}
    lines = []
    for name, (kind, about) in _ABOUT.items():
      lines += [f'# HELP realm_retro_{name} {about}']
      lines += [f'# TYPE realm_retro_{name} {kind}']
      for (of, sample, *labels), value in values.items():
        if of == name:
          shown = ','.join(f'{x}="{y}"' for x, y in labels)
          shown = f'{{{shown}}}' if shown else ''
          lines.append(f'realm_retro_{sample}{shown} {value:.10g}')
    return '\n'.join(lines) + '\n'
