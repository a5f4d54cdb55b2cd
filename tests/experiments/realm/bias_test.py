# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The gradient over few documents beside that over all of them."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from experiments.realm import bias
from realm_jax.data import examples
from realm_jax.serving import trained_models
from tests.experiments.realm import tiny_trained


def test_marginal_bias_is_zero_over_all_documents(
  data, workdir, tmp_path, monkeypatch
):
  config = tiny_trained.get_config(data)
  folder = tmp_path / 'run'
  shutil.copytree(workdir, folder)
  wanted = bias.MarginalBias(
    num_examples=2,
    ks=(2, 10_000),
    num_draws=3,
    read_at_once=16,
    steps=(tiny_trained.STEP,),
  )
  bias.marginal_bias(config, str(folder), wanted)
  assert (folder / bias.PICTURE).stat().st_size
  saved = json.loads((folder / bias.FILE).read_text())
  rows = {(r['estimator'], r['k'], r['gradient']): r for r in saved['rows']}
  assert len(rows) == 4 * 2 * 2
  for name in ('top', 'uniform', 'mixed'):
    for space in ('blocks', 'query'):
      every, few = (rows[name, k, space] for k in (10_000, 2))
      assert every['cosine'] == pytest.approx(1)
      assert every['bias'] == pytest.approx(0, abs=1e-5)
      assert every['posterior_mass'] == pytest.approx(1)
      assert few['cosine'] < 0.9999 and few['posterior_mass'] < 1
  monkeypatch.setattr(bias, 'compare', None)  # nothing is left to do
  bias.marginal_bias(config, str(folder), wanted)
  monkeypatch.undo()
  wanted = dataclasses.replace(wanted, num_examples=10_000)
  with pytest.raises(ValueError, match='num_examples'):
    bias.marginal_bias(config, str(folder), wanted)


def test_marginal_bias_reads_the_block_with_its_sentence(data, workdir):
  """The encoder's values are those of the training's loss."""
  config = tiny_trained.get_config(data)
  trained = trained_models.load(workdir, str(data), part='realm')
  reader = bias._Reader(trained, 5)
  row = next(bias._rows(config, trained, 16))
  vectors, scores, gold = reader.read(row)
  batch = examples.stack([row])
  ids = np.flatnonzero(trained.data.blocks.all_hashes() != row['origin_hash'])
  asked = batch['sentence'], batch['sentence_count']
  batch |= examples.queries(trained.layout, *asked) | examples.candidates(
    trained.layout, trained.data.blocks, np.append(-1, ids)[None], *asked
  )
  read = jax.jit(lambda x: trained.model.apply({'params': trained.params}, x))
  out = read({k: v for k, v in batch.items() if k != 'origin_hash'})
  targets = batch['mlm_mask'][0]
  assert len(vectors) == len(ids) + 1
  np.testing.assert_allclose(scores, out.scores[0], atol=1e-4)
  np.testing.assert_allclose(gold, out.gold_log_probs[0][:, targets], atol=1e-4)
