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

from jaxtyping import Int
import numpy as np

from retrieval import settings as settings_lib, tokenization
from retrieval.search import queries as queries_lib, retriever as retriever_lib
from retrieval.text import chunks as chunks_lib
from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import evaluate as evaluate_lib

_SEPARATOR = '\n\n'  # between passage and text
_RESERVED = 16  # tokens of a prompt for BOS and the separator
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
  """Retrieves the passages of a text."""

  retriever: retriever_lib.Retriever
  datastore: chunks_lib.ChunkStore  # of the decoder's tokenizer
  tokenizer: tokenization.Tokenizer

  def of_strides(
    self,
    tokens: Int[np.ndarray, ' n'],
    document: np.uint64,
    settings: Settings,
  ) -> list[Int[np.ndarray, ' _']]:
    """Find the best passage for each stride, without special tokens.

    Args:
      tokens: BOS and a document.
      document: hash of the document, whose passages are not read.

    Returns:
      The same array where the passage is the same; an empty one for none.
    """
    tokenizer, length = self.tokenizer, settings.query_length
    starts = range(0, len(tokens), settings.stride)
    spans = [tokens[max(min(x, 1), x - length) : x] for x in starts]
    queries = queries_lib.Queries(
      [tokenizer.decode(x) for x in spans],
      excluded=np.full(len(spans), document),
    )
    ids, _ = self.retriever.search(queries, 1)
    specials = [tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id]
    read = {-1: np.zeros(0, np.int32)}
    for i in np.unique(ids[ids >= 0]).tolist():
      passage, mask = self.datastore.gather(
        np.array([i]), settings.passage_length
      )
      read[i] = passage[mask & ~np.isin(passage, specials)]
    return [read[i] for i in ids[:, 0].tolist()]


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
    passages: of `Passages.of_strides`; None scores the document without passages.
    separator: tokens after a passage.
  """
  room = settings.window - 1
  if passages is not None:
    room -= settings.passage_length + len(separator)
  # Contexts start such that `room` holds them, and move by half the room, so that
  # strides share prompts.
  stride = settings.stride
  ends = np.arange(0, len(tokens), stride) + stride
  step = max(stride, room // 2 // stride * stride)
  beyond = np.minimum(ends, len(tokens)) - room
  starts = np.maximum(-(-beyond // step) * step, 0)
  nothing = np.zeros(0, np.int32)
  read = [nothing] * len(starts) if passages is None else passages
  strides = itertools.groupby(
    range(len(starts)), lambda j: (starts[j], id(read[j]))
  )
  for _, group in strides:
    members = list(group)
    low = max(members[0] * stride, 1)
    high = min((members[-1] + 1) * stride, len(tokens))
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
  separator = tokenizer.encode(_SEPARATOR).ids.tolist()
  total = len(documents.index)

  def prompts():
    hashes = chunks.document_hashes(documents.first)
    for d, number in enumerate(documents.index.tolist()):
      tokens, read = np.asarray(chunks.tokens.document(number), np.int32), None
      if passages is not None:
        read = passages.of_strides(tokens, hashes[d], settings)
      yield from make_prompts(tokens, read, settings, separator, d)
      if progress:
        progress(d + 1, total)

  by_document = score(nats, prompts(), total, settings)
  return evaluate_lib.of_documents(by_document, chunks, documents)
