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
from collections.abc import Iterator, Sequence
import dataclasses
import importlib
import os
from typing import Any

from jaxtyping import Float32
import numpy as np

from retrieval import arguments, searchers, settings
from retrieval.search import bm25, queries as queries_lib
from retrieval.searchers import subset as subset_lib
from retrieval.store import array_store, checksums, shards
from retrieval.text import passages as passages_lib

KIND = 'topics'
_STOP_WORDS = frozenset(bm25.STOP_WORDS)
_MISSING = (
  "Topics (lda) need scikit-learn: pip install 'realm-retro-jax[lda]', or pip install "
  'scikit-learn.'
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LdaConfig:
  """How topics are fitted."""

  num_topics: settings.Size = 200  # K; Wei and Croft 2006: 400 and more
  # Words: the most frequent ones without BM25's stop words.
  max_words: settings.Size = 20_000
  min_texts: settings.Size = 5  # a rarer word is left out
  max_share: settings.Share = 0.5  # of texts; a more frequent word is left out
  max_texts: settings.Size = 100_000  # random texts that the model is fitted to
  passes: settings.Size = 2  # over these texts
  batch_size: settings.Size = 1024
  seed: settings.Seed = 0

  __post_init__ = settings.check


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
    self._batch_size = stored.fields['batch_size']
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
    for low in range(0, len(texts), self._batch_size):
      some = slice(low, min(low + self._batch_size, len(texts)))
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
  config: LdaConfig,
  progress: shards.Progress | None = None,
) -> TopicEmbedder:
  """Fit topics to random passages, unless `path` holds them already.

  Raises:
    ImportError: without scikit-learn.
    ValueError: where `path` holds topics of other passages or settings, or when no
      word is left to fit to.
  """
  fields = {'texts': passages.fingerprint, **dataclasses.asdict(config)}
  fields |= {'terms': bm25.TERMS, 'stop_words': sorted(_STOP_WORDS)}
  shards.build_store(
    path, KIND, fields, [0], lambda *_: _fit(passages, config, progress)
  )
  return TopicEmbedder(path)


def _fit(passages, config: LdaConfig, progress) -> dict[str, np.ndarray]:
  rng = np.random.default_rng(config.seed)
  chosen = rng.permutation(len(passages))[: config.max_texts]

  def batches() -> Iterator[list[str]]:
    for low in range(0, len(chosen), config.batch_size):
      yield passages.search_texts(chosen[low : low + config.batch_size])

  words = _choose_words(batches(), len(chosen), config)
  counter = _counter(words)
  model = _sklearn('decomposition').LatentDirichletAllocation(
    config.num_topics,
    learning_method='online',
    total_samples=len(chosen),
    random_state=config.seed,
  )
  done = 0
  for _ in range(config.passes):
    for texts in batches():
      model.partial_fit(counter.transform(texts))
      done += len(texts)
      if progress:
        progress(done, config.passes * len(chosen))
  return {
    'words': np.frombuffer('\n'.join(words).encode(), np.uint8),
    'topics': model.components_.astype(np.float32),
  }


def _choose_words(batches, num_texts: int, config: LdaConfig) -> list[str]:
  """Return the vocabulary, the words of most texts first."""
  in_texts = collections.Counter()
  for texts in batches:
    for text in texts:
      in_texts.update({*_words(text)})
  most = config.max_share * num_texts
  words = [w for w, n in in_texts.items() if config.min_texts <= n <= most]
  if not words:
    raise ValueError(
      f'No word of {num_texts} texts is in at least min_texts={config.min_texts} '
      f'and at most max_share={config.max_share} of them; expected more texts.'
    )
  return sorted(words, key=lambda w: (-in_texts[w], w))[: config.max_words]


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
