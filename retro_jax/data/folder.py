# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The data folder of a RETRO experiment: paths of its stores, and opening them.

tokenizer/model        SentencePiece
tokens/                every document
duplicates/            training documents that are left out, if any are
chunks-{train,valid,test}/  spans of m tokens; the training chunks are the
                       datastore
vectors-{train,valid,test}/ frozen BERT keys
index/                 of vectors-train
{sparse,colbert}-*/  of chunks-train; see `text_index`
neighbors-{train,valid,test}/      of the source dense
neighbors_SOURCE-{train,valid,test}/ of another source
neighbors_SOURCE+RERANKER-{train,valid,test}/ of a source in a re-ranker's order
neighbors_SOURCE@KEY-{train,valid,test}/ among the chunks that fit a filter
{tokens,chunks,vectors,neighbors}-NAME/ of evaluation sets of other corpora
"""

import dataclasses
import functools
import os
import pathlib
from typing import TYPE_CHECKING, Annotated, Any, Literal

from retrieval import settings
from retrieval.index import neighbor_store
from retrieval.search import names
from retrieval.store import array_store, manifests
from retrieval.text import (
  chunks as chunks_lib,
  data_folder,
  near_duplicates,
  tokens as tokens_lib,
)

if TYPE_CHECKING:
  from retro_jax.data import datastore


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokens:
  """The token store."""

  with_title: bool = True  # the title heads its document's text
  documents_per_shard: settings.Size = 1024
  num_processes: Annotated[int, settings.Range(1, 4096)] = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedder:
  """The frozen embedder of the chunks."""

  path: str = ''  # '' is the packaged all-MiniLM-L6-v2
  max_length: settings.Size = 128  # tokens of a chunk; a folder may state fewer
  # '': of the checkpoint
  dtype: Literal['', settings.Dtype] = 'float32'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Neighbors:
  """The neighbors of every chunk."""

  source: names.Name = 'dense'  # of `retrieval.search.names`
  # whether an index of words holds a chunk's title and continuation, too
  titled: bool = False
  # of weighted: BM25's share
  words_weight: settings.Share = 0.5
  colbert: str = ''  # of colbert: its model's folder; '': as the index was made
  # folder of a cross-encoder or a ColBERT that orders the first candidates of the
  # source anew; '': none
  reranker: str = ''
  # that it orders
  candidates: Annotated[int, settings.Range(1, 2**16)] = 50
  stored: Annotated[int, settings.Range(1, 2**16)] = 10  # for each chunk
  # filter on the documents' metadata: "{'year': (None, 2019)}"
  where: str = ''


@dataclasses.dataclass(frozen=True)
class DataFolder(data_folder.DataFolder):
  """The data folder of a RETRO experiment."""

  MADE_BY = 'experiments.prepare'

  source: str = 'dense'  # of the neighbors, one of `names.NAMES`
  reranker: str = ''  # folder of the model that orders them anew; '' for none
  where: str = ''  # filter of the neighbors; '' for none

  @classmethod
  def of(cls, config: Any, workdir: str | os.PathLike) -> 'DataFolder':
    """Open the data folder that a config and a workdir name."""
    root = super().of(config, workdir).root
    neighbors = config.neighbors
    return cls(root, neighbors.source, neighbors.reranker, neighbors.where)

  @functools.cached_property
  def datastore(self) -> 'datastore.Datastore':
    """Search in the training chunks; training does without it."""
    from retro_jax.data import datastore

    return datastore.Datastore(self)

  @functools.cached_property
  def tokens(self) -> tokens_lib.TokenStore:
    """Every document."""
    return tokens_lib.TokenStore(self.path('tokens'))

  @property
  def _has_documents(self) -> bool:
    return self.path('tokens').exists() or not self.has_tokenizer

  @property
  def vocab_size(self) -> int:
    """Number of the tokenizer's ids; the tokenizer may precede all documents."""
    return (self.tokens if self._has_documents else self.tokenizer).vocab_size

  @property
  def tokenizer_fingerprint(self) -> str:
    """Fingerprint in the token store, or of the tokenizer before there is one."""
    if self._has_documents:
      return self.tokens.tokenizer_fingerprint
    return self.tokenizer.fingerprint

  def check_tokenizer(self) -> None:
    """Raise ValueError for another tokenizer than that of the documents."""
    if self.path('tokens').exists():
      self.tokens.check_tokenizer(self.tokenizer)

  def chunks(self, split: str) -> chunks_lib.ChunkStore:
    """Chunks of a split, or of an evaluation set; 'train' is the datastore."""
    tokens = self.tokens if split in tokens_lib.SPLITS else None
    return chunks_lib.ChunkStore(self.path(f'chunks-{split}'), tokens)

  @property
  def splits(self) -> list[str]:
    """Splits and evaluation sets that have chunks."""
    names = (path.name for path in self.root.glob('chunks-*'))
    # A store that is being written has a suffix.
    return sorted(x.removeprefix('chunks-') for x in names if '.' not in x)

  @property
  def corpus_splits(self) -> list[str]:
    """Splits of the corpus that have chunks; 'test' may be missing."""
    names = 'train', *tokens_lib.HELD_OUT
    return [x for x in names if self.path(f'chunks-{x}').exists()]

  @functools.cached_property
  def duplicates(self) -> array_store.Store:
    """Training documents that are near duplicates of evaluation documents."""
    return array_store.Store.open(self.path('duplicates'), near_duplicates.KIND)

  def neighbors_path(self, split: str) -> pathlib.Path:
    """Folder of the neighbors of a split's chunks by `source`."""
    of_source = '' if self.source_name == 'dense' else f'_{self.source_name}'
    return self.path(f'neighbors{of_source}-{split}')

  @property
  def source_name(self) -> str:
    """Name of the source; with a re-ranker SOURCE+RERANKER, its folder's name.

    A filter adds @KEY, the beginning of its hash.
    """
    name = self.source
    if self.reranker:  # A dot marks a store that is being written.
      name += f'+{pathlib.Path(self.reranker).name.replace(".", "_")}'
    if self.where:
      name += f'@{manifests.fingerprint(self.where)[:8]}'
    return name

  def neighbors(self, split: str) -> neighbor_store.NeighborStore:
    """Neighbors of a split's chunks; ValueError where they are of other chunks."""
    queries, datastore = (
      self.chunks(name) if self.path(f'chunks-{name}').is_dir() else None
      for name in (split, 'train')
    )
    path = self.neighbors_path(split)
    return neighbor_store.NeighborStore(path, queries, datastore)

  def fingerprints(self, retrieval: bool) -> dict[str, str]:
    """Fingerprints of the stores that a training run depends on, by name."""
    stores = {'tokenizer': self.tokenizer_fingerprint}
    if self.path('chunks-train').exists():
      stores['chunks-train'] = self.chunks('train').fingerprint
    if retrieval and self.neighbors_path('train').exists():
      stores['neighbors-train'] = self.neighbors('train').store.fingerprint
    return stores
