# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A scored text beside its neighbors, as an HTML page or a notebook's widget.

The page stands by itself: no file beside it, no script from elsewhere. Green is
what retrieval made likelier, red what it made less likely, as in Borgeaud et
al. 2022, appendix E, at most at half a nat; blue is what the neighbors repeat.
"""

import dataclasses
import hashlib
import html
import json
import math
from typing import Any

from retrieval import text_table
from retrieval.searchers import base
from retro_jax.views import samples

_MOST_NATS = 0.5  # at which a color is full; the paper's
_MOST_REPEATED = 8  # tokens at which a color is full


@dataclasses.dataclass(frozen=True)
class Neighbor:
  """A neighbor of a chunk."""

  id: int  # chunk of the datastore
  title: str  # of its document
  score: float  # larger is better
  unit: str  # of the score, as of `retriever.Retriever`
  # the longest run of tokens shared with the chunk, over the chunk's tokens
  overlap: float
  pieces: list[str]  # its text, token by token, with the continuation
  # first and past-last token of the longest run that it shares with the chunk
  # after, which reads it
  shared: tuple[int, int]
  # share of the cross-attention that it gets, 0 if nothing reads it
  attention: float = 0.0
  gain: float = 0.0  # nats by which the chunk after is less likely without it


@dataclasses.dataclass(frozen=True)
class Chunk:
  """A part of the document."""

  start: int  # first token
  stop: int  # past the last one
  neighbors: list[Neighbor]  # what is shown of those retrieved, best first
  overlap: float  # r(C), over `Page.num_compared` neighbors


@dataclasses.dataclass(frozen=True, repr=False)
class Page:
  """A text with the loss of each token and the neighbors of each chunk."""

  title: str  # of the document
  pieces: list[str]  # [T] text of each token; BOS, the first, has none
  on: list[float]  # [T] nats with retrieval, 0 for BOS
  off: list[float]  # [T] nats without
  # [T] length of the run up to each token that its neighbors repeat
  repeated: list[int]
  chunks: list[Chunk]  # of the document, in order
  num_bytes: int  # of the text, in UTF-8
  num_compared: int  # nearest neighbors that r(C) is over
  # whether the neighbors' attention and gain were measured
  explained: bool = True

  def __repr__(self) -> str:
    """Title or beginning, size and bits per byte."""
    on, off = self.bits_per_byte(self.on), self.bits_per_byte(self.off)
    return (
      f'{self.name}: {len(self.pieces) - 1:,} tokens, {on:.4f} bits '
      f'per byte with retrieval, {off:.4f} without'
    )

  @property
  def name(self) -> str:
    """The title, or the beginning of a text without one."""
    return self.title or text_table.shorten(''.join(self.pieces), 40)

  def _repr_html_(self) -> str:
    return html_widget(self)

  def gain(self, chunk: Chunk) -> float:
    """Nats that retrieval saves on a chunk's tokens."""
    span = slice(chunk.start, chunk.stop)
    return sum(self.off[span]) - sum(self.on[span])

  def bits_per_byte(self, nats: list[float]) -> float:
    """Of `on` or `off`."""
    return sum(nats) / math.log(2) / max(self.num_bytes, 1)

  def to_json(self) -> dict[str, Any]:
    """All of it as JSON values."""
    content = dataclasses.asdict(self)
    for written, chunk in zip(content['chunks'], self.chunks, strict=True):
      written['gain'] = self.gain(chunk)
    return content


class Scores(samples.Listing):
  """Scored texts: each item has `on` and `off`, nats of each token."""

  @property
  def bits_per_byte(self) -> float:
    """Bits per byte of all texts, with retrieval if the model retrieves."""
    return self._mean('on')

  @property
  def bits_per_byte_off(self) -> float:
    """Bits per byte of all texts without neighbors."""
    return self._mean('off')

  def __str__(self) -> str:
    """A line for each text, and one for all."""
    names = [page.name for page in self]
    lines = [Scores([page]) for page in self]
    if len(self) > 1:
      names.append('all')
      lines.append(self)
    rows = []
    for name, line in zip(names, lines, strict=True):
      count = sum(len(page.pieces) - 1 for page in line)
      means = line.bits_per_byte, line.bits_per_byte_off
      rows.append([name, f'{count:,}', *(f'{x:.4f}' for x in means)])
    heads = 'text', 'tokens', 'bits per byte', 'without neighbors'
    note = ''
    if self and all(len(page.chunks) == 1 for page in self):
      note = '\nThe first chunk of a text reads no neighbors.'
    return text_table.lines(heads, rows) + note

  def _mean(self, name: str) -> float:
    nats = sum(sum(getattr(page, name)) for page in self)
    return nats / math.log(2) / max(sum(page.num_bytes for page in self), 1)


def _rgba(color: str, strength: float) -> str:
  return f'rgba({color},{min(strength, 1):.2f})'


def _gain_color(gain: float) -> str:
  color = '0,150,70' if gain > 0 else '215,40,40'
  return _rgba(color, abs(gain) / _MOST_NATS)


