# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Looks inside a RETRO: one document, its neighbors, and what they did to it.

  python -m experiments.retro.inspect --config=configs/<name>.py --workdir=DIR \
    --document='The Title'

writes DIR/inspect/<title>.html: tokens colored by the loss without retrieval minus
that with it, and by how much of the text up to them their neighbors repeat
(Borgeaud et al. 2022, appendix E.1); each chunk beside its neighbors, with titles,
distances, the longest run that both share, the attention that each neighbor gets
and what it is worth: how much likelier the next chunk is with it than without
(leave one out). --document names a document of --split, which may be an evaluation
set, by title or id (default: the first); --text_file reads any text instead, which
is looked up in the datastore now. r(C) is over the first
--config.leakage.num_neighbors neighbors stored, of a text over those that are
shown. The same figures go to a .json beside the page.
"""

from collections.abc import Sequence
import dataclasses
import functools
import json
import pathlib
import re

from absl import flags
from absl import logging
import jax
import ml_collections
import numpy as np

from experiments.engine import command
from experiments.engine import progress
from experiments.retro import evaluate as retro_evaluate
from experiments.retro import page as retro_page
from experiments.retro import passage as retro_passage
from experiments.retro import task as retro_task
from retrieval import tokenization
from retrieval.store import store
from retro_jax.evaluation import attribution
from retro_jax.evaluation import leakage

FOLDER = 'inspect'


def pieces(
  tokenizer: tokenization.Tokenizer, tokens: Sequence[int]
) -> list[str]:
  """The text of each token; that of a character cut in two goes to the last.

  Args:
    tokenizer: of the tokens.
    tokens: [T] ids.

  Returns:
    [T] strings which together are the text.
  """
  texts, start = [''] * len(tokens), 0
  for i in range(len(tokens)):
    text = tokenizer.decode(np.asarray(tokens[start : i + 1]))
    if '\ufffd' in text and i - start < 3 and i + 1 < len(tokens):
      continue
    texts[i], start = text, i + 1
  return texts


def _neighbor(
  passage: retro_passage.Passage,
  chunk: np.ndarray,
  following: np.ndarray,
  at: tuple[int, int],
  tokenizer: tokenization.Tokenizer,
) -> retro_page.Neighbor:
  """What is known of a neighbor before the model is asked."""
  tokens = passage.neighbors[at][passage.neighbor_mask[at]]
  read = tokens.tolist()
  after = leakage.SuffixAutomaton(following.tolist())
  start, size = after.longest_run(read)
  c, n = at
  return retro_page.Neighbor(
    id=int(passage.ids[at]),
    title=passage.titles[c][n],
    distance=-float(passage.scores[at]),
    overlap=leakage.longest_shared(chunk.tolist(), [read]) / max(len(chunk), 1),
    pieces=pieces(tokenizer, tokens),
    shared=(start, start + size),
  )


def _chunks(
  passage: retro_passage.Passage,
  chunk_length: int,
  tokenizer: tokenization.Tokenizer,
) -> list[retro_page.Chunk]:
  m, found = chunk_length, []
  for c, start in enumerate(range(0, len(passage.tokens), m)):
    chunk = passage.tokens[start : start + m]
    # BOS is no text.
    words = chunk[chunk != tokenizer.bos_id]
    following = passage.tokens[start + m : start + 2 * m]
    complete = len(chunk) == m
    there = passage.neighbor_mask[c].any(-1)
    places = np.flatnonzero(there) if complete else ()
    neighbors = [
      _neighbor(passage, words, following, (c, int(n)), tokenizer)
      for n in places
    ]
    overlap = float(passage.overlaps[c])
    found.append(
      retro_page.Chunk(start, start + len(chunk), neighbors, overlap)
    )
  return found


def inspect(
  trained: retro_task.Trained, passage: retro_passage.Passage
) -> retro_page.Page:
  """Asks the model what each token costs, and what its neighbors did.

  Args:
    trained: a RETRO.
    passage: a document and its neighbors.

  Returns:
    What the page shows.

  Raises:
    ValueError: for a model that reads no neighbors.
  """
  model, tokenizer = trained.model, trained.data.tokenizer
  m = model.config.chunk_length
  if not model.config.cca_layers:
    raise ValueError(
      'This model reads no neighbors; expected a RETRO, not its baseline.'
    )
  nats = functools.partial(retro_task.batch_nll, model, trained.params)
  size = len(passage.tokens)
  page = retro_page.Page(
    title=passage.title,
    pieces=['', *pieces(tokenizer, passage.tokens[1:])],
    on=[0.0] * size,
    off=[0.0] * size,
    repeated=[0] * size,
    chunks=_chunks(passage, m, tokenizer),
    num_bytes=len(tokenizer.decode(passage.tokens[1:]).encode()),
    num_compared=passage.num_compared,
  )
  found = list(
    retro_passage.windows(passage, m, trained.config.sequence_chunks)
  )
  with progress.bar('inspect', 'chunks') as update:
    for window in found:
      _fill(page, window, model, trained.params, nats, m)
      update(window.first + window.count, len(page.chunks))
  return page


def _fill(page, window, model, params, nats, chunk_length) -> None:
  """Sets what one window says of the chunks that it scores."""
  m, row = chunk_length, window.row
  bare = {k: v for k, v in row.items() if not k.startswith('neighbor')}
  base = window.first * m
  # Row i scores token i + 1. The window before, whose last row that was, scored
  # the first token here with its whole context.
  start = window.skip * m
  scored = [i for i in np.flatnonzero(row['loss_mask'][0]) if i >= start]
  for values, one in ((page.on, row), (page.off, bare)):
    found = np.asarray(nats(one))[0]
    for i in scored:
      values[base + i + 1] = float(found[i])
  repeated = attribution.repeated(row, m)[0]
  for i in range(start, window.count * m):  # the window before ended there
    if base + i < len(page.repeated):
      page.repeated[base + i] = int(repeated[i])
  shares = attribution.attention_shares(model, params, row).mean(axis=0)[0]
  gains = attribution.gains(nats, row, m)
  # The neighbors of the last chunk of context are read by what is scored.
  for c in range(max(window.skip - 1, 0), window.count):
    chunk = page.chunks[window.first + c]
    there = np.flatnonzero(row['neighbor_mask'][0, c].any(-1)).tolist()
    for i, (n, neighbor) in enumerate(
      zip(there, chunk.neighbors, strict=False)  # an incomplete one shows none
    ):
      chunk.neighbors[i] = dataclasses.replace(
        neighbor, attention=float(shares[c, n]), gain=float(gains[c, n])
      )


def write(page: retro_page.Page, path: pathlib.Path) -> None:
  """Writes PATH (.html) and the same figures as .json beside it."""
  path.parent.mkdir(parents=True, exist_ok=True)
  store.write_atomically(path, retro_page.html_page(page).encode())
  text = json.dumps(page.to_json(), ensure_ascii=False) + '\n'
  store.write_atomically(path.with_suffix('.json'), text.encode())


def _file_name(title: str) -> str:
  return re.sub(r'[^\w.-]+', '_', title).strip('_')[:80] or 'document'


def _read_text(path: pathlib.Path) -> str:
  if not path.is_file():
    raise FileNotFoundError(f'--text_file={path}: no such file.')
  try:
    return path.read_text(encoding='utf-8')
  except UnicodeDecodeError as error:
    raise ValueError(
      f'--text_file={path}: expected UTF-8 text ({error}).'
    ) from None


def _passage(
  trained: retro_task.Trained, k: int, num_compared: int
) -> retro_passage.Passage:
  values = flags.FLAGS
  if values.text_file:
    path = pathlib.Path(values.text_file)
    return retro_passage.of_text(trained, _read_text(path), k, path.stem)
  first = retro_passage.find(trained, values.document, values.split)
  return retro_passage.of_store(trained, first, values.split, k, num_compared)


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Inspects a document and writes the page."""
  if jax.process_count() > 1:
    raise ValueError('retro_inspect runs in one process.')
  k = retro_evaluate.numbers_of_neighbors(config.evaluate)[0]
  trained = retro_task.load(workdir, config.data_dir)
  trained.config.embedder = config.embedder
  passage = _passage(trained, k, config.leakage.num_neighbors)
  page = inspect(trained, passage)
  path = pathlib.Path(
    flags.FLAGS.output
    or pathlib.Path(workdir) / FOLDER / f'{_file_name(page.title)}.html'
  )
  write(page, path)
  console = progress.console()
  console.print(retro_page.make_table(page))
  on, off = page.bits_per_byte(page.on), page.bits_per_byte(page.off)
  console.print(f'{on:.4f} bits per byte with retrieval, {off:.4f} without.')
  logging.info('The page is %s.', path)


def _define_flags() -> None:
  flags.DEFINE_string('document', '', 'Title or id; default: the first.')
  flags.DEFINE_string(
    'split', 'valid', 'Of the document: train, valid or an evaluation set.'
  )
  flags.DEFINE_string('text_file', '', 'Text to be looked at instead.')
  flags.DEFINE_string(
    'output', '', 'The page; default: DIR/inspect/TITLE.html.'
  )


if __name__ == '__main__':
  command.main(run, _define_flags, computes=True)
