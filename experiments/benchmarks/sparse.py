# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Building and searching of our sparse indices and of bm25s.

Documents are cut into passages of 100 words below their titles (Karpukhin et al. 2020);
queries are words in a row from random passages: as many as in a question, or in a
chunk. All sides cut text into words anew; ours write their index to disk and search it
memory-mapped. `same` is the share of the ids of our BM25 that a side finds, too.
"""

from collections.abc import Callable, Sequence
import importlib.util
import itertools
import json
import pathlib
import tempfile

import numpy as np

from experiments.benchmarks import turns
from retrieval.search import bm25, tfidf
from retrieval.text import corpus as corpus_lib, passages as passages_lib

_PASSAGE_WORDS = 100
Search = Callable[[Sequence[str], int], np.ndarray]


def passages_of(documents) -> list[str]:
  """Cut documents into passages of 100 words, each below its title."""
  found = []
  for document in documents:
    words = document.text.split()
    for low in range(0, len(words), _PASSAGE_WORDS):
      text = ' '.join(words[low : low + _PASSAGE_WORDS])
      found.append(f'{document.title}\n{text}')
  return found


def queries_of(passages: Sequence[str], count: int, length: int) -> list[str]:
  """Return texts of at most `length` words in a row of random passages."""
  rng = np.random.default_rng(0)
  found = []
  for i in rng.integers(0, len(passages), count):
    words = passages[i].split()
    start = int(rng.integers(0, max(1, len(words) - length)))
    found.append(' '.join(words[start : start + length]))
  return found


def prepare(sizes: turns.Sizes) -> turns.Sizes:
  """Write the passages."""
  given = {} if sizes['corpus'] else {'kind': 'vital'}
  corpus = corpus_lib.open_corpus(sizes['corpus'], **given)
  passages = passages_of(itertools.islice(corpus, sizes['documents'] or None))
  file = pathlib.Path(sizes['folder']) / 'passages.json'
  file.write_text(json.dumps(passages))
  return {}


def _build_bm25s(backend: str, passages: Sequence[str]) -> Search:
  import bm25s  # starts a JAX backend

  settings = bm25.Bm25Config()
  model = bm25s.BM25(k1=settings.k1, b=settings.b, backend=backend)

  def words(texts):
    return bm25s.tokenize(
      list(texts),
      token_pattern=r'(?u)\w+',
      stopwords=list(settings.stop_words),
      show_progress=False,
    )

  model.index(words(passages), show_progress=False)
  return lambda queries, k: model.retrieve(
    words(queries),
    k=k,
    show_progress=False,
    return_as='documents',
    backend_selection=backend,
  )


def share_found(ids: np.ndarray, wanted: np.ndarray) -> float:
  """Return the share of wanted ids [b, k], -1 for none, in the same row of ids."""
  pairs = zip(ids, wanted, strict=True)
  found = sum(np.isin(b[b >= 0], a).sum() for a, b in pairs)
  return float(found / max((wanted >= 0).sum(), 1))


def build(side: str, sizes: turns.Sizes) -> turns.Steps:
  """Return 'build', and a step that searches for each length of queries."""
  folder, k = pathlib.Path(sizes['folder']), sizes['k']
  passages = json.loads((folder / 'passages.json').read_text())
  found: dict[str, Search] = {}

  def build_index():
    if side.startswith('bm25s'):
      backend = 'numba' if side.endswith('numba') else 'numpy'
      found['search'] = _build_bm25s(backend, passages)
    else:
      index_of = tfidf.TfIdf if side == 'TF-IDF' else bm25.Bm25
      new = pathlib.Path(tempfile.mkdtemp(dir=folder))
      texts = passages_lib.TextList(passages)
      index = index_of.build_store(new / 'index', texts)
      found['search'] = lambda queries, k: index.search(queries, k)[0]
    return {'items': len(passages)}

  def search(length: int):
    queries = queries_of(passages, sizes['num_queries'], length)
    file, answer = folder / f'{length}.npy', {'items': len(queries)}

    def run():
      ids = found['search'](queries, k)
      if 'same' not in answer:  # in the untimed round
        if not file.exists():  # our BM25 comes first
          np.save(file, ids)
        answer['same'] = share_found(ids, np.load(file))
      return answer

    return run

  searches = {f'{n} words': search(n) for n in sizes['words']}
  return {'build': build_index, **searches}


_PEER = 'bm25s, numba' if importlib.util.find_spec('numba') else 'bm25s'
TASKS = {
  'sparse': turns.Task(
    build=build,
    sizes={
      'corpus': '',  # JSON lines; '' is the packaged articles
      'documents': 0,  # 0 is all
      'words': (8, 64),
      'num_queries': 1000,
      'k': 100,
    },
    sides=('BM25', 'TF-IDF', _PEER),
    prepare=prepare,
  )
}
