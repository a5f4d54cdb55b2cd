# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Documents with their neighbors: the loss of each token, and each neighbor's effect."""

from collections.abc import Callable, Iterator
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from retrieval import settings as settings_lib
from retro_jax.data import pipeline, samples, windows as windows_lib
from retro_jax.decoding import growing_text
from retro_jax.evaluation import attribution, continuations, leakage
from retro_jax.nn import losses
from retro_jax.trained import loading
from retro_jax.views import page as page_lib

NUM_LIKELY = 20  # likeliest tokens in each place; OpenAI's most


@dataclasses.dataclass(frozen=True)
class Passage:
  """A document and its neighbors."""

  title: str  # of the document, '' if it has none
  tokens: np.ndarray  # [T] int32, BOS first, after padding
  # [C] what each chunk retrieved, best first; the last may be incomplete
  neighbors: list[samples.ChunkNeighbors]
  # [C] float64 r(C), the share of the chunk that its neighbors repeat
  overlaps: np.ndarray
  num_compared: int  # nearest neighbors that r(C) is over, maybe more than N
  padding: int = 0  # padding tokens on the left
  # Chunks of a prompt whose last reads its neighbors itself (a joint model), or 0.
  prompt_chunks: int = 0


def find(trained: loading.TrainedRetro, name: str, split: str) -> int:
  """First chunk of a document by title or id; '' for the first one of two chunks."""
  if split not in trained.data.splits:
    raise ValueError(
      f'split {split!r}: expected a split of {trained.data.root}: '
      f'{", ".join(trained.data.splits) or "it has no split"}.'
    )
  chunks = trained.data.chunks(split)
  documents = windows_lib.find_documents(chunks)
  if not name:
    return int(documents.first[int(np.argmax(documents.count > 1))])
  tokens = chunks.tokens
  for number, first in zip(documents.index, documents.first, strict=True):
    if name in (tokens.title(int(number)), tokens.document_id(int(number))):
      return int(first)
  example = tokens.title(int(documents.index[0]))
  raise ValueError(
    f'{chunks.path}: none of its {len(documents.index):,} documents has the '
    f'title or id {name!r}; expected one such as {example!r}.'
  )


