# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Late interaction: rows, scores against a slow MaxSim, a published model's."""

import numpy as np
import pytest
import tokenizers
from tokenizers import processors

from retrieval.nn import colbert, colbert_folder, colbert_rows
from tests.retrieval.nn import colbert_folders, tiny_bert, tiny_colbert
from tests.retrieval.text import tiny_blocks

QUERIES = ['the mill in rome', 'crown?']
PASSAGES = [
  'the mill stood in rome.',
  'the crown was in paris, in 1066 (the river).',
  'mill',
  '',
]


def _slow(query, passage):
  """The sum of the largest cosines, one token after the other."""
  return sum(max(float(q @ p) for p in passage) for q in query)


@pytest.fixture(scope='module')
def encoder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('model')
  words = tiny_blocks.write_vocabulary(folder) / 'vocab.txt'
  said = {'query_token_id': 'q', 'doc_token_id': 'd', 'doc_maxlen': 12}
  words = ' '.join(words.read_text().split())
  tiny_colbert.write(folder, words, d=8, length=16, **said)
  model = colbert_folder.read(folder)
  return colbert.ColbertEncoder(*model)


def test_rows_without_a_closing_token_are_cut(tmp_path):
  folder = colbert_folders.save(tmp_path / 'a', 'pylate', 'plain')
  file = str(folder / 'tokenizer.json')
  tokenizer = tokenizers.Tokenizer.from_file(file)
  tokenizer.post_processor = processors.TemplateProcessing(
    single='<s> $A', special_tokens=[('<s>', tokenizer.token_to_id('<s>'))]
  )
  made = colbert_rows.JsonTokenizer(tokenizer, '<mask>', file)
  first, mill = (made.id_of(x) for x in ('<s>', 'mill'))
  rows = made.encode_ids_batch(['mill ' * 9, 'mill'], 4)
  assert rows == [[first, mill, mill, mill], [first, mill]]


def test_scores_equal_a_slow_loop_over_passages_alone(encoder):
  asked = [PASSAGES, [PASSAGES[2], PASSAGES[0]]]
  found = encoder.score(QUERIES, asked)
  assert [x.shape for x in found] == [(4,), (2,)]
  assert {x.dtype for x in found} == {np.dtype(np.float32)}
  for query, texts, scores in zip(
    encoder.queries(QUERIES), asked, found, strict=True
  ):
    wanted = [_slow(query, encoder.passages([text]).values) for text in texts]
    np.testing.assert_allclose(scores, wanted, rtol=1e-5)
  assert encoder.score(['mill'], [[]])[0].shape == (0,)
  assert encoder.passages([]).values.shape == (0, 8)


@pytest.mark.parametrize('attend', [False, True])
def test_published_models_score_as_their_layout_says(tmp_path, attend):
  """Against float64: [MASK] fills queries, punctuation has no vector."""
  tensors = tiny_colbert.write(
    tmp_path,
    query_token_id='[unused0]',
    doc_token_id='[unused1]',
    mask_punctuation=True,
    similarity='cosine',
    attend_to_mask_tokens=attend,
  )
  bert_part = {k: x for k, x in tensors.items() if k != 'linear.weight'}
  oracle = tiny_bert.Reference(bert_part)
  ids = {word: i for i, word in enumerate(tiny_colbert.WORDS.split())}

  def vectors(words, seen):
    row = np.asarray([[ids[x] for x in words.split()]])
    mask = np.asarray([[seen or x != '[MASK]' for x in words.split()]])
    hidden = oracle.encode(row, mask, np.zeros_like(row))[0]
    found = hidden @ tensors['linear.weight'].T
    return found / np.linalg.norm(found, axis=-1, keepdims=True)

  query = '[CLS] [unused0] red blue [SEP] [MASK] [MASK] [MASK]'
  passages = {
    'blue, red': '[CLS] [unused1] blue , red [SEP]',
    'green': '[CLS] [unused1] green [SEP]',
  }
  wanted = []
  for row in passages.values():
    kept = [x != ',' for x in row.split()]
    wanted.append(_slow(vectors(query, attend), vectors(row, True)[kept]))
  encoder = colbert.load(tmp_path)
  [found] = encoder.score(['red blue'], [list(passages)])
  np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_what_a_published_model_says_is_obeyed_or_refused(tmp_path):
  with pytest.raises(FileNotFoundError, match='artifact.metadata'):
    colbert.load(tmp_path)
  tiny_colbert.write(tmp_path, similarity='l2')
  with pytest.raises(ValueError, match="similarity 'l2'"):
    colbert.load(tmp_path)
  tiny_colbert.write(tmp_path, dim=7)
  with pytest.raises(ValueError, match='dim 7'):
    colbert.load(tmp_path)
  tiny_colbert.write(tmp_path, query_maxlen=99)
  with pytest.raises(ValueError, match='99'):
    colbert.load(tmp_path)
