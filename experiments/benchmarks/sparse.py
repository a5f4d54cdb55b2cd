# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Building and searching of our BM25 and of bm25s.

Documents are cut into passages of 100 words below their titles (Karpukhin et al. 2020);
queries are words in a row from random passages. All sides cut text into words anew.
`same` is the share of the ids of our BM25 that a side finds, too.
"""

import functools
import importlib.util
import itertools
import json
import pathlib
import tempfile

import numpy as np

from retrieval.search import bm25
from retrieval.text import corpus as corpus_lib, passages as passages_lib

SIZES = {
  'corpus': '',  # JSON lines; '' is the packaged articles
  'documents': 0, 'words': (8, 64), 'num_queries': 1000, 'k': 100,  # 0: all
}  # fmt: skip


def prepare(sizes):
  """Write the passages."""
  how, passages = {} if sizes['corpus'] else {'kind': 'vital'}, []
  corpus = corpus_lib.open_corpus(sizes['corpus'], **how)
  for document in itertools.islice(corpus, sizes['documents'] or None):
    words = document.text.split()
    for low in range(0, len(words), 100):
      passages.append(f'{document.title}\n{" ".join(words[low : low + 100])}')
  pathlib.Path(sizes['folder'], 'passages.json').write_text(
    json.dumps(passages)
  )
  return {}


def _bm25s(passages):
  """Build bm25s's index; return its search."""
  import bm25s  # starts a JAX backend

  quiet = {'show_progress': False}
  backend = 'numba' if importlib.util.find_spec('numba') else 'numpy'
  model = bm25s.BM25(k1=bm25.K1, b=bm25.B, backend=backend)
  how = {'token_pattern': r'(?u)\w+', 'stopwords': bm25.STOP_WORDS}
  words = functools.partial(bm25s.tokenize, **how, **quiet)
  model.index(words(passages), **quiet)
  how = {'return_as': 'documents', 'backend_selection': backend, **quiet}
  return lambda queries, k: model.retrieve(words(queries), k=k, **how)


def _steps(sizes, side):
  """Return 'build', and a step that searches for each length of queries."""
  folder, built = pathlib.Path(sizes['folder']), {}
  passages = json.loads((folder / 'passages.json').read_text())

  def build():
    if side == 'bm25s':
      built['search'] = _bm25s(passages)
    else:
      path = pathlib.Path(tempfile.mkdtemp(dir=folder)) / 'index'
      index = bm25.Bm25.build_store(path, passages_lib.TextList(passages))
      built['search'] = lambda queries, k: index.search(queries, k)[0]
    return {'items': len(passages)}

  def search(length):
    rng, queries = np.random.default_rng(0), []
    for i in rng.integers(0, len(passages), sizes['num_queries']):
      words = passages[i].split()
      start = int(rng.integers(0, max(1, len(words) - length)))
      queries.append(' '.join(words[start : start + length]))
    file, answer = folder / f'{length}.npy', {'items': len(queries)}

    def run():
      ids = built['search'](queries, sizes['k'])
      if 'same' not in answer:  # in the untimed round
        if side == 'BM25':  # which comes first
          np.save(file, ids)
        pairs = zip(ids, expected := np.load(file), strict=True)
        same = sum(np.isin(b[b >= 0], a).sum() for a, b in pairs)
        answer['same'] = float(same / max((expected >= 0).sum(), 1))
      return answer

    return run

  return {'build': build, **{f'{n} words': search(n) for n in sizes['words']}}


SIDES = {x: functools.partial(_steps, side=x) for x in ('BM25', 'bm25s')}
