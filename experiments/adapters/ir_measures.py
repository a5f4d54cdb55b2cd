# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures of ir-measures (MacAvaney et al. 2022), next to `ranking`."""

from collections.abc import Sequence
import subprocess
from typing import Any

import numpy as np

from retrieval.questions import ranking, trec_files


def parse(name: str) -> Any:
  """Return the measure of a name such as 'AP(rel=2)' or 'Rprec'.

  Raises:
    ImportError: without ir-measures.
    ValueError: for another name, or a measure that needs a further package.
  """
  try:
    import ir_measures
  except ImportError:
    raise ImportError(
      f'measure {name!r}: expected one of {ranking.NAMES}; others need ir-measures: '
      "pip install 'realm-retro-jax[beir]'"
    ) from None
  try:
    parsed = ir_measures.parse_measure(name)
    ir_measures.evaluator([parsed], {})
  except (ValueError, NameError, SyntaxError, RuntimeError) as error:
    raise ValueError(f'measure {name!r}: {error}') from None
  return parsed


def measure(
  names: Sequence[str],
  run: trec_files.Run,
  qrels: trec_files.Qrels,
  questions: Sequence[str],
  depth: int,
) -> ranking.Values:
  """Return name -> [n] values of a run's first blocks on n questions, in its order.

  Raises:
    ImportError, ValueError: as of `parse`, or names that a measure's tool refuses.
  """
  values = {}
  for name in names:
    ranked = {x: run.get(x, ())[:depth] for x in questions}
    scores = {q: {x: -i for i, (x, _) in enumerate(ranked[q])} for q in ranked}
    known = {x: qrels[x] for x in questions if x in qrels}
    try:
      results = list(parse(name).iter_calc(known, scores))
    except subprocess.CalledProcessError as error:  # names that gdeval refuses
      raise ValueError(f'measure {name!r}: {error}') from None
    by_id = {x.query_id: x.value for x in results}
    values[name] = np.array([by_id.get(x, 0.0) for x in questions], np.float64)
  return values