def of_store(
  trained: loading.TrainedRetro,
  first_chunk: int,
  split: str,
  k: int,
  num_compared: int = leakage.NUM_NEIGHBORS,
) -> Passage:
  """A document of the data, with its stored neighbors.

  Args:
    num_compared: nearest neighbors that r(C) is over, at most those stored.

  Raises:
    ValueError: for more neighbors than are stored, or none.
  """
  settings_lib.check_value('num_neighbors', k, settings_lib.Size)
  reader = loading.chunk_reader(trained.config, trained.data, split, k)
  chunks = reader.stores.chunks
  number = int(chunks.documents(np.array([first_chunk]))[0])
  tokens = np.asarray(chunks.tokens.document(number), np.int32)
  chunk_ids = first_chunk + np.arange(-(-len(tokens) // chunks.chunk_length))
  row = reader.read(chunk_ids)
  there = row['neighbor_mask'].any(-1)
  stored = reader.stores.neighbors
  ids = np.where(there, stored.ids(chunk_ids)[:, :k], -1)
  neighbors = zip(
    ids,
    stored.scores(chunk_ids)[:, :k],
    row['neighbors'],
    row['neighbor_mask'],
    [reader.stores.datastore.titles(x) for x in ids],
    strict=True,
  )
  neighbors = [samples.ChunkNeighbors(*x, stored.unit) for x in neighbors]
  num_compared = min(num_compared, stored.num_neighbors)
  reader = dataclasses.replace(reader, num_neighbors=num_compared)
  overlaps = leakage.overlaps(reader, chunk_ids)
  title = chunks.tokens.title(number)
  return Passage(title, tokens, neighbors, overlaps, num_compared)


def of_text(
  trained: loading.TrainedRetro, text: str, k: int, title: str = ''
) -> Passage:
  """Any text, with neighbors of a search now; a baseline's has none.

  In training a document begins with its title. A text of the datastore retrieves
  itself.

  Raises:
    ValueError: for text without a token, or no neighbors.
  """
  tokenizer = trained.data.tokenizer
  encoded = tokenizer.encode(text).ids
  if not len(encoded):
    raise ValueError('The text is empty: expected at least one token.')
  if trained.model.config.cca_layers:
    settings_lib.check_value('num_neighbors', k, settings_lib.Size)
  tokens = np.concatenate([[tokenizer.bos_id], encoded]).astype(np.int32)
  return of_tokens(trained, tokens, k, title)


def of_tokens(
  trained: loading.TrainedRetro, tokens: np.ndarray, k: int, title: str = ''
) -> Passage:
  """Tokens [T], BOS first, as `of_text`; k = 0 retrieves nothing."""
  c = trained.model.config
  m, k = c.chunk_length, k if c.cca_layers else 0
  rows = [tokens[i : i + m] for i in range(0, len(tokens), m)]
  neighbors = [samples.given_neighbors((), c.neighbor_length)] * len(rows)
  if k:
    lookup = trained.data.datastore.lookup(trained.config)
    neighbors = lookup.retrieve_tokens(rows, k)
  return _passage(trained, rows, neighbors, k, title)


def of_sample(trained: loading.TrainedRetro, sample: samples.Sample) -> Passage:
  """A sample, with the neighbors that it was written with."""
  c = trained.model.config
  nothing = samples.given_neighbors((), c.neighbor_length)
  rows = sample.chunks()
  neighbors = [*sample.neighbors]
  neighbors += [nothing] * (len(rows) - len(neighbors))
  k = max(len(x.tokens) for x in neighbors)
  passage = _passage(trained, rows, neighbors, k)
  end = sample.padding + sample.prompt_length
  return dataclasses.replace(
    passage,
    tokens=np.pad(passage.tokens, (sample.padding, 0)),
    padding=sample.padding,
    prompt_chunks=end // c.chunk_length if c.joint else 0,
  )


def _passage(trained, rows, neighbors, k, title='') -> Passage:
  bos = trained.data.tokenizer.bos_id
  overlaps = [
    leakage.overlap(row, x.tokens, x.mask, bos)
    for row, x in zip(rows, neighbors, strict=True)
  ]
  tokens = np.concatenate(rows).astype(np.int32)
  return Passage(title, tokens, neighbors, np.array(overlaps), k)


@dataclasses.dataclass(frozen=True)
class Window:
  """A part of a passage that the model reads at once."""

  row: pipeline.Row  # one sequence, as `pipeline.ChunkReader.read` returns it
  first: int  # first chunk of it
  # leading chunks that are context alone: scored in the window before
  skip: int
  count: int  # chunks of it that are there; the others are padding
  scored: np.ndarray  # positions whose targets it scores, ...
  targets: np.ndarray  # ... and these targets' places in the passage


def windows(
  passage: Passage, chunk_length: int, sequence_chunks: int
) -> Iterator[Window]:
  """Yield windows that score every token once, as in evaluation.

  Each is half a sequence after the one before; BOS alone has none. The row of a text
  shorter than `sequence_chunks` has the next power of two, so that it costs little
  padding and few lengths are compiled.
  """
  if len(passage.tokens) < 2:
    return
  count = -(-len(passage.tokens) // chunk_length)
  size = continuations.num_row_chunks(count, sequence_chunks)
  shape = max(x.tokens.shape for x in passage.neighbors)
  text = continuations.Continuation(passage.tokens, 1)
  sizes = chunk_length, sequence_chunks, max(1, sequence_chunks // 2)
  for window in continuations.make_windows(text, *sizes):
    first, skip = window.start, window.scored - window.start
    whole = dataclasses.replace(window, scored=first)
    neighbors = passage.neighbors[first : window.end]
    row = continuations.make_row(
      text, whole, chunk_length, size, neighbors, shape
    )
    if passage.prompt_chunks:
      row['entries'] = np.arange(-1, size, dtype=np.int32)
      last = passage.prompt_chunks - 1 - first
      if 0 <= last < size:
        row['entries'][last] = last
    if not first and passage.padding:
      row['segment_ids'][: passage.padding] = 0
      row['loss_mask'][: passage.padding] = False
    # The window before scored the first token of this one, with its whole context.
    scored = skip * chunk_length + np.flatnonzero(
      row['loss_mask'][skip * chunk_length :]
    )
    row = {name: value[None] for name, value in row.items()}
    places = scored, first * chunk_length + 1 + scored
    yield Window(row, first, skip, window.end - first, *places)


def _neighbor(chunk, following, neighbors, n, tokenizer) -> page_lib.Neighbor:
  """A neighbor without its attention and worth."""
  tokens, mask = neighbors.tokens[n : n + 1], neighbors.mask[n : n + 1]
  # the first of the longest runs
  runs = leakage.shared_runs(following, tokens[mask][None])[0]
  size = int(runs.max())
  start = int(runs.argmax()) + 1 - size if size else 0
  return page_lib.Neighbor(
    id=int(neighbors.ids[n]),
    title=neighbors.titles[n],
    score=float(neighbors.scores[n]),
    unit=neighbors.unit,
    overlap=float(leakage.overlap(chunk, tokens, mask, tokenizer.bos_id)),
    pieces=growing_text.pieces(tokenizer.decode, tokens[mask]),
    shared=(start, start + size),
  )


def _chunks(passage, chunk_length, tokenizer) -> list[page_lib.Chunk]:
  m, chunks = chunk_length, []
  for c, neighbors in enumerate(passage.neighbors):
    start = c * m
    chunk = passage.tokens[start : start + m]
    chunk = chunk[max(passage.padding - start, 0) :]
    following = passage.tokens[start + m : start + 2 * m]
    stop = min(start + m, len(passage.tokens))
    there = neighbors.mask.any(-1) if stop == start + m else ()
    shown = [
      _neighbor(chunk, following, neighbors, int(n), tokenizer)
      for n in np.flatnonzero(there)
    ]
    overlap = float(passage.overlaps[c])
    start, stop = max(start - passage.padding, 0), stop - passage.padding
    chunks.append(page_lib.Chunk(start, stop, shown, overlap))
  return chunks


def inspect(
  trained: loading.TrainedRetro,
  passage: Passage,
  *,
  explain: bool = True,
  progress: Callable[[int, int], None] | None = None,
) -> page_lib.Page:
  """Score each token of a passage, and explain its neighbors' effect.

  Args:
    trained: a RETRO, or without `explain` a baseline.
    explain: whether to measure each neighbor's attention and worth, which costs
      a forward pass for each neighbor.
    progress: called with (chunks done, chunks in all).

  Raises:
    ValueError: for a baseline that shall explain neighbors.
  """
  model, tokenizer = trained.model, trained.data.tokenizer
  m = model.config.chunk_length
  if explain and not model.config.cca_layers:
    raise ValueError(
      'This model reads no neighbors; expected a RETRO, not its baseline.'
    )
  nats = functools.partial(loading.batch_nll, model, trained.params)
  chunks, size = _chunks(passage, m, tokenizer), len(passage.tokens)
  on, off, repeated = np.zeros(size), np.zeros(size), np.zeros(size, int)
  for window in windows(passage, m, trained.config.sequence_chunks):
    row, base, start = window.row, window.first * m, window.skip * m
    without = np.asarray(nats(pipeline.without_neighbors(row)))[0]
    read = row['neighbor_mask'].any()
    with_them = np.asarray(nats(row))[0] if read else without
    off[window.targets] = without[window.scored]
    on[window.targets] = with_them[window.scored]
    stop = min(window.count * m, size - base)
    runs = attribution.repeated(row, m)[0]
    repeated[base + start : base + stop] = runs[start:stop]
    if explain:
      _explain(chunks, window, model, trained.params, nats)
    if progress:
      progress(window.first + window.count, len(chunks))
  tokens = passage.tokens[passage.padding + 1 :]
  on, off, repeated = (x[passage.padding :] for x in (on, off, repeated))
  return page_lib.Page(
    title=passage.title,
    pieces=['', *growing_text.pieces(tokenizer.decode, tokens)],
    on=on.tolist(),
    off=off.tolist(),
    repeated=repeated.tolist(),
    chunks=chunks,
    num_bytes=len(tokenizer.decode(tokens).encode()),
    num_compared=passage.num_compared,
    explained=explain,
  )


@dataclasses.dataclass(frozen=True)
class TokenLogprobs:
  """Log-probabilities of a passage's tokens, after all tokens before it.

  The first token, BOS, has none: -inf, and no likely tokens.
  """

  logprobs: np.ndarray  # [T] float32 nats
  likely: np.ndarray  # [T, NUM_LIKELY] int32 ids, best first; -1 for none
  likely_logprobs: np.ndarray  # [T, NUM_LIKELY] float32 nats of these


@functools.partial(jax.jit, static_argnames='model')
def _logprobs(model, params, row):
  logits = losses.forward(model, params, row)
  logprobs = jax.nn.log_softmax(logits.astype(jnp.float32))[0]
  targets = row['targets'][0][:, None]
  of_targets = jnp.take_along_axis(logprobs, targets, axis=-1)[:, 0]
  return of_targets, *jax.lax.top_k(logprobs, NUM_LIKELY)


def token_logprobs(
  trained: loading.TrainedRetro, passage: Passage
) -> TokenLogprobs:
  """Find the log-probabilities of all tokens, in the windows of evaluation."""
  size, m = len(passage.tokens), trained.model.config.chunk_length
  logprobs = np.full(size, -np.inf, np.float32)
  likely = np.full((size, NUM_LIKELY), -1, np.int32)
  likely_logprobs = np.full((size, NUM_LIKELY), -np.inf, np.float32)
  for window in windows(passage, m, trained.config.sequence_chunks):
    row = window.row
    if not row['neighbor_mask'].any():
      row = pipeline.without_neighbors(row)
    arrays = _logprobs(trained.model, trained.params, row)
    out = logprobs, likely_logprobs, likely
    for whole, part in zip(out, arrays, strict=True):
      whole[window.targets] = np.asarray(part)[window.scored]
  shown = slice(passage.padding, None)
  return TokenLogprobs(logprobs[shown], likely[shown], likely_logprobs[shown])


def _explain(chunks, window, model, params, nats) -> None:
  """Set attention and worth of the neighbors that one window's chunks read."""
  m, row = model.config.chunk_length, window.row
  shares = attribution.attention_shares(model, params, row).mean(axis=0)[0]
  gains = attribution.gains(nats, row, m)
  # The neighbors of the last chunk of context are read by what is scored.
  for c in range(max(window.skip - 1, 0), window.count):
    neighbors = chunks[window.first + c].neighbors
    there = np.flatnonzero(row['neighbor_mask'][0, c].any(-1))
    # An incomplete chunk shows none.
    for i, n in enumerate(there[: len(neighbors)]):
      neighbors[i] = dataclasses.replace(
        neighbors[i], attention=float(shares[c, n]), gain=float(gains[c, n])
      )
