# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Late-interaction folders against PyLate and sentence-transformers.

The slow tests compute the expected vectors anew where PYLATE_PYTHON and
SENTENCE_TRANSFORMERS_PYTHON name a Python that has the library.
"""

import json
import os
import pathlib
import subprocess

import jax
import numpy as np
import pytest

from retrieval.nn import colbert, colbert_folder
from tests.retrieval.nn import colbert_folders

DATA = pathlib.Path(__file__).parents[2] / 'data'
PYTHONS = {
  name: os.environ.get(f'{name.upper()}_PYTHON', '')
  for name in colbert_folders.KINDS
}
KINDS = [
  (x, kind) for x, kinds in colbert_folders.KINDS.items() for kind in kinds
]


def _expected(library):
  return json.loads((DATA / f'colbert_{library}.json').read_text())


def _load(folder):
  model = colbert_folder.read(folder)
  return colbert.ColbertEncoder(*model, devices=jax.devices()[:1])


def _edit(file, **fields):
  """Writes a JSON file anew with other fields; None removes one."""
  stated = json.loads(file.read_text()) | fields
  stated = {k: v for k, v in stated.items() if v is not None}
  file.write_text(json.dumps(stated))


@pytest.mark.parametrize(('library', 'kind'), KINDS)
def test_vectors_and_scores_equal_the_library(tmp_path, library, kind):
  folder = colbert_folders.save(tmp_path / 'a', library, kind)
  assert colbert_folder.is_model(folder)
  encoder, expected = _load(folder), _expected(library)[kind]
  vectors = encoder.passages(colbert_folders.PASSAGES)
  passages = np.split(vectors.values, vectors.ends[:-1])
  queries = encoder.queries(colbert_folders.QUERIES)
  lengths = queries.any(axis=2).sum(axis=1)
  queries = [query[:n] for query, n in zip(queries, lengths, strict=True)]
  for name, ours in (('queries', queries), ('passages', passages)):
    for have, want in zip(ours, expected[name], strict=True):
      np.testing.assert_allclose(have, want, atol=2e-5)
  texts = [colbert_folders.PASSAGES] * len(colbert_folders.QUERIES)
  scores = encoder.score(colbert_folders.QUERIES, texts)
  np.testing.assert_allclose(scores, expected['scores'], atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize('library', PYTHONS)
def test_the_library_computes_the_expected_vectors(library):
  if not PYTHONS[library]:
    pytest.skip(f'{library.upper()}_PYTHON is not set')
  command = PYTHONS[library], '-m', 'tests.retrieval.nn.colbert_folders'
  made = subprocess.run([*command, library], check=True, capture_output=True)
  computed, expected = json.loads(made.stdout), _expected(library)
  assert {*computed} == {*expected}
  for kind, values in expected.items():
    for name, want in values.items():
      for have, one in zip(computed[kind][name], want, strict=True):
        np.testing.assert_allclose(have, one, atol=2e-6)


def test_every_statement_is_in_the_fingerprint(tmp_path):
  for library, kinds in colbert_folders.KINDS.items():
    root = tmp_path / library
    root.mkdir()
    prints = {
      kind: _load(colbert_folders.save(root / kind, library, kind)).fingerprint
      for kind in kinds
    }
    assert len({*prints.values()}) == len(kinds)


_STATED = 'config_sentence_transformers.json'
_LENGTHS = 'sentence_bert_config.json'
_MASK = '2_MultiVectorMask/config.json'
REFUSED = [
  ('pylate', _STATED, 'query_prefix', '[unknown]'),
  ('pylate', _STATED, 'query_length', 'long'),
  ('pylate', _STATED, 'document_length', 3),
  ('pylate', _STATED, 'skiplist_words', 5),
  ('pylate', _STATED, 'skiplist_words', ['<s>']),
  ('pylate', _STATED, 'do_query_expansion', 'yes'),
  ('pylate', _STATED, 'pool_factor', 2),
  ('pylate', _LENGTHS, 'processing_kwargs', {'text': {}}),
  ('pylate', '1_Dense/config.json', 'activation_function', 'mine.Tanh'),
  ('pylate', '1_Dense/config.json', 'normalize_before', True),
  ('pylate', '1_Dense/config.json', 'in_features', 9),
  ('pylate', '1_Dense/config.json', 'use_residual', True),
  ('sentence_transformers', _STATED, 'similarity_fn_name', 'meanmaxsim'),
  ('sentence_transformers', _STATED, 'query_prefix', '[Q] '),
  ('sentence_transformers', _LENGTHS, 'query_expansion', {'strategy': 'most'}),
  ('sentence_transformers', _LENGTHS, 'query_expansion', {'length': 9}),
  (
    'sentence_transformers',
    _LENGTHS,
    'query_expansion',
    {'strategy': 'min', 'length': None},
  ),
  ('sentence_transformers', _LENGTHS, 'query_expansion', 9),
  ('sentence_transformers', _LENGTHS, 'transformer_task', 'fill-mask'),
  ('sentence_transformers', _MASK, 'skiplist_tasks', ['query']),
  ('sentence_transformers', _MASK, 'keep_only_token_ids', [3]),
  ('sentence_transformers', '1_Dense/config.json', 'module_input_name', 'x'),
  (
    'sentence_transformers',
    '3_Normalize/config.json',
    'module_input_name',
    'x',
  ),
  ('sentence_transformers', 'tokenizer_config.json', 'mask_token', '[other]'),
]


@pytest.mark.parametrize(('library', 'file', 'field', 'value'), REFUSED)
def test_what_is_not_supported_is_refused_by_name(
  tmp_path, library, file, field, value
):
  folder = colbert_folders.save(tmp_path / 'a', library, 'plain')
  _edit(folder / file, **{field: value})
  with pytest.raises(ValueError) as error:
    _load(folder)
  said = str(error.value)
  assert '\n' not in said
  assert field in said or repr(value) in said


def test_other_modules_are_refused(tmp_path):
  for library, position, kind in (
    ('pylate', 1, ''),  # no Dense
    ('pylate', 1, 'a.Normalize'),
    ('sentence_transformers', 1, 'a.HierarchicalTokenPooling'),
    ('sentence_transformers', 2, 'a.Normalize'),  # nothing scores [MASK]
    ('sentence_transformers', 3, 'a.MultiVectorMask'),  # other lengths
  ):
    path = tmp_path / f'{library} {position} {kind}'
    folder = colbert_folders.save(path, library, 'plain')
    modules = json.loads((folder / 'modules.json').read_text())
    modules[position]['type'] = kind
    name = kind.partition('.')[2]
    same = [x['path'] for x in modules if x['path'].endswith(name)]
    modules[position]['path'] = (same or ['other'])[-1]
    modules = modules if kind else modules[:position]
    (folder / 'modules.json').write_text(json.dumps(modules))
    with pytest.raises(ValueError, match='modules.json'):
      _load(folder)
