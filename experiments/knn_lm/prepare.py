# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Build the datastore of a kNN-LM and the index of its keys.

One pass of the newest model of config.knn_lm.model_workdir, a RETRO or a baseline, over
its training documents gives a key (the input of the last feed-forward, in float16) and
a value (the next token) for every token. Documents that are also held out, by id or by
text, are left out, evaluation sets of other corpora included. A killed command
continues when run again.

<workdir>/knn_lm/datastore    keys and next tokens of the training documents
<workdir>/knn_lm/index        of the keys
"""

import dataclasses
import functools
import os
import pathlib
from typing import Any

import numpy as np

from experiments.engine import progress, stages
from experiments.knn_lm.config import Config
from experiments.retro import evaluate as retro_evaluate
from retrieval.formats import weights
from retrieval.index import published_index as index_lib
from retrieval.store import array_store, executors, manifests, shards
from retrieval.text import chunks as chunks_lib, tokens as tokens_lib
from retro_jax.data import pipeline, windows as windows_lib
from retro_jax.evaluation import knn_lm
from retro_jax.trained import loading

DTYPE = 'float16'
KIND = 'key-values'
Prepare = stages.Prepare


def load(
  config: Config, workdir: str | os.PathLike, step: str = ''
) -> loading.TrainedRetro:
  """Load the model that makes the keys."""
  run = retro_evaluate.Evaluate(workdir=config.knn_lm.model_workdir, step=step)
  return retro_evaluate.load(config, run, workdir)


def model_fields(trained: loading.TrainedRetro) -> dict[str, Any]:
  """JSON fields that determine the key of a token."""
  fields = dataclasses.asdict(trained.model.config)
  params = weights.hash_params(trained.params)
  return {
    'model': manifests.fingerprint([fields, params]),
    'sequence_chunks': trained.config.sequence_chunks,
  }


def document_hashes(
  chunks: chunks_lib.ChunkStore, documents: windows_lib.Documents
) -> np.ndarray:
  """Return [D, 2] uint64 hashes of each document's id and of its tokens."""
  tokens, index = chunks.tokens, documents.index
  rows = (tokens.document(int(i)).astype(np.uint32) for i in index)
  texts = [tokens_lib.hash_bytes(row.tobytes()) for row in rows]
  return np.stack([tokens.id_hash[index], np.array(texts, np.uint64)], axis=1)


