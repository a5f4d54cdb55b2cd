# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""One document with what its chunks retrieved, as rows that a RETRO reads."""

from collections.abc import Iterator
import dataclasses

import numpy as np

from retro_jax.data import (
  neighbor_lookup,
  pipeline,
  samples,
  windows as windows_lib,
)
from retro_jax.evaluation import leakage
from retro_jax.trained import loading


@dataclasses.dataclass(frozen=True)
class Passage:
  """A document and its neighbors."""

  title: str  # of the document, '' if it has none
  tokens: np.ndarray  # [T] int32, BOS first
  # [C] what each chunk retrieved, best first; the last may be incomplete
  found: list[samples.ChunkNeighbors]
  # [C] float64 r(C), the share of the chunk that its neighbors repeat
  overlaps: np.ndarray
  num_compared: int  # nearest neighbors that r(C) is over, maybe more than N


def find(trained: loading.TrainedRetro, wanted: str, split: str) -> int:
  """The first chunk of a document of a split.

  Args:
    wanted: the document's title or id; '' for the first one of two chunks.
    split: 'train', 'valid', 'test' or the name of an evaluation set.

  Raises:
    ValueError: when there is no such split, or no such document in it.
  """
  if split not in trained.data.splits:
    raise ValueError(
      f'split {split!r}: expected a split of {trained.data.root}: '
      f'{", ".join(trained.data.splits) or "it has no split"}.'
    )
  chunks = trained.data.chunks(split)
  documents = windows_lib.find_documents(chunks)
  if not wanted:
    return int(documents.first[int(np.argmax(documents.count > 1))])
  tokens = chunks.tokens
  for number, first in zip(documents.index, documents.first, strict=True):
    if wanted in (tokens.title(int(number)), tokens.document_id(int(number))):
      return int(first)
  example = tokens.title(int(documents.index[0]))
  raise ValueError(
    f'{chunks.path}: none of its {len(documents.index):,} documents has the '
    f'title or id {wanted!r}; expected one such as {example!r}.'
  )


def _check_num_neighbors(k: int) -> None:
  if k < 1:
    raise ValueError(f'num_neighbors {k}: expected at least 1 to look at.')


def of_store(
  trained: loading.TrainedRetro,
  first_chunk: int,
  split: str,
  k: int,
  num_compared: int = leakage.NUM_NEIGHBORS,
) -> Passage:
  """A document of the data, with the neighbors found in preparation.

  Args:
    num_compared: nearest neighbors that r(C) is over, at most those stored.

  Raises:
    ValueError: for more neighbors than are stored, or none.
  """
  _check_num_neighbors(k)
  reader = loading.chunk_reader(trained.config, trained.data, split, k)
  chunks = reader.stores.chunks
  number = int(chunks.documents(np.array([first_chunk]))[0])
  tokens = np.asarray(chunks.tokens.document(number), np.int32)
  chunk_ids = first_chunk + np.arange(-(-len(tokens) // chunks.chunk_length))
  row = reader.read(chunk_ids)
  there = row['neighbor_mask'].any(-1)
  ids = np.where(there, reader.stores.neighbors.ids(chunk_ids)[:, :k], -1)
  scores = reader.stores.neighbors.scores(chunk_ids)[:, :k]
  num_compared = min(num_compared, reader.stores.neighbors.num_neighbors)
  compared = leakage.whole_neighbors(
    dataclasses.replace(reader, num_neighbors=num_compared)
  )
  return Passage(
    chunks.tokens.title(number),
    tokens,
    samples.by_chunk(
      neighbor_lookup.Retrieved(
        ids,
        scores,
        row['neighbors'],
        row['neighbor_mask'],
        [reader.stores.datastore.titles(row) for row in ids],
      )
    ),
    leakage.overlaps(compared, chunk_ids),
    num_compared,
  )


def of_text(
  trained: loading.TrainedRetro, text: str, k: int, title: str = ''
) -> Passage:
  """Any text, with neighbors found now in the datastore; a baseline's has none.

  Args:
    text: of a document; in training it begins with the title.

  Returns:
    The passage. A text of the datastore retrieves itself.

  Raises:
    ValueError: for text without a token, or no neighbors.
  """
  c, data = trained.model.config, trained.data
  if c.cca_layers:
    _check_num_neighbors(k)
  m = c.chunk_length
  encoded = data.tokenizer.encode(text).ids
  if not len(encoded):
    raise ValueError('The text is empty: expected at least one token.')
  tokens = np.concatenate([[data.tokenizer.bos_id], encoded]).astype(np.int32)
  rows = [tokens[i : i + m] for i in range(0, len(tokens), m)]
  found = [samples.given_neighbors((), c.neighbor_length)] * len(rows)
  if c.cca_layers:
    lookup = data.datastore.lookup(trained.config)
    found = samples.by_chunk(lookup.retrieve_tokens(rows, k))
  overlaps = [
    leakage.overlap(row, x.tokens, x.mask, data.tokenizer.bos_id)
    for row, x in zip(rows, found, strict=True)
  ]
  compared = k if c.cca_layers else 0
  return Passage(title, tokens, found, np.array(overlaps), compared)


@dataclasses.dataclass(frozen=True)
class Window:
  """A part of a passage that the model reads at once."""

  row: pipeline.Row  # one sequence, as `pipeline.ChunkReader.read` returns it
  first: int  # first chunk of it
  # leading chunks that are context alone: scored in the window before
  skip: int
  count: int  # chunks of it that are there; the others are padding


def windows(
  passage: Passage, chunk_length: int, sequence_chunks: int
) -> Iterator[Window]:
  """The windows in which every token is scored once, as in evaluation.

  Args:
    sequence_chunks: chunks of a row. The row of a shorter text has the next power
      of two, so that it costs little padding and few lengths are compiled.

  Yields:
    Windows, each half a sequence after the one before.
  """
  count = -(-len(passage.tokens) // chunk_length)
  size = min(sequence_chunks, 1 << (count - 1).bit_length())
  whole = windows_lib.Documents(
    np.zeros(1, int), np.zeros(1, int), np.array([count])
  )
  stride = max(1, sequence_chunks // 2)
  found = windows_lib.make_windows(whole, sequence_chunks, stride)
  for first, number, skip in zip(
    found.first.tolist(), found.count.tolist(), found.skip.tolist(), strict=True
  ):
    row = _row(passage, chunk_length, first, size)
    yield Window(row, first, skip, number)


def _row(passage, chunk_length, first, sequence_chunks):
  """Chunks from `first` on, padded to a sequence: [1, ...]."""
  start, size = first * chunk_length, sequence_chunks * chunk_length
  tokens = passage.tokens[start : start + size + 1]
  padded = np.zeros(size + 1, np.int32)
  padded[: len(tokens)] = tokens
  there = np.arange(size + 1) < len(tokens)
  found = passage.found[first : first + sequence_chunks]
  shape = found[0].tokens.shape
  neighbors, mask = samples.stack(found, sequence_chunks, shape)
  row = {
    'tokens': padded[:-1],
    'targets': padded[1:],
    'loss_mask': there[1:],
    'segment_ids': there[:-1].astype(np.int32),
    'neighbors': neighbors,
    'neighbor_mask': mask,
  }
  return {name: value[None] for name, value in row.items()}
