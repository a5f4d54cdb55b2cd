# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The sampling command on a tiny model and data folder."""

import dataclasses
import functools
import json

import numpy as np
import pytest

from experiments import sample as retro_sample
from retrieval import tokenization
from retro_jax.data import samples as samples_lib
from retro_jax.trained import language_model
from retro_jax.views import prompts as prompts_lib, samples as views
from tests.experiments.retro import tiny_config, tiny_retro
from tests.retro_jax.data import tiny_data

FEW = retro_sample.Sample(max_new_tokens=10)


@pytest.fixture(scope='module')
def trained(root):
  return tiny_retro.trained(root)


@pytest.fixture
def config(trained, monkeypatch):
  """Of the command; the newest checkpoint of any workdir is `trained`."""
  monkeypatch.setattr(language_model, 'load', lambda *_, **__: trained)
  return tiny_config.of()


def test_samples_show_prompt_neighbors_and_titles(config, tmp_path, capsys):
  three = retro_sample.Sample(num_neighbors=3, max_new_tokens=10)
  samples = retro_sample.run(
    config,
    'retro',
    three,
    prompt='river queen 日本',
    num_samples=2,
    json_path=str(tmp_path / 'samples.json'),
  )
  assert len(samples) == 2
  for sample in samples:
    assert sample.prompt == 'river queen 日本'
    assert sample.text == sample.prompt + sample.completion
    assert ''.join(chunk.text for chunk in sample.chunks) == sample.text
    for chunk in sample.chunks[:-1]:
      assert chunk.ids == [tiny_data.M, 7]  # the missing one is left out
      assert chunk.titles == ['Title 4', 'Title 7']
      assert len(chunk.neighbors) == 2
  found = json.loads((tmp_path / 'samples.json').read_text())
  assert found['samples'][0]['chunks'][0]['unit'] == 'BM25'
  assert found['samples'] == [dataclasses.asdict(s) for s in samples]
  printed = capsys.readouterr().out
  assert ' -0.400' in printed and 'Title 7' in printed
  assert 'BM25' in printed and 'distance' not in printed
  again = retro_sample.run(
    config, 'retro', three, prompt='river queen 日本', seed=0
  )
  assert again[0].text == samples[0].text


def test_samples_without_retrieval(trained):
  baseline = tiny_retro.trained(trained.data.root, baseline=True)
  for model, neighbors in ((trained, []), (baseline, None)):
    (sample,) = model.sample('', neighbors=neighbors)
    assert all(chunk.ids == [] for chunk in sample.chunks)
    assert sample.text
  prompt = prompts_lib.TextPrompt('river', 'q1', [['moon']])
  with pytest.raises(ValueError, match='Prompt q1 brings neighbors'):
    baseline.sample([prompt])


def _write(path, rows):
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return path


def test_a_file_of_prompts(config, tmp_path, capsys):
  """Samples do not depend on how many are drawn side by side."""
  rows = [
    {'prompt': 'river queen', 'id': 'a'},
    {'prompt': '', 'neighbors': ['moon gardens', 'apple']},
    {'prompt': 'moon', 'id': 7, 'neighbors': [['river'], ['apple', 'x']]},
  ]
  path = _write(tmp_path / 'in.jsonl', rows)
  out = tmp_path / 'out.json'
  run = functools.partial(
    retro_sample.run,
    config,
    'retro',
    FEW,
    input_file=str(path),
    num_samples=2,
    json_path=str(out),
  )
  samples = run(batch_size=2)
  names = ['a', 'in.jsonl:2', '7']
  assert [s.id for s in samples] == [n for n in names for _ in range(2)]
  assert samples[0].completion != samples[1].completion
  given = samples[2].chunks[:-1], samples[4].chunks[:-1]
  for chunk in given[0]:
    assert chunk.neighbors == ['moon gardens', 'apple']
    assert (chunk.ids, chunk.scores) == ([-1, -1], [None, None])
  later = [chunk.neighbors for chunk in given[1]]
  assert later[0] == ['river'] and len(later) > 1
  assert all(texts == ['apple', 'x'] for texts in later[1:])
  printed = capsys.readouterr().out
  assert all(f' {name} ' in printed for name in names)
  found = json.loads(out.read_text())
  assert [s['id'] for s in found['samples']] == [s.id for s in samples]
  assert [s.text for s in run(batch_size=6)] == [s.text for s in samples]


class Bytes(tokenization.Tokenizer):
  """A tokenizer whose tokens are the bytes of UTF-8."""

  def decode(self, tokens):
    return bytes(np.asarray(tokens).tolist()).decode(errors='replace')


def test_a_character_of_the_prompt_that_a_chunk_cuts_stays_whole():
  """It stands where it ends; here in the second chunk."""
  prompt, written = '日本ab'.encode(), 'c日'.encode()
  tokens = np.array([*prompt, *written])
  sample = samples_lib.Sample(tokens, len(prompt), 4, [])
  got = views.to_text(sample, Bytes())
  assert [chunk.prompt for chunk in got.chunks] == ['日', '本ab', '']
  assert [chunk.written for chunk in got.chunks] == ['', '', 'c日']
  assert got.prompt == '日本ab'
  assert ''.join(chunk.text for chunk in got.chunks) == got.text


@pytest.mark.parametrize(
  ('name', 'text', 'message'),
  [
    ('a.csv', 'x', r'a.csv'),
    ('a.txt', '\n', r'a.txt'),
    ('a.jsonl', '{"prompt": "x"}\n{"prompt":', r'a.jsonl:2'),
    ('a.jsonl', '{"text": "x"}', r":1: .*'text'"),
    ('a.jsonl', '\n{"prompt": "", "neighbors": "x"}', r":2, field 'neighbors'"),
  ],
)
def test_bad_files_of_prompts(tmp_path, name, text, message):
  (tmp_path / name).write_text(text)
  with pytest.raises(ValueError, match=message):
    prompts_lib.read(tmp_path / name)
