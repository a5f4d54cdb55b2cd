# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of word pieces for the three BERTs (Guu et al. 2020, sections 3.2, 4.2).

  query      [CLS] x [SEP]
  candidate  [CLS] title [SEP] body [SEP]   segments 0 up to the first [SEP], 1
  joint      [CLS] x [SEP] body [SEP]       same segments; without the title

The null document has neither title nor body: [CLS] [SEP] [SEP].

Dimension key: B queries, K candidates (the null document is the first), Q query
length, T block length, J = Q + T joint length, M targets.
"""

from collections.abc import Callable, Sequence, Sized
import dataclasses
from typing import Annotated, Any

import numpy as np

from retrieval import settings
from retrieval.text import blocks as blocks_lib

NULL = -1  # block id of the null document
NONE = -2  # block id of a candidate that does not exist

Batch = dict[str, np.ndarray]
Tokens = tuple[np.ndarray, np.ndarray]  # [n, _] of texts, and [n] their counts
# ids, mask and types [n, length]
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
# texts and their longest row -> [CLS] text [SEP] of each, as
# `WordPieceTokenizer.encode_ids_batch`
Encode = Callable[[Sequence[str], int], list[list[int]]]
QueryLength = Annotated[int, settings.Range(3, 2**17)]  # two are specials


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lengths:
  """Lengths of REALM's rows that a training chooses."""

  # Q with [CLS] and [SEP] (launcher of the released code: 96)
  query_length: QueryLength = 96
  # K with the null document (paper: 8)
  num_candidates: Annotated[int, settings.Range(2, 2**24)] = 8

  __post_init__ = settings.check


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout(Lengths):
  """Lengths of rows, and the tokenizer's special ids."""

  # M, most tokens predicted of one example (released: 10)
  max_targets: Annotated[int, settings.Range(1, 1024)] = 10
  # T with the three specials and the title (paper: 288)
  block_length: Annotated[int, settings.Range(4, 2**17)] = 288
  cls_id: settings.Count = 101
  sep_id: settings.Count = 102
  mask_id: settings.Count = 103
  pad_id: settings.Count = 0

  @property
  def joint_length(self) -> int:
    """Length J of a joint row."""
    return self.query_length + self.block_length

  @property
  def query_tokens(self) -> int:
    """Most tokens of a query without its specials."""
    return self.query_length - 2


def join(layout: Any, length: int, *texts: Tokens) -> Rows:
  """Put texts, [n, _] tokens and [n] their counts, between specials.

  A row is [CLS], then each text with a [SEP] behind it.

  Args:
    layout: has cls_id, sep_id and pad_id.

  Returns:
    ids [n, length] int32; mask [n, length] bool, False at padding; types [n,
    length] int32, 1 from the second text on.

  Raises:
    ValueError: if a row does not fit.
  """
  limits = 1 + np.cumsum([np.asarray(count) + 1 for _, count in texts], axis=0)
  if limits.size and limits.max() > length:
    raise ValueError(f'A row of {limits.max()} tokens, expected <= {length}.')
  at = np.arange(length)[None]
  ids = np.full((limits.shape[1], length), layout.pad_id, np.int32)
  ids[:, 0] = layout.cls_id
  start = 1
  for (tokens, _), limit in zip(texts, limits[..., None], strict=True):
    taken = np.arange(tokens.shape[1]) < limit - 1 - start
    ids[(at >= start) & (at < limit - 1)] = tokens[taken]
    ids[at == limit - 1] = layout.sep_id
    start = limit
  first, total = limits[0, :, None], limits[-1, :, None]
  types = (at >= first) & (at < total)
  return ids, at < total, types.astype(np.int32)


def pad(rows: Sequence[Sequence[int] | np.ndarray], room: int) -> Tokens:
  """First `room` tokens of each text: [n, room] int32, and [n] their counts."""
  counts = np.asarray([min(len(row), room) for row in rows], np.int64)
  tokens = np.zeros((len(counts), room), np.int32)
  for row, text, count in zip(tokens, rows, counts.tolist(), strict=True):
    row[:count] = text[:count]
  return tokens, counts


def encode_rows(encode: Encode, texts: Sequence[str], room: int) -> Tokens:
  """`pad` the first `room` tokens of texts, without specials."""
  return pad([row[1:-1] for row in encode(texts, room + 2)], room)


