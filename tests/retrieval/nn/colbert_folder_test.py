# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Late-interaction folders against PyLate and sentence-transformers."""

import json
import pathlib

import numpy as np
import pytest

from retrieval.nn import colbert, colbert_folder, max_sim
from tests.retrieval.nn import colbert_folders, sentence_folders

DATA = pathlib.Path(__file__).parents[2] / 'data'
KINDS = [
  (x, kind) for x, kinds in colbert_folders.KINDS.items() for kind in kinds
]


def _load(folder):
  model = colbert_folder.read(folder)
  return colbert.ColbertEncoder(*model)


@pytest.mark.parametrize(('library', 'kind'), KINDS)
def test_vectors_and_scores_equal_the_library(tmp_path, library, kind):
  folder = colbert_folders.save(tmp_path / 'a', library, kind)
  assert colbert_folder.is_model(folder)
  expected = json.loads((DATA / f'colbert_{library}.json').read_text())[kind]
  encoder = _load(folder)
  vectors = encoder.passages(colbert_folders.PASSAGES)
  passages = np.split(vectors.values, vectors.ends[:-1])
  queries = encoder.queries(colbert_folders.QUERIES)
  lengths = queries.any(axis=2).sum(axis=1)
  queries = [query[:n] for query, n in zip(queries, lengths, strict=True)]
  for name, ours in (('queries', queries), ('passages', passages)):
    for have, want in zip(ours, expected[name], strict=True):
      np.testing.assert_allclose(have, want, atol=2e-5)
  scores = [max_sim.max_sims(query, *vectors) for query in queries]
  np.testing.assert_allclose(scores, expected['scores'], atol=2e-5)


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
REFUSED = {
  'pylate': [
    (_STATED, 'query_prefix', '[unknown]'),
    (_STATED, 'document_length', 3),
    (_STATED, 'skiplist_words', 5),
    (_STATED, 'skiplist_words', ['<s>']),
    (_STATED, 'do_query_expansion', 'yes'),
    (_STATED, 'pool_factor', 2),
    (_STATED, 'default_prompt_name', 'query'),
    (_LENGTHS, 'processing_kwargs', {'text': {}}),
  ],
  'sentence_transformers': [
    (_STATED, 'similarity_fn_name', 'meanmaxsim'),
    (_STATED, 'query_prefix', '[Q] '),
    (_LENGTHS, 'query_expansion', {'strategy': 'most', 'length': 9}),
    (_LENGTHS, 'query_expansion', {'length': 9}),
    (_LENGTHS, 'transformer_task', 'fill-mask'),
    (_MASK, 'skiplist_tasks', ['query']),
    (_MASK, 'keep_only_token_ids', [3]),
    ('1_Dense/config.json', 'module_input_name', None),
    ('3_Normalize/config.json', 'module_input_name', 'x'),
    ('tokenizer_config.json', 'mask_token', '[other]'),
  ],
}


@pytest.mark.parametrize('library', REFUSED)
def test_what_is_not_supported_is_refused_by_name(tmp_path, library):
  for number, (file, field, value) in enumerate(REFUSED[library]):
    folder = tmp_path / str(number)
    folder = colbert_folders.save(folder, library, 'plain')
    sentence_folders.edit(folder / file, **{field: value})
    with pytest.raises(ValueError) as error:
      _load(folder)
    said = str(error.value)
    assert '\n' not in said
    assert field in said or repr(value) in said


MODULES = [
  ('pylate', 'Transformer'),
  ('pylate', 'Transformer Normalize'),
  ('sentence_transformers', 'Transformer Pooling MultiVectorMask Normalize'),
  # Nothing scores [MASK].
  ('sentence_transformers', 'Transformer Dense Normalize'),
  # The lengths are others.
  ('sentence_transformers', 'Transformer Dense MultiVectorMask'),
]


@pytest.mark.parametrize(('library', 'kinds'), MODULES)
def test_other_modules_are_refused(tmp_path, library, kinds):
  folder = colbert_folders.save(tmp_path / 'a', library, 'plain')
  places = {x.name.partition('_')[2]: x.name for x in folder.glob('?_*')}
  modules = [
    {'type': f'a.{x}', 'path': places.get(x, '')} for x in kinds.split()
  ]
  (folder / 'modules.json').write_text(json.dumps(modules))
  with pytest.raises(ValueError, match='modules.json'):
    _load(folder)
