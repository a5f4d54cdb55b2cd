# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Indices of the texts of passages in a folder, each built at its first use.

sparse-KIND-KEY/               terms, of bm25 or tfidf
topics-KEY/{model,vectors}/    topics, of lda
colbert-KEY/{codec,tokens}/    vectors of tokens, of colbert
"""

import dataclasses
import os
import pathlib

from absl import logging

from retrieval.index import reuse, vectors as vectors_lib
from retrieval.nn import colbert_encoder
from retrieval.search import (
  bm25,
  late_interaction,
  lda,
  sparse_index,
  tfidf,
  token_store,
)
from retrieval.store import executors, shards, store
from retrieval.text import passages as passages_lib

ColbertConfig = late_interaction.ColbertConfig
WORDS = {'bm25': bm25.Bm25, 'tfidf': tfidf.TfIdf}


class TextIndices:
  """Indices of the texts of passages; `how` is as of `shards.build_store`."""

  def __init__(
    self,
    root: str | os.PathLike,
    passages: passages_lib.Passages,
    *,
    num_topics: int = lda.LdaConfig.num_topics,
    colbert: ColbertConfig | None = None,
  ):
    """Take the folder, the passages, and the settings of topics and ColBERT."""
    self.root, self.passages = pathlib.Path(root), passages
    self._lda = lda.LdaConfig(num_topics=num_topics)
    self._colbert = colbert or ColbertConfig()

  def words_path(self, kind: str) -> pathlib.Path:
    """Folder of the index of `WORDS`."""
    return self.root / f'sparse-{kind}-{self.passages.fingerprint[:12]}'

  def words(self, kind: str, **how) -> sparse_index.SparseIndex:
    """Return the index of `WORDS`."""
    path = self.words_path(kind)
    if path.is_dir():
      return WORDS[kind].load(path)
    logging.info('Building %s over %d passages.', kind, len(self.passages))
    return WORDS[kind].build_store(path, self.passages, **how)

  def topics(
    self, progress: shards.Progress | None = None, **how
  ) -> tuple[lda.TopicEmbedder, store.Store]:
    """Return the model of topics, and the topics of all passages."""
    key = store.fingerprint(
      [self.passages.fingerprint, dataclasses.asdict(self._lda)]
    )
    path = self.root / f'topics-{key[:12]}'
    model = lda.fit(path / 'model', self.passages, self._lda, progress)
    vectors = vectors_lib.build_vector_store(
      path / 'vectors', self.passages, model, progress=progress, **how
    )
    return model, vectors

  def tokens(self, **how) -> late_interaction.LateInteraction:
    """Return the index of the ColBERT that the settings name, or of the only one here.

    Raises:
      FileNotFoundError: if the model is missing.
      ValueError: if no model is named, and there is not one index.
    """
    config = self._colbert
    if config.model:
      return self._build_tokens(config, **how)
    made = self._token_stores()
    if len(made) != 1:
      raise ValueError(
        f"config.colbert_index.model='': {self.root} has {len(made)} indices of "
        'ColBERTs, expected 1; name a run of experiments.train with '
        'configs/colbert_small.py.'
      )
    [(path, stored)] = made.items()
    encoder = _load_encoder(stored.meta['model'])
    return late_interaction.LateInteraction(path, encoder, config.search)

  def _token_stores(self) -> dict[pathlib.Path, store.Store]:
    """Open the indices of the tokens of these passages."""
    found = {}
    for path in sorted(self.root.glob('colbert-*')):
      if (path / 'tokens').is_dir():
        stored, _ = token_store.open_store(path)
        made = token_store.config_of(stored.fields)
        if path == self._tokens_path(stored.fields['encoder'], made):
          found[path] = stored
    return found

  def _tokens_path(
    self, encoder: str, made: token_store.IndexConfig
  ) -> pathlib.Path:
    key = [encoder, self.passages.fingerprint, dataclasses.asdict(made)]
    return self.root / f'colbert-{store.fingerprint(key)[:12]}'

  def _build_tokens(
    self,
    config: ColbertConfig,
    known: reuse.KnownCodes | None = None,
    **how,
  ) -> late_interaction.LateInteraction:
    encoder = executors.Lazy(_load_encoder, config.model)
    path = self._tokens_path(encoder.fingerprint, config.made)
    meta = {'model': os.path.abspath(config.model)}
    token_store.build(
      path,
      encoder,
      self.passages,
      config.made,
      known=known,
      meta=meta,
      **how,
    )
    return late_interaction.LateInteraction(path, encoder, config.search)

  def copy_from(self, old: 'TextIndices', **how) -> dict[str, int]:
    """Build the indices of words and tokens that other passages have.

    The token vectors of equal texts are copied. An index of a ColBERT that is not
    where it was, or was trained further, is left out.

    Returns:
      Number of texts whose vectors were copied: {'colbert': number}, or nothing.
    """
    counts = {}
    for kind in WORDS:
      if old.words_path(kind).is_dir():
        self.words(kind, **how)
    for path, stored in old._token_stores().items():
      model = stored.meta['model']
      try:
        index = late_interaction.LateInteraction(path, _load_encoder(model))
      except (FileNotFoundError, ValueError) as error:
        logging.warning('%s is not carried over (%s)', path, error)
        continue
      made = dataclasses.asdict(token_store.config_of(stored.fields))
      known = reuse.KnownCodes(index, old.passages)
      self._build_tokens(ColbertConfig(model=model, **made), known, **how)
      counts['colbert'] = counts.get('colbert', 0) + known.num_reused
    return counts


def _load_encoder(model: str) -> token_store.Encoder:
  try:
    return colbert_encoder.load(model)
  except FileNotFoundError as error:
    raise FileNotFoundError(
      f'config.colbert_index.model={model!r}: {error}'
    ) from None
