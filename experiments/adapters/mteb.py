# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Our embedders and retrievers under MTEB's protocols for encoders and search.

  mteb.evaluate(Encoder('hf://OWNER/NAME'), tasks)
  mteb.evaluate(Search('hybrid', embedder='minilm'), tasks)

Only `mteb_model_meta` imports mteb (https://github.com/embeddings-benchmark/mteb, version
2). Methods ignore the arguments of the protocols that are not named here.
"""

from collections.abc import Iterable, Mapping, Sequence
import os
from typing import Any

import numpy as np

from experiments.open_qa import rankings
from realm_jax.trained import loading
from retrieval.nn import embedders
from retrieval.questions import question_files, trec_files

Texts = Mapping[str, Any]  # field -> value, or values of a batch


class _Model:
  name = revision = ''

  @property
  def mteb_model_meta(self) -> Any:
    """MTEB's description of the model."""
    try:
      from mteb.models import model_meta
    except ImportError:
      raise ImportError(
        'mteb_model_meta needs mteb, which needs PyTorch: pip install mteb'
      ) from None
    fields = {'name': f'local/{self.name}', 'revision': self.revision}
    return model_meta.ModelMeta.create_empty(overwrites=fields)


class Encoder(_Model):
  """An embedder."""

  def __init__(
    self,
    model_name: str = 'minilm',
    revision: str | None = None,
    *,
    device: str | None = None,
    **settings: Any,
  ):
    """Load a folder as `retrieval.Embedder.load(model_name, **settings)`."""
    del device  # JAX chooses it
    self.embedder = embedders.Embedder.load(model_name, **settings)
    self.name = os.path.basename(os.path.normpath(model_name))
    self.revision = revision or self.embedder.fingerprint

  def encode(
    self, inputs: Iterable[Texts], *, prompt_type: str = '', **_: Any
  ) -> np.ndarray:
    """Return vectors [n, d] float32 of the field 'text' of batches.

    Args:
      prompt_type: 'query' embeds questions; anything else passages.
    """
    texts = [text for batch in inputs for text in batch['text']]
    if prompt_type == 'query':
      return self.embedder.embed_queries(texts)
    return self.embedder.embed_texts(texts)

  def similarity(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
    """Return [n, m] similarities of vectors [n, d] and [m, d], as the folder says."""
    first, second = map(_rows, (embeddings1, embeddings2))
    if self.embedder.sentence.similarity != 'euclidean':  # cosine has length 1
      return first @ second.T
    return -np.linalg.norm(first[:, None] - second, axis=-1)

  def similarity_pairwise(
    self, embeddings1: Any, embeddings2: Any
  ) -> np.ndarray:
    """Return [n] similarities of vectors [n, d] and [n, d]."""
    pairs = zip(_rows(embeddings1), _rows(embeddings2), strict=True)
    return np.array([self.similarity(x, y)[0, 0] for x, y in pairs])


def _rows(vectors: Any) -> np.ndarray:
  return np.atleast_2d(np.asarray(vectors, np.float32))


class Search(_Model):
  """A retriever; a document ranks by its best block."""

  def __init__(
    self, kind: str = 'bm25', *, workdir: str = '', embedder: str = ''
  ):
    """Take `kind` and `embedder` as of `rankings.Kind`.

    Args:
      workdir: folder of the one corpus; '' keeps each in the user's cache.
    """
    self.name = rankings.name_of(kind)
    self.revision = os.path.basename(os.path.normpath(embedder or 'packaged'))
    self._kind, self._workdir, self._embedder = kind, workdir, embedder

  def index(self, corpus: Iterable[Texts], **_: Any) -> None:
    """Prepare documents with id, text and perhaps title."""
    rows = []
    for row in corpus:
      title, text = row.get('title') or '', row.get('text') or ''
      if not text.strip():
        title, text = '', title
      if text.strip():
        rows.append({'id': str(row['id']), 'title': title, 'text': text})
    self._ids = {trec_files.identifier(row['id']): row['id'] for row in rows}
    trained = loading.packaged(self._workdir, documents=rows)
    self._names = rankings.Names(trained.data.blocks, documents=True)
    self._found = rankings.Kind(
      trained, self._kind, 16, embedder=self._embedder
    )

  def search(
    self,
    queries: Iterable[Texts],
    *,
    top_k: int,
    top_ranked: Mapping[str, Sequence[str]] | None = None,
    **_: Any,
  ) -> dict[str, dict[str, float]]:
    """Return query -> document -> score of the `top_k` best after `index`.

    Args:
      top_ranked: of each query, the documents to choose among; None takes all.
    """
    asked = [question_files.Question(x['id'], x['text'], ()) for x in queries]
    if not asked:
      return {}
    most = self._names.blocks.num_blocks
    depth = min(top_k, most) if top_ranked is None else most
    run = self._found.rank(asked, self._names, depth, lambda *_: None).run
    result = {}
    for one in asked:
      ranked = run[trec_files.identifier(one.id)]
      rows = [(self._ids[name], score) for name, score in ranked]
      if top_ranked is not None:
        rows = [x for x in rows if x[0] in top_ranked.get(one.id, ())]
      result[one.id] = dict(rows[:top_k])
    return result
