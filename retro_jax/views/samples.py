# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Samples as text, each chunk with the neighbors that it retrieved."""

from collections.abc import Sequence
import dataclasses
import html
import math
import textwrap

import numpy as np

from retrieval import text_table, tokenization
from retrieval.searchers import base
from retro_jax.data import samples as samples_lib
from retro_jax.decoding import growing_text


class Listing(text_table.Short, list):
  """A list that a notebook shows item by item."""

  def __str__(self) -> str:
    """The items, separated by blank lines."""
    return '\n\n'.join(map(str, self))

  def _repr_html_(self) -> str:
    return ''.join(item._repr_html_() for item in self)


@dataclasses.dataclass(frozen=True, repr=False)
class TextChunk(text_table.Short):
  """A chunk of a text and the neighbors that it read."""

  prompt: str  # the part of its text that belongs to the prompt
  written: str  # the part of its text that the model wrote
  # datastore chunks, best first; -1 for neighbors of the prompt. Empty
  # for an incomplete chunk and for a baseline.
  ids: list[int]
  # larger is better; None for neighbors of the prompt
  scores: list[float | None]
  titles: list[str]  # of the neighbors' documents
  neighbors: list[str]  # the neighbors' text, with continuation
  unit: str = 'score'  # of the scores; those of a distance are negative

  @property
  def text(self) -> str:
    """The prompt's part and the written part."""
    return self.prompt + self.written

  def rows(self) -> list[tuple[str, str, str]]:
    """Score, title and text of each neighbor, for people to read.

    A score is in its unit, or 'given'. The title is left out where it begins the text.
    """
    scores = (
      'given' if x is None else f'{base.in_unit(x, self.unit):.3f}'
      for x in self.scores
    )
    texts = (
      text.removeprefix(title).lstrip()
      for title, text in zip(self.titles, self.neighbors, strict=True)
    )
    return list(zip(scores, self.titles, texts, strict=True))

  def __str__(self) -> str:
    """The chunk, then a line for each neighbor."""
    return self.text + _neighbors([self])

  def _repr_html_(self) -> str:
    neighbors = ''
    for score, title, text in self.rows():
      score = score if score == 'given' else f'{self.unit} {score}'
      neighbors += (
        f'<details><summary>{html.escape(title) or "untitled"} · '
        f'{html.escape(score)}</summary><p style="white-space:pre-wrap;'
        f'opacity:.7">{html.escape(text)}</p></details>'
      )
    return (
      f'<p style="white-space:pre-wrap"><b>{html.escape(self.prompt)}</b>'
      f'{html.escape(self.written)}</p>'
      f'<div style="margin-left:2em;font-size:smaller">{neighbors}</div>'
    )


@dataclasses.dataclass(frozen=True, repr=False)
class TextSample(text_table.Short):
  """A prompt and its continuation as text."""

  text: str  # both
  prompt: str  # the prompt alone
  chunks: list[TextChunk]  # the same, chunk by chunk
  id: str = ''  # of the prompt
  completion: str = ''  # the continuation alone

  def __str__(self) -> str:
    """Prompt and continuation, then a line for each neighbor."""
    return self.text + _neighbors(self.chunks)

  def _repr_html_(self) -> str:
    chunks = ''.join(chunk._repr_html_() for chunk in self.chunks)
    title = f'<h4>{html.escape(self.id)}</h4>' if self.id else ''
    return f'<div>{title}{chunks}</div>'


def _neighbors(chunks: Sequence[TextChunk]) -> str:
  """A table of the neighbors of chunks, below a text; '' without any."""
  units = {chunk.unit for chunk in chunks if chunk.neighbors}
  if not units:
    return ''
  heads = ['chunk', ', '.join(sorted(units)), 'from', 'retrieved']
  rows = [
    [f'{number}', *row]
    for number, chunk in enumerate(chunks, start=1)
    for row in chunk.rows()
  ]
  return f'\n{textwrap.indent(text_table.lines(heads, rows), "  ")}'


def to_text(
  sample: samples_lib.Sample, tokenizer: tokenization.Tokenizer, name: str = ''
) -> TextSample:
  """A sample as text, up to a stop string; its chunks' texts add up to its text."""
  n = sample.prompt_length
  # A split character goes to its last token.
  pieces = growing_text.pieces(tokenizer.decode, sample.tokens[:n])
  prompts = [''.join(pieces[i:j]) for i, j in sample.chunk_bounds()]
  written = growing_text.pieces(tokenizer.decode, sample.new_tokens)
  left = math.inf if sample.text is None else len(sample.text)
  chunks = []
  for u, (start, stop) in enumerate(sample.chunk_bounds()):
    new = ''.join(written[max(start - n, 0) : max(stop - n, 0)])
    new = new[: min(left, len(new))]
    left -= len(new)
    neighbors = sample.neighbors[u] if u < len(sample.neighbors) else None
    chunks.append(chunk_text(prompts[u], new, neighbors, tokenizer))
  prompt = ''.join(prompts)
  completion = ''.join(chunk.written for chunk in chunks)
  return TextSample(prompt + completion, prompt, chunks, name, completion)


def chunk_text(
  prompt: str,
  written: str,
  neighbors: samples_lib.ChunkNeighbors | None,
  tokenizer: tokenization.Tokenizer,
) -> TextChunk:
  """A chunk's text with the text of its neighbors; missing ones are omitted."""
  if neighbors is None:
    return TextChunk(prompt, written, [], [], [], [])
  rows = np.flatnonzero(neighbors.mask.any(axis=-1))
  scores = [float(neighbors.scores[i]) for i in rows]
  return TextChunk(
    prompt=prompt,
    written=written,
    ids=[int(neighbors.ids[i]) for i in rows],
    scores=[x if math.isfinite(x) else None for x in scores],
    titles=[neighbors.titles[i] for i in rows],
    neighbors=[
      tokenizer.decode(neighbors.tokens[i][neighbors.mask[i]]) for i in rows
    ],
    unit=neighbors.unit,
  )
