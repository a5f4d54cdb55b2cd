# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of a reader's bundle, drawn and put together on the device.

Dimension key: B questions, R blocks that are read, G gold spans, W widest span, L row.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_TARGETS = 20  # most masked words of a block
_NO_ANSWER = 0.15  # share of questions read without the blocks that answer
_NO_MARK = 0.3  # share of questions read without their question mark
_GOLD = 8  # most gold spans of a question
Arrays = Mapping[str, jax.Array]


class Layout(NamedTuple):
  """Lengths of rows, and ids of word pieces, as a bundle has them."""

  row: int
  question: int  # most word pieces of a question
  title: int
  cls: int
  sep: int
  mask: int
  mark: int  # ?


def prepare(
  arrays: Mapping[str, np.ndarray],
  weights: Mapping[str, float],
  usable: np.ndarray | None = None,
):
  """Return a bundle's arrays for the device, and the held-out questions.

  Args:
    weights: set -> how often its questions are drawn; 1 where it is not named.
    usable: [n] bool, which questions may be drawn or held out; None: all.
  """
  gold = arrays['gold']
  rows = np.full((len(arrays['candidates']), _GOLD, 3), -1, np.int32)
  places = np.arange(len(gold)) - np.searchsorted(gold[:, 0], gold[:, 0])
  kept = places < _GOLD
  rows[gold[kept, 0], places[kept]] = gold[kept, 1:]
  each = np.asarray([weights.get(x, 1.0) for x in arrays['set_names'].tolist()])
  if usable is None:
    usable = np.ones(len(arrays['dev']), bool)
  drawn = np.where(arrays['dev'] | ~usable, 0.0, each[arrays['set']])
  counts = np.bincount(arrays['block_tokens'], minlength=1 << 16)
  host = {
    **{k: x for k, x in arrays.items() if k.endswith(('tokens', 'end'))},
    **{k: arrays[k] for k in ('block_title', 'block_document')},
    'candidates': arrays['candidates'],
    'gold': rows,
    'drawn': np.cumsum(drawn / drawn.sum()).astype(np.float32),
    'rarity': -0.5 * np.log(np.maximum(counts, 1)).astype(np.float32),
  }
  data = {
    k: jnp.asarray(x.astype(np.int32) if x.dtype.kind in 'iu' else x)
    for k, x in host.items()
  }
  return data, np.flatnonzero(arrays['dev'] & usable)


def _run(data: Arrays, name: str, at: jax.Array, most: int):
  """Start and length of runs of tokens, cut to `most`."""
  ends = data[f'{name}_end']
  start = jnp.where(at > 0, ends[jnp.maximum(at - 1, 0)], 0)
  return start, jnp.clip(ends[at] - start, 0, most)


def _place(row, tokens, start, first, count):
  """row[first:first + count] = tokens[start:start + count]; each of them [...]."""
  at = jnp.arange(row.shape[-1]) - first[..., None]
  inside = (at >= 0) & (at < count[..., None])
  found = tokens[jnp.where(inside, start[..., None] + at, 0)]
  return jnp.where(inside, found, row), inside


def rows_of(
  layout: Layout, data: Arrays, questions, blocks, dropped
) -> dict[str, jax.Array]:
  """Make the reader's rows on the device, as `realm_jax.data.reader_rows` does.

  Args:
    questions: [B] numbers; blocks: [B, R], -1 for none.
    dropped: [B] bool, whether a question mark at the end is left out.
  """
  shape, length = blocks.shape, layout.row
  start, n = _run(data, 'question', questions, layout.question)
  last = data['question_tokens'][start + n - 1]
  n = n - (dropped & (last == layout.mark))
  start, n = (jnp.broadcast_to(x[:, None], shape) for x in (start, n))
  block = jnp.maximum(blocks, 0)
  titles, t = _run(data, 'title', data['block_title'][block], layout.title)
  bodies, b = _run(data, 'block', block, length)
  t, b = (jnp.where(blocks >= 0, x, 0) for x in (t, b))
  b = jnp.minimum(b, length - 4 - n - t)
  row = jnp.zeros((*shape, length), jnp.int32).at[..., 0].set(layout.cls)
  row, _ = _place(row, data['question_tokens'], start, jnp.ones_like(n), n)
  row, _ = _place(row, data['title_tokens'], titles, n + 2, t)
  row, inside = _place(row, data['block_tokens'], bodies, n + t + 3, b)
  at, total = jnp.arange(length), (n + t + b + 4)[..., None]
  seps = jnp.stack([n + 1, n + t + 2, n + t + b + 3], axis=-1)
  seps = (at[:, None] == seps[..., None, :]).any(-1)
  row = jnp.where(seps, layout.sep, row)
  return {
    'reader_ids': row,
    'reader_mask': at < total,
    'reader_types': ((at >= n[..., None] + 2) & (at < total)).astype(jnp.int32),
    'reader_block_mask': inside,
    **dict.fromkeys(('reader_valid', 'beam_valid'), blocks >= 0),
    'first': n + t + 3,
    'last': n + t + 3 + b,
  }