class Datastore:
  """The keys and values of a workdir, with their index."""

  def __init__(
    self,
    workdir: str | os.PathLike,
    trained: loading.TrainedRetro,
    evaluated: chunks_lib.ChunkStore | None = None,
  ):
    """Open them.

    Args:
      evaluated: chunks of which the datastore must hold no document.

    Raises:
      ValueError: for keys of another model, or a split that the datastore was not
        compared with.
    """
    folder, model = pathlib.Path(workdir) / 'knn_lm', model_fields(trained)
    self.pairs = array_store.Store.open(folder / 'datastore', KIND)
    made_with = {name: self.pairs.fields[name] for name in model}
    if made_with != model:
      raise ValueError(
        f'{self.pairs.path}: keys made with {made_with}, but the config names '
        f'{model}; expected the same model.'
      )
    held_out = self.pairs.fields['held_out'].split()
    if evaluated and evaluated.fingerprint not in held_out:
      raise ValueError(
        f'{self.pairs.path}: made without a look at {evaluated.path}, whose '
        'documents it may hold; expected a datastore that is built after that.'
      )
    self.index = index_lib.open_index(folder / 'index')
    index_lib.check_vectors(self.index, self.pairs)
    self.keys = self.pairs.array('keys')
    self.values = self.pairs.array('values')

  def search(
    self, queries: np.ndarray, k: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Return distances and values [n, k] as `knn_lm.find_neighbors`."""
    return knn_lm.find_neighbors(
      self.index.searcher, self.keys, self.values, queries, k
    )


@dataclasses.dataclass(frozen=True)
class Reader:
  """Reads the documents of a split with a model, in groups."""

  trained: loading.TrainedRetro
  config: Config
  split: str
  documents: windows_lib.Documents
  tokens_per_group: int  # a group has at most a document more
  batch_size: int = 8
  stride_chunks: int = 0  # 0: half a sequence

  @functools.cached_property
  def chunks(self) -> pipeline.ChunkReader:
    """The chunks, without neighbors."""
    trained = self.trained
    return loading.chunk_reader(trained.config, trained.data, self.split, 0)

  @functools.cached_property
  def groups(self) -> list[windows_lib.Documents]:
    """The documents of each group."""
    size = max(1, self.tokens_per_group // self.chunks.chunk_length)
    cuts = np.flatnonzero(np.diff(self.documents.start // size)) + 1
    parts = np.split(np.arange(len(self.documents.index)), cuts)
    return [self.documents.take(part) for part in parts]

  def read(self, group: int, **settings: Any) -> knn_lm.Tokens:
    """Return the tokens of a group, as `knn_lm.read_tokens`."""
    with retro_evaluate.scorer(
      self.trained, self.config, self.batch_size, knn_lm.token_features
    ) as features:
      return knn_lm.read_tokens(
        features,
        self.chunks,
        self.groups[group],
        sequence_chunks=self.trained.config.sequence_chunks,
        stride_chunks=self.stride_chunks,
        batch_size=self.batch_size,
        **settings,
      )


class _Training:
  """Makes the shards of a datastore."""

  def __init__(self, config: Config, workdir: str):
    settings, trained = config.knn_lm, load(config, workdir)
    chunks, held_out = trained.data.chunks('train'), []
    documents = windows_lib.find_documents(chunks, settings.max_documents)
    hashes = document_hashes(chunks, documents)
    leave = np.zeros(len(hashes), bool)
    for name in sorted({*trained.data.splits} - {'all', 'train'}):
      other = trained.data.chunks(name)
      others = document_hashes(other, windows_lib.find_documents(other))
      leave |= np.isin(hashes, others).any(axis=1)
      held_out.append(other.fingerprint)
    if leave.all():
      raise ValueError(
        f'{chunks.path}: all of {len(leave):,} documents are held out, too.'
      )
    self._chunks, self.left_out = chunks, int(leave.sum())
    documents, size = documents.take(~leave), settings.tokens_per_shard
    self._reader = Reader(trained, config, 'train', documents, size)
    self.counts = [int(x.count.sum()) for x in self._reader.groups]
    self.fields = {
      **model_fields(trained),
      'reader': self._reader.chunks.fingerprint,
      'held_out': ' '.join(sorted(held_out)),
      'max_documents': settings.max_documents,
      'tokens_per_shard': size,
      'dtype': DTYPE,
    }

  def __call__(self, shard: int, shown: shards.Progress | None):
    """Return the arrays of a shard."""
    tokens = self._reader.read(shard, dtype=DTYPE, progress=shown)
    values = tokens.targets.astype(self._chunks.tokens.tokens.dtype)
    return {'keys': tokens.keys, 'values': values}


def build_datastore(
  config: Config, workdir: str, folder: pathlib.Path
) -> stages.Rows:
  """Write the keys and values."""
  training = executors.Lazy(_Training, config, workdir)
  with progress.bar('make keys', 'chunks') as update:
    pairs = shards.build_store(
      folder / 'datastore',
      KIND,
      training.fields,
      training.counts,
      training,
      executor=stages.executor(config, folder),
      progress=update,
    )
  number, dimension = pairs.array('keys').shape
  return [
    ('keys', f'{number:,}'),
    ('dimension', str(dimension)),
    ('left out, held out too', f'{training.left_out:,}'),
    ('GB of keys', f'{2e-9 * number * dimension:,.3f}'),
  ]


def build_index(
  config: Config, workdir: str, folder: pathlib.Path
) -> stages.Rows:
  """Build, measure and publish the index of the keys."""
  del workdir
  pairs = array_store.Store.open(folder / 'datastore', KIND)
  index = index_lib.build_index(
    folder / 'index',
    pairs.array('keys'),
    pairs.fingerprint,
    config.knn_lm.index,
    num_rescored=max(config.knn_lm.ks),
    executor=stages.executor(config, folder),
  )
  return [(name, str(value)) for name, value in index.report.items()]


STAGES = {'datastore': build_datastore, 'index': build_index}


def prepare(config: Config, workdir: str, chosen: Prepare) -> None:
  """Run the chosen stages and print their results."""
  folder = pathlib.Path(workdir) / 'knn_lm'
  work = [
    (name, functools.partial(STAGES[name], config, workdir, folder))
    for name in stages.choose(chosen.stages, STAGES)
  ]
  stages.run(work, folder)
