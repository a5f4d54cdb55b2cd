# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Facts as sentences with one masked word, asked of REALM.

Petroni et al. 2019 (LAMA, arXiv 1909.01066): a model knows a fact where the masked
word is among the first of its predictions. Only words of one wordpiece are asked.

Dimension key: n facts, B facts of a batch, Q query length, M targets.
"""

import dataclasses
import os
from typing import Any, Literal

from jaxtyping import Int
import numpy as np

from realm_jax.data import examples, pipeline, sources
from realm_jax.trained import explain, realm
from retrieval.readers import json_files
from retrieval.store import shards

Documents = Literal['retrieved', 'random', 'none']
MOST = 10  # predictions that are looked at

_SEVERAL = 'answer of several wordpieces'
_LONG = 'sentence longer than the query'


@dataclasses.dataclass(frozen=True)
class Facts:
  """Facts to ask, as rows of `examples.mask_sentence` with their origin."""

  rows: list[examples.Batch]
  relations: list[str]  # of each row; '' for none
  skipped: dict[str, int]  # reason -> number of facts


def read(path: str | os.PathLike, trained: realm.TrainedRealm) -> Facts:
  """Read JSON lines in LAMA's form.

  Fields: `obj_label`, the word; `masked_sentences`, of which the first is asked, or
  `evidences` with a `masked_sentence` each; optionally `predicate_id`, the relation.

  Raises:
    FileNotFoundError: if there is no such file.
    ValueError: naming file and line of a record without these fields or a mask, and
      for a file without a fact of one wordpiece.
  """
  rows, relations, skipped = [], [], {_SEVERAL: 0, _LONG: 0}
  tokenizer, layout = trained.data.tokenizer, trained.layout
  for where, record in json_files.read(path):
    text, answer = _sentence(record), record.get('obj_label')
    texts = isinstance(answer, str) and isinstance(text, str)
    if not texts or text.count(explain.MASK) != 1:
      raise ValueError(
        f"{where}: expected a text 'obj_label' and a sentence with one "
        f'{explain.MASK}, not {answer!r} and {text!r}.'
      )
    if len(tokenizer.encode(answer).ids) != 1:
      skipped[_SEVERAL] += 1
    elif len(tokenizer.encode(text).ids) > layout.query_tokens:
      skipped[_LONG] += 1
    else:
      batch = explain.encode(trained, text, answer)
      rows.append({name: x[0] for name, x in batch.items()})
      relations.append(str(record.get('predicate_id', '')))
  if not rows:
    raise ValueError(f'{path}: no fact that can be asked; skipped: {skipped}.')
  return Facts(rows, relations, skipped)


def _sentence(record: dict[str, Any]) -> Any:
  """Return the first masked sentence of a record."""
  texts = record.get('masked_sentences')
  if texts is None:
    rows = record.get('evidences', ())
    texts = [x.get('masked_sentence') for x in rows if isinstance(x, dict)]
  return texts[0] if texts and isinstance(texts, list) else None


def of_spans(source: sources.MaskedSentences, count: int, seed: int) -> Facts:
  """Take at most `count` sentences whose masked span is one wordpiece.

  Each comes from another block, which is never a candidate.

  Raises:
    ValueError: where no span is one wordpiece.
  """
  rng = np.random.default_rng(seed)
  rows, several = [], 0
  for i in rng.permutation(len(source)).tolist():
    row = source.example(i, rng)
    if row['mlm_mask'].sum() == 1:
      rows.append(row)
    else:
      several += 1
    if len(rows) == count:
      break
  if not rows:
    raise ValueError(f'{source!r}: no masked span is one wordpiece.')
  return Facts(rows, [''] * len(rows), {_SEVERAL: several})


def ranks(
  trained: realm.TrainedRealm,
  index: pipeline.Snapshot,
  facts: Facts,
  documents: Documents = 'retrieved',
  *,
  batch_size: int = 8,
  progress: shards.Progress | None = None,
) -> Int[np.ndarray, ' n']:
  """Ask every fact.

  Args:
    documents: what REALM reads beside the null document.
    progress: called with (facts done, facts in all).

  Returns:
    The place of each fact's word among the predictions, from 0; MOST for words
    after the first MOST.

  Raises:
    ValueError: for a model of ICT, which has no encoder.
  """
  explain.check_encoder(trained)
  retrieval = pipeline.Retrieval(
    trained.data.blocks,
    trained.layout,
    pipeline.OneSnapshot(index),
    'random' if documents == 'random' else 'retrieved',
  )
  places = []
  for low in range(0, len(facts.rows), batch_size):
    rows = facts.rows[low : low + batch_size]
    filled = rows + rows[-1:] * (batch_size - len(rows))  # one shape for all
    batch = retrieval(low // batch_size, examples.stack(filled))
    if documents == 'none':
      batch['candidate_valid'] = batch['candidate_valid'].copy()
      batch['candidate_valid'][:, 1:] = False
    out = explain.predict(trained.model, trained.params, batch, MOST)
    right = np.asarray(out.tokens)[:, 0] == batch['mlm_targets'][:, :1]
    places.append(np.where(right.any(-1), right.argmax(-1), MOST)[: len(rows)])
    if progress:
      progress(low + len(rows), len(facts.rows))
  return np.concatenate(places).astype(np.int64)
