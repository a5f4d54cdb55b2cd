# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The released REALM from its name on the Hub to the paper's table, made small."""

import json
import pathlib

import pytest

from configs import open_qa_released
from experiments.conversion import released
from experiments.engine import configs
from experiments.open_qa import config as config_lib, evaluate
from tests import hub_server

HF = pathlib.Path(__file__).parents[1] / 'data' / 'realm' / 'hf_openqa'


def _config():
  c = open_qa_released.get_config()
  c.tokens.num_processes = 1
  c.questions.allow_other_counts = True
  return configs.build(config_lib.Config, c)


@pytest.mark.slow
def test_from_names_to_the_table(tmp_path, monkeypatch, capsys):
  file = tmp_path / 'test.jsonl'
  lines = [{'question': 'Where was the mill?', 'answer': ['Rome']}] * 2
  file.write_text(''.join(json.dumps(line) + '\n' for line in lines))
  wanted = evaluate.Evaluate(
    questions=(f'nq_open:test={file}', f'webquestions:test={file}')
  )
  with hub_server.serve(monkeypatch, tmp_path / 'cache') as hub:
    for name in ('nq', 'wq'):
      hub.repos[f'google/realm-orqa-{name}-openqa'] = HF
    released.measure(_config(), str(tmp_path / 'run'), wanted)
    count = len(hub.got)
    released.measure(_config(), str(tmp_path / 'run'), wanted)  # all is there
    assert len(hub.got) == count
  assert (tmp_path / 'run' / 'data' / 'blocks').is_dir()
  shown = capsys.readouterr().out
  assert 'nq_open:test' in shown and '40.4' in shown and '40.7' in shown


def test_a_set_without_a_model_is_refused_before_the_work(tmp_path):
  wanted = evaluate.Evaluate(questions=('curatedtrec:test=x.tsv',))
  with pytest.raises(ValueError, match='curatedtrec'):
    released.measure(_config(), str(tmp_path), wanted)
