# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""In-context retrieval: a passage in the prompt of a language model that stays as is.

Ram et al. 2023 (arXiv 2302.00083), section 3: before every stride of s tokens, the
last l tokens are a query, and the best passage of another document is put before the
text so far; the s tokens are then scored. The keys of a prompt depend on its
passage, so they serve the following strides for as long as these retrieve the same
passage: such strides are one prompt. Every token of a document but BOS is scored
once.

Dimension key: B rows, L tokens of a row, D documents.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import itertools

from jaxtyping import Int, UInt64
import numpy as np

from retrieval import settings as settings_lib, tokenization
from retrieval.search import queries as queries_lib, retriever as retriever_lib
from retrieval.text import chunks as chunks_lib
from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import evaluate as evaluate_lib

_SEPARATOR = '\n\n'  # between passage and text
_RESERVED = 16  # tokens of a prompt for BOS and the separator
_DOCUMENTS_AT_ONCE = 16
_BATCHES_AT_ONCE = 16  # whose prompts are packed together


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """Sizes of queries, passages and prompts, in tokens."""

  stride: settings_lib.Size = 32  # s, between retrievals (4 in the paper)
  # l, the last tokens (the paper's, for BM25)
  query_length: settings_lib.Size = 32
  passage_length: settings_lib.Size = 128  # of a passage, at most
  # of a prompt, at most; a text without a passage has all of it
  window: settings_lib.Size = 512
  batch_size: settings_lib.Size = 4  # rows of `window` tokens

  def __post_init__(self):
    """Check the fields, and against each other."""
    settings_lib.check(self)
    least = self.passage_length + 2 * self.stride + _RESERVED
    if self.window < least:
      raise settings_lib.SettingsError(
        'window',
        self.window,
        f'at least {least}, for a passage of {self.passage_length} tokens and two '
        f'strides of {self.stride}',
      )


@dataclasses.dataclass(frozen=True)
class Prompt:
  """Tokens, and the first of the last tokens, which are scored."""

  # BOS, passage, separator, context, scored tokens
  tokens: Int[np.ndarray, ' n']
  first: int  # place of the first scored token
  document: int  # row in `windows.Documents`


@dataclasses.dataclass(frozen=True)
class Passages:
  """Where passages come from."""

  retriever: retriever_lib.Retriever
  datastore: chunks_lib.ChunkStore  # of the decoder's tokenizer

  def find(
    self, texts: Sequence[str], documents: UInt64[np.ndarray, ' b']
  ) -> Int[np.ndarray, ' b']:
    """Find each text's best passage outside of its document; -1 for none."""
    ids, _ = self.retriever.search(
      queries_lib.Queries(texts, excluded=documents), 1
    )
    return ids[:, 0]

  def tokens(self, passage: int, length: int) -> Int[np.ndarray, ' n']:
    """Return at most `length` tokens of a document from a chunk on."""
    tokens, mask = self.datastore.gather(np.array([passage]), length)
    return tokens[0][mask[0]]


def query_spans(num_tokens: int, settings: Settings) -> list[tuple[int, int]]:
  """First and past-last token of each stride's query; empty for the first one."""
  starts = range(0, num_tokens, settings.stride)
  return [(max(min(x, 1), x - settings.query_length), x) for x in starts]


