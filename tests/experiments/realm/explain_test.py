# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions explained: as JSON, in print, and what cannot be explained."""

import json
import math
import types

import numpy as np
import pytest

from experiments import explain as command


@pytest.fixture
def flags(monkeypatch):
  """Sets what the command's own flags hold."""

  def set_flags(**values):
    values = {'data_dir': '', 'top': 5, 'json': False} | values
    parsed = types.SimpleNamespace(FLAGS=types.SimpleNamespace(**values))
    monkeypatch.setattr(command, 'flags', parsed)

  return set_flags


def test_explains_as_json(workdir, flags, capsys):
  texts = ['The mill stood in [MASK].', 'The [MASK] stood in Rome.']
  answers = ['1999', 'rivers crown']
  flags(text=texts, answer=answers, json=True, workdir=str(workdir))
  command.main([])
  one, several = json.loads(capsys.readouterr().out)
  assert (one['answer'], several['answer']) == ('1999', 'rivers crown')
  # A single mask stands for all wordpieces of the answer.
  assert len(one['predictions']) == 1 and len(several['predictions']) == 3
  assert [one['text'], several['text']] == texts
  for found in (one, several):
    for words in found['predictions']:
      shares = [share for _, share in words]
      assert len(words) == 5 and shares == sorted(shares, reverse=True)
    _check_documents(found, len(found['predictions']))


def _check_documents(found, num_targets):
  """Priors, posteriors and utilities of documents belong together."""
  documents = found['documents']
  null, *others = documents
  assert null['block'] == -1 and null['title'] == '(null)' and not null['text']
  assert len(others) == 2 and all(row['block'] >= 0 for row in others)
  prior = np.asarray([row['prior'] for row in documents])
  own = np.asarray([row['log_prob'] for row in documents])
  assert prior.sum() == pytest.approx(1)
  posterior = prior * np.exp(own - own.max())
  for row, share in zip(documents, posterior / posterior.sum(), strict=True):
    assert row['posterior'] == pytest.approx(share, rel=1e-3, abs=1e-6)
    gain = row['log_prob'] - null['log_prob']
    assert row['utility'] == pytest.approx(gain, abs=1e-3)
    assert row['word']
  assert found['null_log_prob'] == null['log_prob']
  if num_targets == 1:
    total = math.log((prior * np.exp(own)).sum())
    assert found['log_prob'] == pytest.approx(total, abs=1e-4)
    for k, row in enumerate(documents):
      rest = np.delete(prior, k) / (1 - prior[k])
      rest = math.log((rest * np.exp(np.delete(own, k))).sum())
      assert row['without'] == pytest.approx(rest, abs=1e-3)


def test_without_an_answer_the_prediction_is_explained(trained):
  text = 'The [MASK] stood in [MASK].'
  found = trained.explain(text)
  best = [words[0][0] for words in found.predictions]
  assert len(best) == 2 and found.answer.split() == ' '.join(best).split()
  again = trained.explain(text, found.answer)
  assert again.log_prob == pytest.approx(found.log_prob, abs=1e-4)
  printed = str(found)
  assert text in printed and '(null)' in printed and best[0] in printed


@pytest.mark.parametrize(
  ('message', 'fields'),
  [
    (r'.*\[MASK\]', {'cloze': 'The mill.'}),
    (r'.*\[MASK\]', {'cloze': '[MASK] ' * 11}),
    (r'.*\[MASK\]', {'answer': 'x' * 11}),
    (r'.*\[MASK\]', {'cloze': '[MASK] [MASK]', 'answer': '1999'}),
    (r'.*\[MASK\]', {'answer': ' '}),
    (r'.*\[MASK\]', {'cloze': 'mill ' * 30 + '[MASK]'}),
    ('top', {'top': 0}),
    ('top', {'top': 10**9}),
    ('cloze', {'cloze': 5}),
    ('cloze', {'cloze': '[MASK] \ud800'}),
    ('answer', {'answer': b'1999'}),
  ],
)
@pytest.mark.usefixtures('unchecked')
def test_what_cannot_be_explained_is_refused_by_name(trained, message, fields):
  with pytest.raises(ValueError, match=f'^{message}'):
    trained.explain(**{'cloze': '[MASK]'} | fields)
