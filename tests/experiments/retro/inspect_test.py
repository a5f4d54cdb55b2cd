# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A document of a tiny run, looked at: figures against the loss, and the page."""

import dataclasses
import html.parser
import json
import re
import types

import numpy as np
import pytest

from experiments import inspect as retro_inspect
from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import attribution, evaluate, leakage
from retro_jax.trained import (
  inspection,
  language_model,
  loading,
)
from retro_jax.views import page as page_lib
from tests.experiments.engine import tiny_run
from tests.experiments.retro import tiny_config
from tests.retro_jax.data import tiny_data

M = tiny_data.M


@pytest.fixture(scope='module')
def workdir(root, tmp_path_factory):
  """A checkpoint of a RETRO with parameters at random."""
  return tiny_run.make_run(tmp_path_factory.mktemp('run'), root, init_scale=0.5)


@pytest.fixture(scope='module')
def trained(workdir):
  return language_model.load(workdir)


def _longest(trained):
  """First chunk of the longest document held out, and how many it has."""
  chunks = trained.data.chunks('valid')
  documents = chunks.documents(np.arange(chunks.num_chunks))
  first = int(np.argmax(documents == np.bincount(documents).argmax()))
  return first, int((documents == documents[first]).sum())


@pytest.fixture(scope='module')
def page(trained):
  first, count = _longest(trained)
  assert count > trained.config.sequence_chunks  # there are several windows
  passage = inspection.of_store(trained, first, 'valid', 2)
  return inspection.inspect(trained, passage)


@pytest.mark.parametrize('retrieval', ['on', 'off'])
def test_all_losses_are_the_evaluation_of_the_document(
  trained, page, retrieval
):
  first, _ = _longest(trained)

  found = evaluate.evaluate(
    lambda row: loading.batch_nll(trained.model, trained.params, row),
    loading.chunk_reader(trained.config, trained.data, 'valid', 2),
    sequence_chunks=trained.config.sequence_chunks,
    batch_size=1,
    retrieval=retrieval,
  )
  documents = windows_lib.find_documents(trained.data.chunks('valid'))
  [number] = np.flatnonzero(documents.first == first)
  nats = sum(getattr(page, retrieval))
  assert nats == pytest.approx(found.nats[number], rel=1e-6)


def test_overlap_is_over_more_neighbors_than_are_shown(trained, page):
  first, count = _longest(trained)
  root = trained.data.root
  reader = tiny_data.reader(root, 'valid', tiny_data.K)
  expected = leakage.overlaps(
    dataclasses.replace(reader, neighbor_length=2 * M), first + np.arange(count)
  )
  assert [chunk.overlap for chunk in page.chunks] == expected.tolist()
  assert page.num_compared == tiny_data.K
  shown = [
    max([x.overlap for x in c.neighbors], default=0) for c in page.chunks
  ]
  assert any(a < b for a, b in zip(shown, expected, strict=True))
  less = inspection.of_store(trained, first, 'valid', 2, 1)
  assert less.num_compared == 1 and less.overlaps.sum() < expected.sum()


def test_repetition_is_told_at_window_borders(trained, page):
  first, count = _longest(trained)
  reader = loading.chunk_reader(trained.config, trained.data, 'valid', 2)
  whole = reader.read(first + np.arange(count)[None])
  expected = attribution.repeated(whole, M)[0, : len(page.repeated)]
  assert page.repeated == expected.tolist() and max(page.repeated) > 0


def test_neighbors_are_those_of_the_data(trained, page):
  first, count = _longest(trained)
  assert len(page.chunks) == count
  stored = trained.data.neighbors('valid').ids(first + np.arange(count))[:, :2]
  for c, chunk in enumerate(page.chunks):
    complete = chunk.stop - chunk.start == M
    wanted = [i for i in stored[c].tolist() if i >= 0] if complete else []
    assert [x.id for x in chunk.neighbors] == wanted
  shown = [x for chunk in page.chunks[:-1] for x in chunk.neighbors]
  datastore = trained.data.chunks('train')
  tokens, mask = datastore.gather(np.array([shown[0].id]), tiny_data.R)
  text = trained.data.tokenizer.decode(tokens[0][mask[0]])
  assert ''.join(shown[0].pieces) == text
  number = int(datastore.documents(np.array([shown[0].id]))[0])
  assert shown[0].title == datastore.tokens.title(number)
  assert shown[0].score == -shown[0].id  # as the data were made
  for chunk in page.chunks[:-1]:
    if chunk.neighbors:
      assert sum(x.attention for x in chunk.neighbors) == pytest.approx(1)
  assert all(abs(x.gain) > 1e-3 for x in shown)