def _context_starts(
  num_tokens: int, room: int, stride: int
) -> Int[np.ndarray, ' strides']:
  """First token of each stride's context, such that `room` holds it.

  Starts move by half the room, so that strides share prompts.
  """
  ends = np.minimum(np.arange(0, num_tokens, stride) + stride, num_tokens)
  step = max(stride, room // 2 // stride * stride)
  return np.maximum(-(-(ends - room) // step) * step, 0)


def make_prompts(
  tokens: Int[np.ndarray, ' n'],
  passages: Sequence[Int[np.ndarray, ' _']] | None,
  settings: Settings,
  separator: Sequence[int] = (),
  document: int = 0,
) -> Iterator[Prompt]:
  """Yield the prompts that score each token of a document but its first once.

  Args:
    tokens: [n] BOS and the document.
    passages: tokens of each stride's passage, the same array where the passage is
      the same; None scores the document without passages.
    separator: tokens after a passage.
  """
  room = settings.window - 1
  if passages is not None:
    room -= settings.passage_length + len(separator)
  starts = _context_starts(len(tokens), room, settings.stride)
  nothing = np.zeros(0, np.int32)
  read = [nothing] * len(starts) if passages is None else passages
  strides = itertools.groupby(
    range(len(starts)), lambda j: (starts[j], id(read[j]))
  )
  for _, group in strides:
    members = list(group)
    low = max(members[0] * settings.stride, 1)
    high = min((members[-1] + 1) * settings.stride, len(tokens))
    if high <= low:
      continue
    passage = read[members[0]]
    before = [tokens[:1], passage, separator if len(passage) else nothing]
    context = tokens[max(starts[members[0]], 1) : high]
    whole = np.concatenate([*before, context]).astype(np.int32)
    yield Prompt(whole, len(whole) - (high - low), document)


def score(
  nats: evaluate_lib.NatsFn,
  prompts: Iterable[Prompt],
  num_documents: int,
  settings: Settings,
) -> np.ndarray:
  """Sum the nats of the scored tokens of each document: [num_documents] float64.

  Prompts share rows, as segments.
  """
  total, prompts = np.zeros(num_documents), iter(prompts)
  size = settings.batch_size
  while some := list(itertools.islice(prompts, _BATCHES_AT_ONCE * size)):
    tokens = np.concatenate([x.tokens for x in some])
    lengths = np.array([len(x.tokens) for x in some])
    windows = windows_lib.Windows(
      document=np.array([x.document for x in some]),
      first=np.cumsum(lengths) - lengths,
      count=lengths - 1,  # the last token is predicted, and not read
      skip=np.array([x.first - 1 for x in some]),
    )
    for layout in windows_lib.layouts(windows, settings.window, size):
      there, scored = layout.ids >= 0, layout.scored
      row = {
        'tokens': np.where(there, tokens[layout.ids], 0),
        'targets': np.where(there, tokens[layout.ids + 1], 0),
        'segment_ids': layout.segments,
        'loss_mask': scored,
      }
      np.add.at(total, layout.owner[scored], np.asarray(nats(row))[scored])
  return total


def evaluate(
  nats: evaluate_lib.NatsFn,
  chunks: chunks_lib.ChunkStore,
  tokenizer: tokenization.Tokenizer,
  settings: Settings,
  passages: Passages | None = None,
  *,
  max_documents: int = 0,
  progress: Callable[[int, int], None] | None = None,
) -> evaluate_lib.Evaluation:
  """Score whole documents with passages, or without.

  Args:
    chunks: of the evaluation set.
    max_documents: at most so many, evenly spread; 0 for all.
    progress: called with (documents whose prompts are made, documents in all).

  Raises:
    ValueError: for an empty set.
  """
  documents = windows_lib.find_documents(chunks, max_documents)
  prompts = _prompts_of(
    chunks, documents, tokenizer, settings, passages, progress
  )
  by_document = score(nats, prompts, len(documents.index), settings)
  return evaluate_lib.of_documents(by_document, chunks, documents)


def _prompts_of(
  chunks, documents, tokenizer, settings, passages, progress
) -> Iterator[Prompt]:
  """Yield the prompts of all documents; retrieve for a few documents at a time."""
  separator = tokenizer.encode(_SEPARATOR).ids.tolist()
  specials = [tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id]
  total = len(documents.index)
  for low in range(0, total, _DOCUMENTS_AT_ONCE):
    rows = range(low, min(low + _DOCUMENTS_AT_ONCE, total))
    numbers = documents.index[rows].tolist()
    texts = [np.asarray(chunks.tokens.document(d), np.int32) for d in numbers]
    by_text = [None] * len(rows)
    if passages is not None:
      hashes = chunks.document_hashes(documents.first[rows])
      by_text = _retrieve(
        texts, hashes, tokenizer, settings, passages, specials
      )
    for d, tokens, read in zip(rows, texts, by_text, strict=True):
      yield from make_prompts(tokens, read, settings, separator, d)
      if progress:
        progress(d + 1, total)


def _retrieve(
  texts, hashes, tokenizer, settings, passages, specials
) -> list[list[np.ndarray]]:
  """The passage of each stride of each text, without special tokens."""
  spans = [query_spans(len(tokens), settings) for tokens in texts]
  queries = [
    tokenizer.decode(tokens[low:high])
    for tokens, of_text in zip(texts, spans, strict=True)
    for low, high in of_text
  ]
  counts = [len(of_text) for of_text in spans]
  ids = passages.find(queries, np.repeat(hashes, counts))
  read = {-1: np.zeros(0, np.int32)}
  for i in set(ids.tolist()) - {-1}:
    tokens = passages.tokens(i, settings.passage_length)
    read[i] = tokens[~np.isin(tokens, specials)]
  by_stride = iter([read[i] for i in ids.tolist()])
  return [list(itertools.islice(by_stride, count)) for count in counts]