def name_rows(prefix: str, rows: Rows, shape: tuple[int, ...]) -> Batch:
  """Name ids, mask and types [n, length] of rows; n takes another shape."""
  names = (f'{prefix}_{name}' for name in ('ids', 'mask', 'types'))
  rows = (row.reshape(*shape, -1) for row in rows)
  return dict(zip(names, rows, strict=True))


def join_titled(layout: Layout, titles: Tokens, bodies: Tokens) -> Rows:
  """`join` titles of at most T - 3 tokens and bodies, cut to the room left."""
  room = layout.block_length - 3 - titles[1]
  cut_bodies = bodies[0], np.minimum(bodies[1], room)
  return join(layout, layout.block_length, titles, cut_bodies)


def hash_pairs(hashes: np.ndarray) -> np.ndarray:
  """Convert hashes [...] uint64, which JAX lacks, to [..., 2] uint32."""
  halves = np.ascontiguousarray(hashes).view(np.uint32)
  return halves.reshape(*hashes.shape, 2)


def queries(layout: Layout, tokens: np.ndarray, counts: np.ndarray) -> Batch:
  """Make query_ids [B, Q] int32 and query_mask [B, Q] bool of sentences."""
  ids, mask, _ = join(layout, layout.query_length, (tokens, counts))
  return {'query_ids': ids, 'query_mask': mask}


def titled_blocks(layout: Layout, blocks: Any, ids: np.ndarray) -> Rows:
  """Make the block embedder's rows: ids, mask and types, each [n, T].

  A title that fits is kept whole; the body is cut to the remaining room.
  Negative ids give the null document.
  """
  room, present = layout.block_length - 3, np.maximum(ids, -1)
  titles = blocks.gather_titles(present, room)
  return join_titled(layout, titles, blocks.gather(present, room))


def candidates(
  layout: Layout,
  blocks: blocks_lib.BlockStore,
  block_ids: np.ndarray,
  query_tokens: np.ndarray,
  query_counts: np.ndarray,
) -> Batch:
  """Make the candidate and joint rows of a batch.

  Args:
    block_ids: [B, K] ids; NULL and NONE give the null document.
    query_tokens: [B, n] tokens of the masked sentences, and [B] their counts.
  """
  shape, flat = block_ids.shape, block_ids.reshape(-1)
  titled = titled_blocks(layout, blocks, flat)
  bodies = blocks.gather(np.maximum(flat, -1), layout.block_length - 2)
  query = (np.repeat(x, shape[1], axis=0) for x in (query_tokens, query_counts))
  joint = join(layout, layout.joint_length, tuple(query), bodies)
  return {
    **name_rows('candidate', titled, shape),
    **name_rows('joint', joint, shape),
    'candidate_valid': block_ids != NONE,
    'candidate_block_ids': block_ids.astype(np.int32),
  }


def mask_sentence(
  layout: Layout, tokens: np.ndarray, positions: np.ndarray
) -> Batch:
  """Mask one sentence at sorted indices, all within the query.

  Returns:
    sentence [Q - 2] int32 with [MASK] in place, sentence_count [] int32,
    mlm_positions [M] int32 in the query row ([CLS] is 0), mlm_targets [M]
    int32, mlm_mask [M] bool.
  """
  count = min(len(tokens), layout.query_tokens)
  sentence = np.full(layout.query_tokens, layout.pad_id, np.int32)
  sentence[:count] = tokens[:count]
  predicted = positions[: layout.max_targets]
  padded = np.zeros((2, layout.max_targets), np.int32)
  padded[0, : len(predicted)] = predicted + 1
  padded[1, : len(predicted)] = tokens[predicted]
  sentence[positions] = layout.mask_id
  return {
    'sentence': sentence,
    'sentence_count': np.int32(count),
    'mlm_positions': padded[0],
    'mlm_targets': padded[1],
    'mlm_mask': np.arange(layout.max_targets) < len(predicted),
  }


def stack(rows: Sequence[Batch]) -> Batch:
  """Stack examples into a batch."""
  return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def check_batch(source: Sized, batch_size: int, process_count: int) -> None:
  """Raise ValueError for a batch that does not divide or exceeds the source."""
  if batch_size % process_count or len(source) < batch_size:
    raise ValueError(
      f'batch_size {batch_size}: expected a multiple of the {process_count} '
      f'process(es), and at most the {len(source)} rows of {source}.'
    )
