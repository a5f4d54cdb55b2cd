# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search by topics: Latent Dirichlet Allocation over the words of texts.

Blei et al. 2003, as a way to retrieve Wei and Croft 2006. scikit-learn fits the topics
by online variational Bayes (Hoffman et al. 2010) and infers the topic distribution of
each text. The score of two texts is the Bhattacharyya coefficient of their
distributions, the sum over topics of sqrt(p * q): 1 less the squared Hellinger distance,
and the inner product of square roots, so that these are stored and `searchers` finds
them. A text without known words has no topics and is not found.

The model is a store, NAME-model, and the square roots are another, NAME-vectors, written
shard by shard; a killed build continues there. Memory holds the model and one batch.

Dimension key: N texts, K topics, V words.
"""

from collections.abc import Callable, Sequence
import dataclasses
import itertools
import os

from jaxtyping import Float32, Int64
import numpy as np
import scipy.special

from retrieval import searchers, settings
from retrieval.search import bm25
from retrieval.searchers import base
from retrieval.store import shards, store

KIND = 'topics'
_SCHEMA = 1  # version of the way from text to counts of words
_PER_SHARD = 1 << 14  # texts
_STOP_WORDS = frozenset(bm25.STOP_WORDS)
_MISSING = (
  "Topics (lda) need scikit-learn: pip install 'realm-retro-jax[lda]', or pip install "
  'scikit-learn.'
)
# ids [b] -> their texts
Texts = Callable[[np.ndarray], Sequence[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LdaConfig:
  """How topics are fitted."""

  num_topics: settings.Size = 200  # K; Wei and Croft 2006: 400 and more
  # Words: the most frequent ones without BM25's stop words.
  max_words: settings.Size = 20_000
  min_texts: settings.Size = 5  # a rarer word is left out
  max_share: settings.Share = (
    0.5  # a word of a larger share of texts is left out
  )
  max_texts: settings.Size = 100_000  # random texts that the model is fitted to
  passes: settings.Size = 2  # over these texts
  batch_size: settings.Size = 1024
  seed: settings.Seed = 0

  __post_init__ = settings.check


class Topics:
  """A fitted model."""

  def __init__(self, words: Sequence[str], topics: Float32[np.ndarray, 'k v']):
    """Take V words and the parameters of each topic's Dirichlet over words.

    Raises:
      ImportError: without scikit-learn.
    """
    self.num_topics, _ = topics.shape
    self._counter = _counter(words)
    # The attributes that scikit-learn documents as those of a fitted model.
    self._model = _estimator(n_components=self.num_topics)
    self._model.components_ = topics
    self._model.exp_dirichlet_component_ = np.exp(
      scipy.special.psi(topics)
      - scipy.special.psi(topics.sum(axis=1, keepdims=True))
    )
    self._model.doc_topic_prior_ = 1 / self.num_topics
    self._model.n_features_in_ = topics.shape[1]

  def vectors(self, texts: Sequence[str]) -> Float32[np.ndarray, 'b k']:
    """Return the square roots of topic distributions, 0 for a text without any."""
    counts = self._counter.transform(texts)
    found = np.zeros((len(texts), self.num_topics), np.float32)
    known = np.flatnonzero(np.diff(counts.indptr))
    if len(known):
      found[known] = np.sqrt(self._model.transform(counts[known]))
    return found


class Lda:
  """Exact search over the topic distributions of texts.

  Attributes:
    num_blocks: number of texts, those without topics included.
    fingerprint: hash of everything that decides its results.
    config: how the topics were fitted.
  """

  def __init__(self, topics: Topics, vectors: store.Store, config: LdaConfig):
    """Take a model, the store of its vectors and how it was fitted."""
    self._topics, self.config = topics, config
    self.fingerprint = vectors.fingerprint
    array = vectors.array('vectors')
    self.num_blocks = len(array)
    self._searcher = searchers.ExactSearcher(array, check=False)

  def search(
    self, queries: Sequence[str] | np.ndarray, k: int
  ) -> tuple[Int64[np.ndarray, 'b k'], Float32[np.ndarray, 'b k']]:
    """Find the k texts whose topics are most like those of each query.

    Returns:
      ids: [b, k] int64, best first, ties by the lower id; -1 for none.
      scores: [b, k] float32, above 0 and at most 1 but for rounding; -inf there.

    Raises:
      ValueError: for k < 1.
    """
    if k < 1:
      raise ValueError(f'k={k}: expected at least 1.')
    if not len(queries):
      return base.nothing(0, k)
    vectors = self._topics.vectors([str(query) for query in queries])
    ids, scores = self._searcher.search(vectors, k)
    found = scores > 0
    return np.where(found, ids, -1), np.where(found, scores, -np.inf)

  @classmethod
  def build(
    cls,
    path: str | os.PathLike,
    texts: Texts,
    num_texts: int,
    made_of: str,
    config: LdaConfig | None = None,
    progress: shards.Progress | None = None,
  ) -> 'Lda':
    """Fit topics to texts and infer those of each; go on where a call was killed.

    Args:
      path: the stores are `path`-model and `path`-vectors.
      texts: reads the texts of ids, below `num_texts`.
      made_of: fingerprint of all texts.
      progress: called with (texts done, texts in all) of both stages.

    Raises:
      ImportError: without scikit-learn.
      ValueError: where `path` holds topics of other texts or settings, or when no
        word is left to fit to.
    """
    config = config or LdaConfig()
    fields = {'words': _SCHEMA, 'texts': made_of, **dataclasses.asdict(config)}
    fields['stop_words'] = sorted(_STOP_WORDS)
    model, total = f'{path}-model', _num_fitted(num_texts, config) + num_texts
    shards.build_store(
      model,
      KIND,
      fields,
      [0],
      lambda *_: _fit(
        texts, num_texts, config, shards.shifted(progress, 0, total)
      ),
    )
    counts = [
      min(_PER_SHARD, num_texts - low)
      for low in range(0, num_texts, _PER_SHARD)
    ]
    topics, _ = _open(model)

    def infer(shard: int, shown: shards.Progress | None):
      first = shard * _PER_SHARD
      ids = np.arange(first, first + counts[shard])
      rows = []
      for low in range(0, len(ids), config.batch_size):
        rows.append(topics.vectors(texts(ids[low : low + config.batch_size])))
        if shown:
          shown(min(low + config.batch_size, len(ids)), len(ids))
      return {'vectors': np.concatenate(rows)}

    made = shards.build_store(
      f'{path}-vectors',
      KIND,
      {'model': _hash(model)},
      counts,
      infer,
      progress=shards.shifted(progress, total - num_texts, total),
    )
    return cls(topics, made, config)

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Lda':
    """Load what `build` wrote, memory-mapped.

    Raises:
      FileNotFoundError: when it has not been built, or not all of it.
      ImportError: without scikit-learn.
      ValueError: when it is damaged, or its parts do not belong together.
    """
    vectors = store.Store.open(f'{path}-vectors', KIND)
    if vectors.fields.get('model') != _hash(f'{path}-model'):
      raise ValueError(
        f'{path}-vectors: made by another model than {path}-model; remove both and '
        'build them again.'
      )
    topics, config = _open(f'{path}-model')
    return cls(topics, vectors, config)


def _open(path: str) -> tuple[Topics, LdaConfig]:
  """Open the store of a model."""
  found = store.Store.open(path, KIND)
  if found.fields.get('words') != _SCHEMA:
    raise ValueError(f'{path}: made by another version; build it again.')
  words = np.asarray(found.shard(0, 'words')).tobytes().decode().split('\n')
  topics = found.shard(0, 'topics')
  if topics.shape != (found.fields['num_topics'], len(words)):
    raise ValueError(f'{path}: damaged, its arrays do not fit; build it again.')
  names = [field.name for field in dataclasses.fields(LdaConfig)]
  config = LdaConfig(**{name: found.fields[name] for name in names})
  return Topics(words, np.asarray(topics)), config


def _hash(path: str) -> str:
  """Hash the manifest of a model, which holds the checksums of its arrays."""
  store.Store.open(path, KIND)
  return store.hash_files([os.path.join(path, 'manifest.json')])


def _num_fitted(num_texts: int, config: LdaConfig) -> int:
  return config.passes * min(num_texts, config.max_texts)


def _fit(
  texts: Texts,
  num_texts: int,
  config: LdaConfig,
  progress: shards.Progress | None,
) -> dict[str, np.ndarray]:
  """Fit a model in mini-batches of random texts; return the arrays of its store."""
  rng = np.random.default_rng(config.seed)
  chosen = rng.permutation(num_texts)[: config.max_texts]
  batches = [
    chosen[low : low + config.batch_size]
    for low in range(0, len(chosen), config.batch_size)
  ]
  words = _choose_words(texts, batches, len(chosen), config)
  counter = _counter(words)
  model = _estimator(
    n_components=config.num_topics,
    learning_method='online',
    total_samples=len(chosen),
    random_state=config.seed,
  )
  done, total = 0, _num_fitted(num_texts, config)
  for ids in itertools.chain.from_iterable([batches] * config.passes):
    model.partial_fit(counter.transform(texts(ids)))
    done += len(ids)
    if progress:
      progress(done, total)
  return {
    'words': np.frombuffer('\n'.join(words).encode(), np.uint8),
    'topics': model.components_.astype(np.float32),
  }


def _choose_words(texts, batches, num_texts: int, config) -> list[str]:
  """Return the vocabulary, the words of most texts first."""
  in_texts: dict[str, int] = {}
  for ids in batches:
    for text in texts(ids):
      for word in {*_words(text)}:
        in_texts[word] = in_texts.get(word, 0) + 1
  most = config.max_share * num_texts
  kept = [w for w, n in in_texts.items() if config.min_texts <= n <= most]
  if not kept:
    raise ValueError(
      f'No word of {num_texts} texts is in at least min_texts={config.min_texts} '
      f'and at most max_share={config.max_share} of them; expected more texts.'
    )
  return sorted(kept, key=lambda w: (-in_texts[w], w))[: config.max_words]


def _words(text: str) -> list[str]:
  return [word for word in bm25.words_of(text) if word not in _STOP_WORDS]


def _counter(words: Sequence[str]):
  """Return a transformer of texts to sparse counts [b, V] float32 of words."""
  try:
    from sklearn.feature_extraction import text
  except ImportError:
    raise ImportError(_MISSING) from None
  return text.CountVectorizer(
    analyzer=_words,
    vocabulary={word: i for i, word in enumerate(words)},
    dtype=np.float32,
  )


def _estimator(**arguments):
  """Return scikit-learn's model, not fitted."""
  try:
    from sklearn import decomposition
  except ImportError:
    raise ImportError(_MISSING) from None
  return decomposition.LatentDirichletAllocation(**arguments)
