# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions and measures, against loops over queries, candidates and tokens."""

import jax
import numpy as np
import pytest

from realm_jax.nn import realm as model_lib
from realm_jax.trained import explain
from tests.realm_jax.nn import tiny

N = 3  # tokens named of each mask


@pytest.fixture(scope='module')
def model():
  return model_lib.Realm(tiny.config())


@pytest.fixture(scope='module')
def params():
  return tiny.params(tiny.config())


@pytest.fixture(scope='module')
def tables(model):
  """(params, batch) -> relevance scores and logits, before what is tested."""

  @jax.jit
  def run(params, batch):
    return tuple(
      model.apply({'params': params}, batch, method=method)
      for method in ('relevance_scores', 'token_logits')
    )

  def numbers(params, batch):
    found = jax.device_get(run(params, batch))
    return (np.asarray(x, np.float64) for x in found)

  return numbers


def _ragged(seed):
  """A batch whose last row has no target, and one candidate beside null."""
  batch = tiny.batch(seed)
  batch['mlm_mask'][-1] = False
  batch['candidate_valid'][-1, 1] = False
  return batch


def _log_softmax(x):
  return x - x.max() - np.log(np.exp(x - x.max()).sum())


def _predict_row(scores, logits, valid, targets, mask, n):
  """One query's prediction; what stands at an invalid candidate is left out."""
  ks = [k for k in range(len(scores)) if valid[k]]
  at = [m for m in range(len(targets)) if mask[m]]
  prior = dict(zip(ks, np.exp(_log_softmax(scores[ks])), strict=True))
  words = {(k, m): np.exp(_log_softmax(logits[k, m])) for k in ks for m in at}
  gold = {(k, m): words[k, m][targets[m]] for k, m in words}
  span = {k: np.prod([gold[k, m] for m in at]) for k in ks}
  evidence = sum(prior[k] * span[k] for k in ks)
  marginal = {m: sum(prior[k] * words[k, m] for k in ks) for m in at}
  best = {m: np.argsort(-marginal[m])[:n] for m in at}
  without = {}
  for out in ks:
    rest = sum(prior[k] for k in ks if k != out)
    for m in at:
      others = sum(prior[k] * gold[k, m] for k in ks if k != out)
      without[out, m] = np.log(others / rest)
  return {
    'log_prior': {k: np.log(prior[k]) for k in ks},
    'log_posterior': {k: np.log(prior[k] * span[k] / evidence) for k in ks},
    'gold': {key: np.log(x) for key, x in gold.items()},
    'marginal_gold': {m: np.log(marginal[m][targets[m]]) for m in at},
    'utility': {k: np.log(span[k] / span[0]) for k in ks},
    'without': without,
    'tokens': {(m, i): x for m in at for i, x in enumerate(best[m])},
    'token_log_probs': {
      (m, i): np.log(marginal[m][x]) for m in at for i, x in enumerate(best[m])
    },
    'candidate_tokens': {key: words[key].argmax() for key in words},
  }


def _predict(tables, params, batch, n=1):
  """One dict for each query; see `_predict_row`."""
  rows = zip(
    *tables(params, batch),
    batch['candidate_valid'],
    batch['mlm_targets'],
    batch['mlm_mask'],
    strict=True,
  )
  return [_predict_row(*row, n) for row in rows]


@pytest.mark.parametrize('seed', [0, 1])
def test_predictions_equal_loops(model, params, tables, seed):
  batch = _ragged(seed)
  out = jax.device_get(explain.predict(model, params, batch, num_tokens=N))
  for b, want in enumerate(_predict(tables, params, batch, N)):
    for name, values in want.items():
      found = getattr(out, name)[b]
      for key, value in values.items():
        assert found[key] == pytest.approx(value, abs=2e-5), (name, b, key)
  assert out.tokens.shape == out.token_log_probs.shape == (tiny.B, tiny.M, N)
  assert not out.marginal_gold[~batch['mlm_mask']].any()
  # Who is no candidate has no probability and no use.
  none = ~batch['candidate_valid']
  assert none.sum() == 2 and not np.exp(out.log_prior[none]).any()
  assert not np.exp(out.log_posterior[none]).any()
  assert not out.utility[none].any() and not out.utility[:, 0].any()


def _measure(tables, params, batches):
  """Means over tokens and over queries, by loops."""
  found = {}

  def add(name, value):
    found.setdefault(name, []).append(float(value))

  for batch in batches:
    rows = _predict(tables, params, batch)
    for b, row in enumerate(rows):
      at = np.flatnonzero(batch['mlm_mask'][b])
      if not len(at):
        continue
      target = batch['mlm_targets'][b]
      right = {
        '': [row['tokens'][m, 0] == target[m] for m in at],
        'null_': [row['candidate_tokens'][0, m] == target[m] for m in at],
      }
      for name, values in right.items():
        add(f'{name}exact_span', all(values))
        for value in values:
          add(f'{name}accuracy', value)
      for m in at:
        add('log_prob', row['marginal_gold'][m])
        add('null_log_prob', row['gold'][0, m])
        add('retrieval_utility', row['marginal_gold'][m] - row['gold'][0, m])
      add('best_utility', max(row['utility'].values()))
      add('null_prior', np.exp(row['log_prior'][0]))
  means = {name: np.mean(values) for name, values in found.items()}
  return means | {'examples': len(found['best_utility'])}


def _answer(tables, params, batch, row, count):
  """Makes the first `count` predictions of a row, alone or with null, right."""
  rows = _predict(tables, params, batch | {'mlm_mask': np.ones_like(row)})
  for b, found in enumerate(rows):
    for m in range(count):
      tokens = found['tokens'][m, 0], found['candidate_tokens'][0, m]
      batch['mlm_targets'][b, m] = tokens[row[b, m]]
  return batch


def test_measures_equal_loops(model, params, tables):
  batches = [_ragged(0), _ragged(1), tiny.batch(2)]
  # Some tokens and spans are right, by the marginal or by null alone.
  every = np.zeros((tiny.B, tiny.M), int)
  batches += [
    _answer(tables, params, tiny.batch(3), every, 2),
    _answer(tables, params, tiny.batch(4), every + 1, tiny.M),
    tiny.batch(5),
  ]
  found = explain.measure(model, params, iter(batches))
  want = _measure(tables, params, batches)
  for name in ('log_prob', 'accuracy', 'exact_span'):
    gain = found.pop(f'{name}_gain')
    means = want[name] - want[f'null_{name}']
    assert gain['mean'] == pytest.approx(means, abs=2e-5)
    assert gain['low'] < gain['mean'] < gain['high']
  assert found == pytest.approx(want, abs=2e-5)
  assert found['examples'] == 10.0
  shares = ('accuracy', 'exact_span', 'null_accuracy', 'null_exact_span')
  assert all(0 < found[name] < 1 for name in shares)
  assert len({found[name] for name in shares}) == 4
