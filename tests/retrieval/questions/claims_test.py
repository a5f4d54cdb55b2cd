# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of claims in every form, and the errors of bad files."""

import gzip
import json
import pathlib

import pytest

from retrieval.questions import claims

C = claims.Claim
DATA = pathlib.Path(__file__).parents[2] / 'data' / 'claims'


def write(path, *lines):
  path.write_text('\n'.join(json.dumps(line) for line in lines))
  return path


def test_fever(tmp_path):
  path = write(
    tmp_path / 'f.jsonl',
    {
      'id': 7,
      'claim': 'It stands.',
      'label': 'REFUTES',
      'evidence': [
        [[1, 2, 'Mill_-LRB-old-RRB-', 0], [1, 3, 'Rome', 4]],
        [[5, 6, 'Rome', 1]],
      ],
      'verifiable': 'VERIFIABLE',
    },
    {
      'id': 8,
      'claim': 'It fell.',
      'label': 'NOT ENOUGH INFO',
      'evidence': [[[1, None, None, None]]],
    },
    {'id': 9, 'claim': 'It burns.', 'label': 'SUPPORTS'},
  )
  found = claims.load(f'fever:train={path}')
  assert found.labels == ('SUPPORTS', 'REFUTES', 'NOT ENOUGH INFO')
  assert found.claims == (
    C('7', 'It stands.', 1, ('Mill (old)', 'Rome')),
    C('8', 'It fell.', 2),
    C('9', 'It burns.', 0),
  )
  assert found.name == 'fever:train' and found.labelled


def test_hover(tmp_path):
  records = [
    {
      'uid': 'a-b',
      'claim': 'It stands.',
      'label': 'NOT_SUPPORTED',
      'supporting_facts': [['Rome', 0], ['the  mill', 2]],
    },
    {'uid': 'c', 'claim': 'It fell.', 'label': 'SUPPORTED'},
  ]
  path = tmp_path / 'h.json.gz'
  path.write_bytes(gzip.compress(json.dumps(records).encode()))
  found = claims.load(f'hover:dev={path}')
  assert found.labels == ('SUPPORTED', 'NOT_SUPPORTED')
  assert found.claims == (
    C('a-b', 'It stands.', 1, ('Rome', 'The mill')),
    C('c', 'It fell.', 0),
  )


def test_custom_of_several_files(tmp_path):
  lines = [
    write(tmp_path / f'{name}.jsonl', {'claim': 'x', 'label': name})
    for name in ('no', 'yes')
  ]
  found_spec = f'custom:test={lines[0]},{lines[1]}'
  found = claims.load(found_spec, ('yes', 'no'))
  assert found.claims == (C('no.jsonl:1', 'x', 1), C('yes.jsonl:1', 'x', 0))
  assert claims.load(found_spec, ('yes', 'no'), 1).claims == found.claims[:1]


def test_blind_sets_have_no_labels(tmp_path):
  path = write(tmp_path / 'f.jsonl', {'id': 1, 'claim': 'x'})
  found = claims.load(f'fever:test={path}')
  assert not found.labelled and found.claims[0].label == claims.NO_LABEL


@pytest.mark.parametrize(
  'record, message',
  [
    ({'id': 1, 'label': 'SUPPORTS'}, "'claim'"),
    ({'id': 1, 'claim': ' ', 'label': 'SUPPORTS'}, 'blank'),
    ({'id': 1, 'claim': 'x', 'label': 'SUPPORTED'}, "'SUPPORTED'"),
    ({'id': 0, 'claim': 'x', 'label': 'SUPPORTS'}, "id '0'"),
    ({'id': 1, 'claim': 'x'}, 'label'),
    ({'id': [1], 'claim': 'x', 'label': 'SUPPORTS'}, "'id'"),
    (
      {'id': 1, 'claim': 'x', 'label': 'SUPPORTS', 'evidence': [['Rome']]},
      "'evidence'",
    ),
    (
      {'id': 1, 'claim': 'x', 'label': 'SUPPORTS', 'evidence': [[[1, 2, 3]]]},
      "'evidence'",
    ),
    (['x'], 'found list'),
  ],
)
def test_bad_records_are_named(tmp_path, record, message):
  good = {'id': 0, 'claim': 'y', 'label': 'SUPPORTS'}
  path = write(tmp_path / 'f.jsonl', good, record)
  with pytest.raises(ValueError, match=f'jsonl:2: .*{message}'):
    claims.load(f'fever:train={path}')


def test_small_set_names_its_evidence():
  titles = {
    json.loads(line)['title']
    for line in (DATA / 'documents.jsonl').read_text().splitlines()
  }
  for split in ('train', 'dev'):
    found = claims.load(f'fever:{split}={DATA / split}.jsonl')
    assert {claim.label for claim in found.claims} == {0, 1, 2}
    for claim in found.claims:
      assert set(claim.titles) <= titles
      assert bool(claim.titles) == (claim.label < 2)
