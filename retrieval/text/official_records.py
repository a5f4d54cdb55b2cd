# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Write blocks in the forms that the official ORQA and REALM programs read.

ORQA (Lee et al. 2019): blocks.tfr, titles.tfr and examples.tfr. REALM (Guu et
al. 2020): gzipped shards `prefix-00012-of-00050`, one corpus to retrieve from
and one to train on. `corpus.Corpus` reads all but examples.tfr back.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import glob
import itertools
import os
import pathlib

import numpy as np

from retrieval import tokenization
from retrieval.formats import tf_example, tfrecord
from retrieval.readers import orqa
from retrieval.text import blocks as blocks_lib

EXAMPLES_FILE = 'examples.tfr'
_BATCH = 512  # blocks read at once

Progress = Callable[[int, int], None]  # (blocks done, blocks in all)
Examples = Iterable[Mapping[str, Sequence[bytes] | np.ndarray]]


def write_blocks(
  path: str | os.PathLike,
  blocks: blocks_lib.BlockStore,
  *,
  progress: Progress | None = None,
) -> None:
  """Write blocks.tfr and titles.tfr into the folder `path`."""
  path = pathlib.Path(path)
  with (
    tfrecord.open_writer(path / orqa.BLOCKS_FILE) as write_text,
    tfrecord.open_writer(path / orqa.TITLES_FILE) as write_title,
  ):
    for ids in _batches(range(blocks.num_blocks), blocks.num_blocks, progress):
      for title, text in _strings(blocks, ids):
        write_title(title)
        write_text(text)


def write_examples(
  path: str | os.PathLike, blocks: blocks_lib.BlockStore
) -> None:
  """Write examples.tfr, the blocks for training ICT, into the folder `path`.

  An example has title_ids, token_ids without special tokens, and
  sentence_starts, which count from the block's first token.
  """
  with tfrecord.open_writer(pathlib.Path(path) / EXAMPLES_FILE) as write:
    for ids in _batches(range(blocks.num_blocks), blocks.num_blocks):
      firsts = blocks.token_spans(ids)[:, 0]
      rows = zip(ids.tolist(), firsts, *_tokens(blocks, ids), strict=True)
      for block, first, title_ids, token_ids in rows:
        sentences = np.asarray(blocks.sentences(block))
        example = {
          'title_ids': title_ids,
          'token_ids': token_ids,
          'sentence_starts': blocks.sentence_tokens(sentences)[:, 0] - first,
        }
        write(tf_example.encode(example))


def write_retrieval_corpus(
  prefix: str | os.PathLike,
  blocks: blocks_lib.BlockStore,
  tokenizer: tokenization.WordPieceTokenizer,
  num_shards: int = 50,
  *,
  progress: Progress | None = None,
) -> None:
  """Write REALM's corpus to retrieve from: title, body and their tokens.

  Tokens have texts, starts, stops and ids; starts and stops are -1, as in the
  official corpus, whose readers ignore them. Names of shards begin with
  `prefix`; ValueError when there are shards of another number.
  """
  blocks.tokens.check_tokenizer(tokenizer)
  # Decoding a single id keeps the ## of a continuation, but drops specials.
  pieces = [tokenizer.decode([i]).encode() for i in range(tokenizer.vocab_size)]
  pieces[tokenizer.unk_id] = b'[UNK]'

  def examples(ids: np.ndarray) -> Examples:
    rows = zip(_strings(blocks, ids), *_tokens(blocks, ids), strict=True)
    for strings, title_ids, token_ids in rows:
      example = dict(
        zip(('title', 'body'), ([x] for x in strings), strict=True)
      )
      for name, row in (('title', title_ids), ('body', token_ids)):
        nowhere = np.full(len(row), -1)
        example |= {
          f'{name}_token_texts': [pieces[i] for i in row.tolist()],
          f'{name}_token_starts': nowhere,
          f'{name}_token_stops': nowhere,
          f'{name}_token_ids': row,
        }
      yield example

  _write_shards(prefix, blocks, examples, num_shards, progress)


def write_pretraining(
  prefix: str | os.PathLike,
  blocks: blocks_lib.BlockStore,
  spans: Callable[[np.ndarray], Sequence[np.ndarray]],
  num_shards: int = 50,
  *,
  progress: Progress | None = None,
) -> None:
  """Write REALM's corpus to train on: blocks, their sentences, salient spans.

  `spans` is called with [n] block ids and returns for each an [m, 2] integer
  array of first and past-last byte in the block's text. Names of shards begin
  with `prefix`.

  Raises:
    ValueError: for a span outside its block, or when there are shards of
      another number.
  """

  def examples(ids: np.ndarray) -> Examples:
    firsts = blocks.byte_spans(ids)[:, 0]
    rows = zip(
      ids.tolist(), firsts, spans(ids), _strings(blocks, ids), strict=True
    )
    for block, first, salient, (title, text) in rows:
      numbers = np.asarray(blocks.sentences(block))
      sentences = blocks.sentence_bytes(numbers) - first
      salient = np.asarray(salient, np.int64).reshape(-1, 2)
      yield {
        'title': [title],
        'text': [text],
        'sentence_byte_start': sentences[:, 0],
        'sentence_byte_limit': sentences[:, 1],
        'span_byte_start': salient[:, 0],
        'span_byte_limit': salient[:, 1],
      }

  _write_shards(prefix, blocks, examples, num_shards, progress)


def _write_shards(
  prefix: str | os.PathLike,
  blocks: blocks_lib.BlockStore,
  examples: Callable[[np.ndarray], Examples],
  num_shards: int,
  progress: Progress | None,
) -> None:
  """Write gzipped shards of consecutive blocks; the last may be empty."""
  prefix = pathlib.Path(prefix)
  folder = prefix.parent
  names = [
    f'{prefix.name}-{i:05d}-of-{num_shards:05d}' for i in range(num_shards)
  ]
  pattern = f'{glob.escape(prefix.name)}-?????-of-?????'
  others = {path.name for path in folder.glob(pattern)} - {*names}
  if others:
    raise ValueError(
      f'{folder}: {min(others)} is a shard of another number than {num_shards}; '
      'remove those of its kind first.'
    )
  total = blocks.num_blocks
  size = -(-total // num_shards)
  for i, name in enumerate(names):
    rows = range(i * size, min((i + 1) * size, total))
    batches = _batches(rows, total, progress)
    records = itertools.chain.from_iterable(map(examples, batches))
    encoded = map(tf_example.encode, records)
    tfrecord.write(folder / name, encoded, packed=True)


def _batches(
  rows: range, total: int, progress: Progress | None = None
) -> Iterator[np.ndarray]:
  """Yield block ids; calls progress before it yields the next ones."""
  for start in range(rows.start, rows.stop, _BATCH):
    stop = min(start + _BATCH, rows.stop)
    yield np.arange(start, stop)
    if progress:
      progress(stop, total)


def _strings(
  blocks: blocks_lib.BlockStore, ids: np.ndarray
) -> Iterator[tuple[bytes, bytes]]:
  """Title and text of each block."""
  for title, text in zip(blocks.titles(ids), blocks.texts(ids), strict=True):
    yield title.encode(), text.encode()


def _tokens(
  blocks: blocks_lib.BlockStore, ids: np.ndarray
) -> list[list[np.ndarray]]:
  """Title tokens and body tokens of each block, at full length."""
  longest = int(np.diff(blocks.token_spans(ids)).max())
  return [
    [row[:length] for row, length in zip(*gathered, strict=True)]
    for gathered in (
      blocks.gather_titles(ids, blocks.max_length),
      blocks.gather(ids, longest),
    )
  ]