def _text(pieces: list[str]) -> str:
  return html.escape(''.join(pieces)).replace('\n', '<br>')


def _token(page: Page, i: int) -> str:
  gain, run = page.off[i] - page.on[i], page.repeated[i]
  told = (
    f'{page.on[i]:.2f} nats with retrieval, {page.off[i]:.2f} without '
    f'({gain:+.2f}); {run} tokens repeated'
  )
  style = (
    f'--gain:{_gain_color(gain)};'
    f'--run:{_rgba("40,90,220", run / _MOST_REPEATED)}'
  )
  return (
    f'<span title="{told}" style="{style}">{_text([page.pieces[i]])}</span>'
  )


def _neighbor(x: Neighbor, is_read: bool, explained: bool) -> str:
  start, stop = x.shared
  use = 'read by the next chunk' if is_read else 'read by nothing'
  if is_read and explained:
    use = (
      f'attention {x.attention:.0%} · worth <b style="background:'
      f'{_gain_color(x.gain)}">{x.gain:+.2f}</b> nats'
    )
  return (
    '<details><summary>'
    f'<b>{html.escape(x.title) or "untitled"}</b> · {html.escape(x.unit)} '
    f'{base.in_unit(x.score, x.unit):.3f} · '
    f'{x.overlap:.0%} of the chunk stands in it · {use}</summary>'
    f'<p>{_text(x.pieces[:start])}<mark>{_text(x.pieces[start:stop])}</mark>'
    f'{_text(x.pieces[stop:])}</p></details>'
  )


def _chunk(page: Page, number: int, chunk: Chunk) -> str:
  tokens = ''.join(_token(page, i) for i in range(chunk.start, chunk.stop))
  is_read = number < len(page.chunks)
  neighbors = ''.join(
    _neighbor(x, is_read, page.explained) for x in chunk.neighbors
  )
  if not neighbors:
    none = 'retrieved nothing' if is_read else 'nothing reads what it retrieved'
    neighbors = f'<p class="none">{none}</p>'
  return (
    '<section><div class="text">'
    f'<h3>chunk {number} · retrieval saves {page.gain(chunk):+.2f} nats</h3>'
    f'<p>{tokens}</p></div><div class="neighbors"><h3>what it retrieved, for the '
    f'next · r(C) over the {page.num_compared} nearest '
    f'{chunk.overlap:.0%}</h3>{neighbors}</div></section>'
  )


_STYLE = """
.retro-page{font:15px/1.5 system-ui,sans-serif;max-width:1200px;margin:auto;
 padding:0 1em}
.retro-page section{display:grid;grid-template-columns:1fr 1fr;gap:2em;
 border-top:1px solid #8886;padding:.6em 0}
.retro-page h2{margin:.6em 0 .2em}
.retro-page h3{font-size:12px;font-weight:600;opacity:.7;margin:.2em 0}
.retro-page .text p{white-space:pre-wrap;margin:.2em 0}
.retro-page .text span{background:var(--gain);border-radius:2px}
.retro-page .by-run:checked~section .text span{background:var(--run)}
.retro-page summary{cursor:pointer;font-size:13px}
.retro-page details p{font-size:13px;white-space:pre-wrap;
 margin:.3em 0 .6em 1em}
.retro-page mark{background:#ffe58a;color:#222}
.retro-page .none{opacity:.7;font-size:13px}
.retro-page label{margin-right:1.2em}
@media(max-width:700px){.retro-page section{grid-template-columns:1fr}}
"""


def html_widget(page: Page) -> str:
  """The page's content, for `IPython.display.HTML`; the text has the page's color."""
  text = json.dumps(page.to_json())
  digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
  name = f'retro-{digest}'  # of the buttons: two widgets may share a notebook
  chunks = ''.join(
    _chunk(page, i, chunk) for i, chunk in enumerate(page.chunks, start=1)
  )
  on, off = page.bits_per_byte(page.on), page.bits_per_byte(page.off)
  return (
    f'<div class="retro-page"><style>{_STYLE}</style>'
    f'<h2>{html.escape(page.title) or "The text"}</h2>'
    f'<p>{on:.3f} bits per byte with retrieval, {off:.3f} without. Color of '
    'tokens:</p>'
    f'<input type="radio" name="{name}" id="{name}-g" checked>'
    f'<label for="{name}-g">retrieval made it likelier (green) or less (red), '
    f'full at {_MOST_NATS} nats</label>'
    f'<input type="radio" name="{name}" id="{name}-r" class="by-run">'
    f'<label for="{name}-r">repeated from what could be read (blue), full at '
    f'{_MOST_REPEATED} tokens</label>'
    '<p class="none">A neighbor opens at a click; marked is the longest run that '
    f'the chunk after shares with it.</p>{chunks}</div>'
  )


def html_page(page: Page) -> str:
  """The whole file."""
  title = html.escape(page.title) or 'RETRO'
  return (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width">'
    '<meta name="color-scheme" content="light dark">'
    f'<title>{title}</title></head><body>{html_widget(page)}</body></html>\n'
  )
