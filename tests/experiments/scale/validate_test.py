# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions beside the seconds of a small preparation."""

import dataclasses

import pytest

from configs.bases import retro_base
from experiments.scale import plan, rates as rates_lib, validate
from tests.experiments.engine import tiny_corpus


def test_compares_each_stage_of_a_corpus(tmp_path):
  tiny_corpus.write(tmp_path, 40)
  config = retro_base.get_config()
  config.corpus.kind = 'jsonl'
  config.corpus.path = str(tmp_path / 'documents.jsonl')
  config.tokenizer.vocab_size = 295
  config.valid_fraction = config.test_fraction = 0.2
  workdir = tmp_path / 'run'
  rates = rates_lib.load()
  rates['chunk'] = dataclasses.replace(rates['chunk'], value=0.5)
  found = validate.compare(config, str(workdir), rates)
  names = [x['stage'] for x in found['rows']]
  assert names == ['tokenize', 'chunk', 'embed', 'index', 'neighbors']
  job = validate.job_of(config, str(workdir))
  assert found['rows'][1]['predicted_sec'] == 2 * job.chunks
  assert all(x['measured_sec'] > 0 for x in found['rows'])
  data = validate.retro_data.DataFolder.of(config, str(workdir))
  assert job.documents == pytest.approx(data.tokens.num_documents)
  assert job.codes == 'exact'
  size = float(data.tokens.num_bytes[:].sum())
  assert job.text_bytes(rates) == pytest.approx(size)
  assert f'| chunk | {2 * job.chunks:,.0f} |' in plan.validation_table(found)
  with pytest.raises(ValueError, match='expected a new folder'):
    validate.compare(config, str(workdir), rates)