class _Parser(html.parser.HTMLParser):
  """Text of the page, its tags in balance."""

  def __init__(self, page: str):
    super().__init__()
    self.text, self.open, self.links = [], [], []
    self.feed(page)

  def handle_starttag(self, tag, attrs):
    if tag not in ('meta', 'br', 'input'):
      self.open.append(tag)
    self.links += [value for key, value in attrs if key in ('src', 'href')]

  def handle_endtag(self, tag):
    assert self.open.pop() == tag

  def handle_data(self, data):
    self.text.append(data)


def test_page_holds_what_was_found(page):
  parser = _Parser(page_lib.html_page(page))
  assert not parser.open and not parser.links
  text = ''.join(parser.text)
  assert f'{page.bits_per_byte(page.on):.3f} bits per byte' in text
  shown = [x for chunk in page.chunks for x in chunk.neighbors]
  assert all(f'squared L2 distance {x.id}.000' in text for x in shown)
  assert all(f'{x.gain:+.2f}' in text for x in shown[:-2])
  words = ''.join(''.join(page.pieces[1:M]).split())
  assert words in ''.join(text.split())


def test_text_is_no_markup():
  bad = '<script>alert(1)</script>'
  neighbor = page_lib.Neighbor(1, bad, 0.5, bad, 0.25, [bad], (0, 1))
  page = page_lib.Page(
    title=bad,
    pieces=['', bad, '\n'],
    on=[0.0, 1.0, 2.0],
    off=[0.0, 2.0, 1.5],
    repeated=[0, 4, 0],
    chunks=[page_lib.Chunk(0, 3, [neighbor], 0.25)],
    num_bytes=len(bad) + 1,
    num_compared=1,
  )
  content = page_lib.html_page(page)
  assert '<script' not in content and content.count('&lt;script&gt;') == 6
  assert _Parser(content).open == []
  # Green at its fullest, then red; blue at half.
  greens = re.findall(r'--gain:rgba\((.*?)\)', content)
  assert greens == ['215,40,40,0.00', '0,150,70,1.00', '215,40,40,1.00']
  assert '--run:rgba(40,90,220,0.50)' in content
  assert page.gain(page.chunks[0]) == pytest.approx(0.5)


def _run(monkeypatch, workdir, **values):
  defaults = {'document': '', 'split': 'valid', 'text_file': '', 'output': ''}
  found = types.SimpleNamespace(
    FLAGS=types.SimpleNamespace(**defaults | values)
  )
  monkeypatch.setattr(retro_inspect, 'flags', found)
  evaluate = tiny_config.section(
    'evaluate', **{'leakage.num_neighbors': tiny_data.K}
  )
  retro_inspect.run(tiny_config.of(), str(workdir), evaluate)


def test_command_writes_page_and_figures(
  monkeypatch, workdir, tmp_path, capsys
):
  output = tmp_path / 'pages' / 'one.html'
  _run(monkeypatch, workdir, output=str(output))
  content = json.loads(output.with_suffix('.json').read_text())
  assert f'<title>{content["title"]}</title>' in output.read_text()
  assert len(content['on']) == len(content['pieces'])
  assert set(content['chunks'][0]) >= {'gain', 'overlap', 'neighbors'}
  assert 'without neighbors' in capsys.readouterr().out


def test_bad_input_is_named(monkeypatch, workdir, tmp_path):
  with pytest.raises(ValueError, match='Nowhere'):
    _run(monkeypatch, workdir, document='Nowhere')
  with pytest.raises(FileNotFoundError, match='missing.txt'):
    _run(monkeypatch, workdir, text_file=str(tmp_path / 'missing.txt'))
  empty = tmp_path / 'empty.txt'
  empty.write_bytes(b'\xef\xbb\xbf')
  with pytest.raises(ValueError, match='text_file'):
    _run(monkeypatch, workdir, text_file=str(empty))
  with pytest.raises(ValueError, match='all, test, train, valid'):
    _run(monkeypatch, workdir, split='no')
