# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Facts asked of a tiny REALM, against its explanations one by one."""

import json

import pytest

from experiments.realm import facts as facts_lib, probe, task as realm_task
from tests.experiments.realm import tiny_trained

FACTS = (
  {'masked_sentences': ['The mill stood in [MASK].'], 'obj_label': 'rome'},
  {
    'evidences': [{'masked_sentence': 'The [MASK] stood in Rome.'}],
    'obj_label': 'river',
    'predicate_id': 'P1',
  },
  {'masked_sentences': ['In [MASK] the king was.'], 'obj_label': 'paris'},
  {'masked_sentences': ['It is [MASK].'], 'obj_label': 'rivers crown rivers'},
  {'masked_sentences': ['river ' * 90 + '[MASK].'], 'obj_label': 'paris'},
)


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tiny_trained.make_data(tmp_path_factory.mktemp('data'))
  lines = (json.dumps(fact) for fact in FACTS)
  (root / 'facts.jsonl').write_text('\n'.join(lines))
  return root


@pytest.fixture(scope='module')
def facts(data, trained):
  return facts_lib.read(data / 'facts.jsonl', trained)


def test_ranks_are_those_of_the_explained_predictions(trained, index, facts):
  assert len(facts.rows) == 3 and sorted(facts.skipped.values()) == [1, 1]
  assert facts.relations == ['', 'P1', '']
  found = facts_lib.ranks(trained, index, facts, batch_size=2)
  tokenizer = trained.data.tokenizer
  texts = ('The mill stood in [MASK].', 'The [MASK] stood in Rome.')
  for rank, text, answer in zip(found, texts, ('rome', 'river'), strict=False):
    (words,) = trained.explain(text, answer, top=facts_lib.MOST).predictions
    words = [word for word, _ in words]
    wanted = tokenizer.decode(tokenizer.encode(answer).ids)
    assert rank == (words.index(wanted) if wanted in words else facts_lib.MOST)


def test_facts_of_the_corpus_are_held_out_spans(trained, index):
  config = tiny_trained.get_config(trained.data.root)
  source = realm_task.masked_sentences(config, trained.data, 'valid')
  found = facts_lib.of_spans(source, 5, seed=0)
  assert 0 < len(found.rows) <= 5
  origins = [int(row['origin']) for row in found.rows]
  assert len(set(origins)) == len(origins)
  assert all(row['mlm_mask'].sum() == 1 for row in found.rows)
  again = facts_lib.of_spans(source, 5, seed=0)
  assert [int(row['origin']) for row in again.rows] == origins
  assert (facts_lib.ranks(trained, index, found) <= facts_lib.MOST).all()


def test_the_command_reports_paired_differences(data, workdir, capsys):
  probe.probe(str(workdir), [str(data / 'facts.jsonl')], num_spans=4)
  rows = json.loads((workdir / probe.FILE).read_text())['rows']
  assert [row['documents'] for row in rows] == 2 * [
    'retrieved',
    'random',
    'none',
  ]
  by = {(row['facts'], row['documents']): row for row in rows}
  for name in ('facts', 'held-out spans'):
    none = by[name, 'none']
    for row in (by[name, 'retrieved'], by[name, 'random']):
      for k in probe.DEPTHS:
        less = row[f'p@{k}']['mean'] - none[f'p@{k}']['mean']
        assert row[f'p@{k}_less_none']['mean'] == pytest.approx(less)
      assert row['p@1']['mean'] <= row['p@10']['mean']
  assert 'p@1_over_relations' in by['facts', 'none']
  assert 'p@1_over_relations' not in by['held-out spans', 'none']
  assert 'less none' in capsys.readouterr().out


@pytest.mark.parametrize(
  'line',
  [
    '{"obj_label": "rome"}',
    '{"masked_sentences": ["No mask."], "obj_label": "rome"}',
    '[]',
    json.dumps(FACTS[3]),
  ],
)
def test_bad_records_are_named(trained, tmp_path, line):
  file = tmp_path / 'bad.jsonl'
  file.write_text(line)
  with pytest.raises(ValueError, match=r'bad\.jsonl'):
    facts_lib.read(file, trained)
  with pytest.raises(FileNotFoundError):
    facts_lib.read(tmp_path / 'nowhere.jsonl', trained)