def with_gold(data: Arrays, questions, chosen, batch, width: int):
  """Add reader_correct [B, R, W, L] of the candidates [B, R] that are read."""
  gold = data['gold'][questions]  # [B, G, 3]
  same = gold[:, :, None, 0] == chosen[:, None]  # [B, G, R]
  place = same.argmax(-1)
  first, last = (
    jnp.take_along_axis(batch[x], place, axis=1) for x in ('first', 'last')
  )
  start = first + gold[..., 1]
  right = same.any(-1) & (gold[..., 0] >= 0) & (start + gold[..., 2] < last)
  right &= gold[..., 2] < width
  shape = (*chosen.shape, width, batch['reader_ids'].shape[-1])
  index = jnp.arange(len(gold))[:, None], place, gold[..., 2], start
  index = jax.tree.map(lambda x: jnp.where(right, x, 10**6), index)
  correct = jnp.zeros(shape, bool).at[index].set(True, mode='drop')
  return batch | {'reader_correct': correct}


def draw(
  data: Arrays, key, *, layout: Layout, size: int, read: int, width: int
):
  """Draw a batch of questions, each with `read` of its candidates."""
  keys = jax.random.split(key, 5)
  questions = jnp.searchsorted(
    data['drawn'], jax.random.uniform(keys[0], (size,))
  )
  questions = jnp.minimum(questions, len(data['drawn']) - 1)
  ids = data['candidates'][questions]
  numbers = jnp.arange(ids.shape[1])
  right = (data['gold'][questions][:, :, :1] == numbers).any(1)
  silent = jax.random.uniform(keys[1], (size, 1)) < _NO_ANSWER
  noise = jax.random.gumbel(keys[2], ids.shape)
  first = jnp.where(right, noise, -jnp.inf).argmax(-1)[:, None] == numbers
  order = jax.random.gumbel(keys[3], ids.shape) - 0.7 * jnp.log1p(numbers)
  order = jnp.where(first & right & ~silent, jnp.inf, order)
  order = jnp.where((ids < 0) | (right & silent), -jnp.inf, order)
  _, chosen = jax.lax.top_k(order, read)
  usable = jnp.take_along_axis(order, chosen, 1) > -jnp.inf
  chosen = jnp.where(usable, chosen, -2)
  blocks = jnp.where(
    usable, jnp.take_along_axis(ids, jnp.maximum(chosen, 0), 1), -1
  )
  dropped = jax.random.uniform(keys[4], (size,)) < _NO_MARK
  batch = rows_of(layout, data, questions, blocks, dropped)
  return with_gold(data, questions, chosen, batch, width)


def draw_masked(
  data: Arrays, key, *, layout: Layout, size: int
) -> dict[str, jax.Array]:
  """Draw blocks with masked words, each beside another block of its document."""
  keys = jax.random.split(key, 4)
  length, most = layout.row, layout.row // 3
  block = jax.random.randint(keys[0], (size,), 0, len(data['block_end']))
  owner = data['block_document']
  other = jnp.minimum(block + 1, len(owner) - 1)
  other = jnp.where(owner[other] == owner[block], other, block - 1)
  alike = owner[other] == owner[block]
  strange = jax.random.randint(keys[1], (size,), 0, len(owner))
  other = jnp.where(alike, other, strange)
  start, count = _run(data, 'block', block, length)
  room = jnp.maximum(count - most, 0)
  skip = (jax.random.uniform(keys[2], (size,)) * (room + 1)).astype(jnp.int32)
  start, n = start + skip, jnp.minimum(count - skip, most)
  bodies, b = _run(data, 'block', other, length)
  b = jnp.minimum(b, length - 3 - n)
  row = jnp.zeros((size, length), jnp.int32).at[:, 0].set(layout.cls)
  row, words = _place(row, data['block_tokens'], start, jnp.ones_like(n), n)
  row, _ = _place(row, data['block_tokens'], bodies, n + 2, b)
  at, total = jnp.arange(length), (n + b + 3)[:, None]
  row = jnp.where((at == n[:, None] + 1) | (at == total - 1), layout.sep, row)
  order = data['rarity'][row] + jax.random.gumbel(keys[3], row.shape)
  order, positions = jax.lax.top_k(jnp.where(words, order, -jnp.inf), _TARGETS)
  wanted = jnp.arange(_TARGETS) < jnp.ceil(0.3 * n)[:, None]
  wanted &= order > -jnp.inf
  targets = jnp.take_along_axis(row, positions, 1)
  hidden = jnp.where(wanted, positions, length)
  row = row.at[jnp.arange(size)[:, None], hidden].set(layout.mask, mode='drop')
  return {
    'joint_ids': row[:, None],
    'joint_mask': (at < total)[:, None],
    'joint_types': ((at >= n[:, None] + 2) & (at < total))[:, None] * 1,
    'mlm_positions': jnp.where(wanted, positions, 0),
    'mlm_targets': targets,
    'mlm_mask': wanted,
    'sentence_removed': alike,  # reported: with and without its own document
  }
