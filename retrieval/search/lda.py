# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Topics as an embedder: Latent Dirichlet Allocation over the words of texts.

Blei et al. 2003, as a way to retrieve Wei and Croft 2006. scikit-learn fits the topics
by online variational Bayes (Hoffman et al. 2010). A text's vector holds the square
roots of its topic distribution, so that the inner product of two vectors is the
Bhattacharyya coefficient, 1 less the squared Hellinger distance. A text without known
words has the vector 0 and is no result.

Dimension key: K topics, V words.
"""

import collections
from collections.abc import Iterable, Sequence
import importlib
import itertools
import os
from typing import Any

from jaxtyping import Float32
import numpy as np

from retrieval import arguments, searchers
from retrieval.search import bm25, queries as queries_lib
from retrieval.searchers import subset as subset_lib
from retrieval.store import array_store, checksums, shards
from retrieval.text import passages as passages_lib

KIND = 'topics'
SETTINGS = {
  # Words: the most frequent ones without BM25's stop words.
  'max_words': 20_000,
  'min_texts': 5,  # a rarer word is left out
  'max_share': 0.5,  # of texts; a more frequent word is left out
  'max_texts': 100_000,  # random texts that the model is fitted to
  'passes': 2,  # over these texts
  'batch_size': 1024,
  'seed': 0,
}
_STOP_WORDS = frozenset(bm25.STOP_WORDS)
_MISSING = (
  "Topics (lda) need scikit-learn: pip install 'realm-retro-jax[lda]', or pip install "
  'scikit-learn.'
)


class TopicEmbedder:
  """A fitted model; see `retriever.TextEmbedder`."""

  metric = 'dot_product'

  def __init__(self, path: str | os.PathLike):
    """Open a model of `fit`; ImportError without scikit-learn."""
    stored = array_store.Store.open(path, KIND)
    # The manifest holds the checksums of the arrays.
    self.fingerprint = checksums.hash_files(
      [os.path.join(path, 'manifest.json')]
    )
    words = np.asarray(stored.shard(0, 'words')).tobytes().decode().split('\n')
    topics = np.asarray(stored.shard(0, 'topics'))
    self.dimension = len(topics)
    self._counter = _counter(words)
    # The attributes that scikit-learn documents as those of a fitted model.
    self._model = _sklearn('decomposition').LatentDirichletAllocation(
      self.dimension
    )
    self._model.components_ = topics
    from scipy import special  # a tenth of a command's start

    self._model.exp_dirichlet_component_ = np.exp(
      special.psi(topics) - special.psi(topics.sum(axis=1, keepdims=True))
    )
    self._model.doc_topic_prior_ = 1 / self.dimension
    self._model.n_features_in_ = topics.shape[1]

  def embed_queries(self, texts: Sequence[str]) -> Float32[np.ndarray, 'b k']:
    """See `embed_texts`."""
    return self.embed_texts(texts)

  def embed_texts(
    self, texts: Sequence[str], progress: shards.Progress | None = None
  ) -> Float32[np.ndarray, 'b k']:
    """Return the square roots of topic distributions, 0 for a text without any."""
    texts = arguments.texts(texts, 'texts')
    vectors = np.zeros((len(texts), self.dimension), np.float32)
    for low in range(0, len(texts), SETTINGS['batch_size']):
      some = slice(low, min(low + SETTINGS['batch_size'], len(texts)))
      counts = self._counter.transform(texts[some])
      known = np.flatnonzero(np.diff(counts.indptr))
      if len(known):
        vectors[low + known] = np.sqrt(self._model.transform(counts[known]))
      if progress:
        progress(some.stop, len(texts))
    return vectors


class TopicSearch:
  """Exact search of topics; a text that shares no topic is no result."""

  unit = 'Bhattacharyya coefficient'

  def __init__(self, vectors):
    self._exact = searchers.ExactSearcher(vectors, check=False)

  def search(
    self, queries: np.ndarray, k: int, subset: subset_lib.Subset | None = None
  ) -> queries_lib.Hits:
    """See `exclude.Index`."""
    ids, scores = self._exact.search(queries, k, subset)
    return np.where(scores > 0, ids, -1), np.where(scores > 0, scores, -np.inf)


def fit(
  path: str | os.PathLike,
  passages: passages_lib.Passages,
  num_topics: int,
  progress: shards.Progress | None = None,
) -> TopicEmbedder:
  """Fit topics to random passages, unless `path` holds them already.

  Raises:
    ImportError: without scikit-learn.
    ValueError: where `path` holds topics of other passages or settings, or when no
      word is left to fit to.
  """
  fields = {'texts': passages.fingerprint, 'num_topics': num_topics, **SETTINGS}
  fields |= {'terms': bm25.TERMS, 'stop_words': sorted(_STOP_WORDS)}
  shards.build_store(
    path, KIND, fields, [0], lambda *_: _fit(passages, num_topics, progress)
  )
  return TopicEmbedder(path)


def _fit(passages, num_topics: int, progress) -> dict[str, np.ndarray]:
  rng, size = np.random.default_rng(SETTINGS['seed']), SETTINGS['batch_size']
  chosen = rng.permutation(len(passages))[: SETTINGS['max_texts']]
  batches = np.split(chosen, range(size, len(chosen), size))
  counter = _counter(_choose_words(map(passages.search_texts, batches)))
  model = _sklearn('decomposition').LatentDirichletAllocation(
    num_topics,
    learning_method='online',
    total_samples=len(chosen),
    random_state=SETTINGS['seed'],
  )
  passes, done = SETTINGS['passes'], 0
  for batch in passes * batches:
    model.partial_fit(counter.transform(passages.search_texts(batch)))
    done += len(batch)
    if progress:
      progress(done, passes * len(chosen))
  words = sorted(counter.vocabulary, key=counter.vocabulary.get)
  return {
    'words': np.frombuffer('\n'.join(words).encode(), np.uint8),
    'topics': model.components_.astype(np.float32),
  }


def _choose_words(batches: Iterable[Sequence[str]]) -> list[str]:
  """Return the vocabulary, the words of most texts first."""
  in_texts, num_texts = collections.Counter(), 0
  for text in itertools.chain.from_iterable(batches):
    in_texts.update({*_words(text)})
    num_texts += 1
  most = SETTINGS['max_share'] * num_texts
  least = SETTINGS['min_texts']
  words = [w for w, n in in_texts.items() if least <= n <= most]
  if not words:
    raise ValueError(
      f'No word of {num_texts} texts is in at least {least} of them and in at most '
      f'{most:g}; expected more texts.'
    )
  return sorted(words, key=lambda w: (-in_texts[w], w))[: SETTINGS['max_words']]


def _words(text: str) -> list[str]:
  return [word for word in bm25.words_of(text) if word not in _STOP_WORDS]


def _counter(words: Sequence[str]):
  """Return a transformer of texts to sparse counts [b, V] float32 of words."""
  return _sklearn('feature_extraction.text').CountVectorizer(
    analyzer=_words,
    vocabulary={word: i for i, word in enumerate(words)},
    dtype=np.float32,
  )


def _sklearn(name: str) -> Any:
  try:
    return importlib.import_module(f'sklearn.{name}')
  except ImportError:
    raise ImportError(_MISSING) from None
