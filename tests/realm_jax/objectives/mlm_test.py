# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of masked language modelling put together again; its loss by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.data import examples, sources
from realm_jax.nn import realm as model_lib
from realm_jax.objectives import mlm
from retrieval.nn import means
from tests.realm_jax.nn import tiny
from tests.retrieval.index import index_versions_test

MASK = 4
blocks = index_versions_test.blocks
LAYOUT = examples.Layout(
  query_length=12, block_length=34, cls_id=2, sep_id=3, mask_id=MASK
)


def _read(blocks, seed=0):
  ids = np.arange(blocks.num_blocks)
  rows = mlm.read_rows(
    LAYOUT,
    blocks,
    ids,
    np.random.default_rng(seed),
    np.ones(1 + int(blocks.tokens.tokens[:].max())),
    mask_rate=0.3,
    removal_rate=0.5,
  )
  return ids, rows


def _parts(rows, i):
  """Tokens of the sentence, unmasked again, and of what follows."""
  row = rows['joint_ids'][i, 0][rows['joint_mask'][i, 0]].copy()
  where = rows['mlm_mask'][i]
  at = rows['mlm_positions'][i][where]
  assert (row[at] == MASK).all() and (row == MASK).sum() == len(at)
  row[at] = rows['mlm_targets'][i][where]
  first, second = np.flatnonzero(row == LAYOUT.sep_id)
  assert row[0] == LAYOUT.cls_id and second == len(row) - 1
  types = rows['joint_types'][i, 0][: len(row)]
  np.testing.assert_array_equal(types, np.arange(len(row)) > first)
  return row[1:first].tolist(), row[first + 1 : second].tolist()


def test_rows_hold_a_sentence_and_its_block(blocks):
  ids, rows = _read(blocks)
  assert rows['joint_ids'].shape == (len(ids), 1, LAYOUT.joint_length)
  assert 0.2 < rows['sentence_removed'].mean() < 0.8
  for i in ids.tolist():
    sentence, rest = _parts(rows, i)
    tokens, counts = blocks.gather(np.asarray([i]), 99)
    body = tokens[0, : counts[0]].tolist()
    sentences, sizes = blocks.gather_sentences(
      np.asarray(blocks.sentences(i)), 99
    )
    whole = [s[:n].tolist() for s, n in zip(sentences, sizes, strict=True)]
    if not rows['sentence_removed'][i]:
      assert rest == body
      assert sentence in [s[: LAYOUT.query_tokens] for s in whole]
    else:
      left = [
        (s[: LAYOUT.query_tokens], sum(whole[:j] + whole[j + 1 :], []))
        for j, s in enumerate(whole)
      ]
      assert (sentence, rest) in left
    masked = int(rows['mlm_mask'][i].sum())
    assert masked == sources.budget(len(sentence), 0.3)


def test_tokens_are_masked_by_weights_of_their_frequency(blocks):
  size = 5 + int(blocks.tokens.tokens[:].max())
  counts = np.bincount(blocks.tokens.tokens[:], minlength=size)
  weights = mlm.weigh_tokens(blocks, size)
  np.testing.assert_allclose(weights, 1 / np.sqrt(np.maximum(counts, 1)))
  only = np.full(size, 1e-9)
  only[wanted := int(counts.argmax())] = 1.0
  ids = np.arange(blocks.num_blocks)
  rows = mlm.read_rows(
    LAYOUT, blocks, ids, np.random.default_rng(0), only,
    mask_rate=0.1, removal_rate=0.0,
  )  # fmt: skip
  left = rows['joint_ids'][:, 0, : LAYOUT.query_length] == wanted
  # One token is masked of each sentence: this one, wherever it stands.
  first = rows['joint_types'][:, 0, : LAYOUT.query_length] == 0
  masked = (rows['mlm_targets'] == wanted) & rows['mlm_mask']
  assert masked.any() and not (left & first)[~masked.any(axis=1)].any()


def test_loss():
  config = tiny.config()
  model = model_lib.Realm(config)
  params = jax.tree.map(jnp.asarray, tiny.params(config, parts='encoder'))
  assert set(params) == {'encoder'}
  whole = tiny.batch(batch_size=4)
  batch = {
    name: x[:, :1] if name.startswith('joint_') else x
    for name, x in whole.items()
    if name.startswith(('joint_', 'mlm_'))
  } | {'sentence_removed': np.asarray([True, False, True, False])}
  batch = jax.tree.map(jnp.asarray, batch)
  logits = model.apply({'params': params}, batch, method='token_logits')[:, 0]
  log_probs = np.asarray(jax.nn.log_softmax(logits), np.float64)
  # Let one target be what the model predicts, so that accuracies are not zero.
  targets = batch['mlm_targets'].at[1, 0].set(log_probs[1, 0].argmax())
  batch['mlm_targets'] = targets.at[2, 1].set(log_probs[2, 1].argmax())
  found = mlm.loss(model, params, batch, jax.random.key(0), False)
  value, metrics = means.values(found)
  nll, right, kept = [], [], []
  for i, m in zip(*np.nonzero(batch['mlm_mask']), strict=True):
    target = batch['mlm_targets'][i, m]
    nll.append(-log_probs[i, m, target])
    right.append(log_probs[i, m].argmax() == target)
    kept.append(not batch['sentence_removed'][i])
  right, kept = np.asarray(right), np.asarray(kept)
  assert float(value) == pytest.approx(np.mean(nll), rel=1e-5)
  expected = {
    'accuracy': right.mean(),
    'accuracy_kept': right[kept].mean(),
    'accuracy_removed': right[~kept].mean(),
  }
  assert 0 < expected['accuracy_removed'] != expected['accuracy_kept']
  assert {k: float(v) for k, v in metrics.items()} == pytest.approx(expected)
