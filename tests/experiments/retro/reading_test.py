# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A decoder learns to read: frozen, from rows of prompts and passages."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.retro_qa import config as qa_config, data as qa_data
from retrieval import tokenization
from retrieval.questions import dpr_json
from retro_jax.data import folder as retro_data, qa_rows, reading_rows
from retro_jax.decoding import decode, decode_rows, drawing, growing_text
from retro_jax.nn import losses, models
from retro_jax.trained import inspection, language_model, loading
from tests.experiments.engine import tiny_run
from tests.experiments.retro import tiny_config, tiny_retro
from tests.retro_jax.nn import tiny

_WORDS = 'river queen moon mill crown stone'.split()


def _config(root, arg='test', **fields):
  fields = {'num_steps': 3, 'eval_batches': 0, 'data_dir': str(root)} | fields
  return tiny_config.tiny('retro_reading_smollm2', arg, **fields)


def _layout(c, prompt_chunks):
  return qa_rows.QaLayout(
    chunk_length=c.chunk_length,
    prompt_chunks=prompt_chunks,
    answer_length=3,
    num_neighbors=2,
    neighbor_length=c.neighbor_length,
  )


@pytest.fixture(scope='module')
def rows(tmp_path_factory):
  """A file of prompts, each with its answer in one of two passages."""
  rng, path = np.random.default_rng(0), tmp_path_factory.mktemp('rows') / 'rows'
  words = rng.choice(_WORDS, (40, 6))
  found = [
    {
      'question': f'the {a} of',
      'answers': [f' {b} {c}'],
      'ctxs': [{'text': f'{d} {e}'}, {'text': f'{a} {b} {c}'}][: 1 + i % 2],
    }
    for i, (a, b, c, d, e, _) in enumerate(words)
  ]
  path = path.with_suffix('.jsonl')
  path.write_text('\n'.join(map(json.dumps, found)))
  return path


@pytest.fixture(scope='module')
def baseline(root, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('baseline')
  tiny_run.train(_config(root, 'baseline_test'), root, workdir)
  return workdir


@pytest.fixture(scope='module')
def trained(root, rows, baseline, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('trained')
  fields = {'reading.train': (str(rows),), 'retrofit_from': str(baseline)}
  state, rows = tiny_run.train(_config(root, **fields), root, workdir)
  return workdir, state, [x['loss'] for x in rows]


def test_the_decoder_stays_and_the_rest_learns(baseline, trained):
  workdir, state, losses = trained
  old = language_model.load(baseline)
  run = language_model.load(workdir)
  assert len({*losses}) == 3
  for name, x in old.params.items():
    jax.tree.map(np.testing.assert_array_equal, state.params[name], x)
  new = state.params['layer_1_reading']
  assert (np.asarray(new['b']) != 1).all() and np.any(new['q_out'])
  tokens = np.random.default_rng(0).integers(0, 300, (1, 14), np.int32)
  ours, theirs = (
    jax.jit(m.model.apply)({'params': m.params}, tokens) for m in (run, old)
  )
  np.testing.assert_array_equal(ours, theirs)
  assert run.model.config.begin_id == run.data.tokenizer.bos_id


def test_rows_end_prompts_where_chunks_end(root):
  tokenizer = tokenization.load_tokenizer(root / 'tokenizer')
  layout = qa_rows.QaLayout(
    chunk_length=8,
    prompt_chunks=2,
    answer_length=5,
    num_neighbors=2,
    neighbor_length=6,
  )
  writer = reading_rows.ReadingWriter(layout, tokenizer)
  passages = [dpr_json.Context(title='T', text='a river of stone and moon')]
  row = writer.row('the mill', ' crown of the queen of the moon', passages)
  prompt = [tokenizer.bos_id, *tokenizer.encode('the mill').ids]
  assert row['tokens'][16 - len(prompt) : 16].tolist() == prompt
  answer = tokenizer.encode(' crown of the queen of the moon').ids[:5].tolist()
  assert row['targets'][15:20].tolist() == answer  # without EOS
  assert row['loss_mask'].tolist() == [False] * 15 + [True] * 5
  short = tokenizer.encode(' a').ids.tolist()
  assert len(short) < 5 and writer.answer(' a').tolist() == short
  assert row['neighbors'].shape == (1, 2, 6)
  first = tokenizer.encode(passages[0].text).ids[:6].tolist()
  assert row['neighbors'][0, 0].tolist() == first
  assert row['neighbor_mask'][0].any(-1).tolist() == [True, False]
  assert row['entries'].tolist() == [-1, 0, 0]


def test_prompts_that_share_passages_are_one_row(root):
  passages = [(dpr_json.Context(title='', text=x),) for x in _WORDS]
  every = [
    dpr_json.Result(question=f'the {x}', answers=(x,), contexts=passages[i])
    for x, i in zip(_WORDS, (0, 0, 0, 1, 2, 0), strict=True)
  ]
  parts = reading_rows.together(every, 2)
  assert [len(x) for x in parts] == [2, 1, 1, 1, 1]
  assert sum(parts, []) == every
  config = _config(root)
  c = loading.model_config_of(config, data := retro_data.DataFolder(root))
  layout = _layout(c, 1)
  losses_of = []
  for most in (1, 2):
    writer = reading_rows.ReadingWriter(layout, data.tokenizer, most)
    examples = reading_rows.together(every, most)
    (batch,) = qa_rows.make_dataset(
      examples, writer, train=False, batch_size=len(examples)
    )
    assert batch['tokens'].shape[:2] == (7 - most, most)
    model = functools.partial(losses.loss_of_prompts, models.of(c))
    params, batch = jax.tree.map(jnp.asarray, (tiny.params(c), batch))
    mean, _ = model(params, batch, jax.random.key(0), False)
    losses_of.append([float(x) for x in jax.tree.leaves(mean)])
  np.testing.assert_allclose(losses_of[0], losses_of[1], rtol=1e-5)


def test_questions_are_trained_as_they_are_answered(root):
  config = _config(root)
  c = loading.model_config_of(config, data := retro_data.DataFolder(root))
  layout = _layout(c, 8)
  qa = qa_config.Qa(num_passages=2, prompt_chunks=8, answer_length=3)
  fields = {x.name: getattr(config, x.name) for x in dataclasses.fields(config)}
  fields |= {'task': 'retro_qa', 'model': c, 'qa': qa}
  writer = qa_data.writer(qa_config.Config(**fields), data.tokenizer)
  assert writer.layout == layout
  asked = 'the mill?', [dpr_json.Context(title='T', text='river of stone')]
  model, params = models.of(c), tiny.params(c, seed=3)
  settings = drawing.SamplingConfig(
    max_new_tokens=3, temperature=0.0, align_prompt=True
  )
  prompt = writer.prompt_to_continue(*asked)
  (sample,) = decode.sample(
    model, params, [prompt], settings, detokenize=data.tokenizer.decode
  )
  answer = sample.new_tokens
  row = writer.row(asked[0], '', asked[1])
  size = layout.prompt_length
  row['tokens'][size:], row['segment_ids'][size:] = answer[:2], 1
  names = ('loss_mask', 'targets')
  logits = tiny.apply(
    c, params, **{k: x[None] for k, x in row.items() if k not in names}
  )
  assert logits[0, size - 1 :].argmax(-1).tolist() == answer.tolist()
  off = tiny.apply(c, params, row['tokens'][None])
  assert off[0, size - 1 :].argmax(-1).tolist() != answer.tolist()


@pytest.mark.parametrize('prompt, chunks', [('the mill', 5), ('xy', 3)])
def test_a_sample_is_scored_as_it_was_written(root, trained, prompt, chunks):
  """The likeliest token is what greedy decoding drew, in all of its windows."""
  run = language_model.load(trained[0])
  params = tiny.params(run.model.config)  # far from any training
  model = language_model.LanguageModel(
    dataclasses.replace(run.config, sequence_chunks=8),  # one window
    tiny_retro.Folder(root),
    run.model,
    params,
    run.step,
  )
  m, kept = run.model.config.chunk_length, []
  model.sample(prompt, take=kept.append, max_new_tokens=2 * m, temperature=0.0)
  sample = kept[-1].sample
  assert sample.padding in (1, 3) and len(sample.neighbors) == chunks
  passage = inspection.of_sample(model, sample)
  told = inspection.token_logprobs(model, passage)
  grid = [0] * sample.padding + sample.tokens.tolist()
  lengths = sample.padding, sample.prompt_length
  text = growing_text.GrowingText(str)
  row = decode_rows.GrowingRow(
    grid, *lengths, None, text, None, sample.neighbors
  )
  sizes = -(-len(grid) // m), m, (2, run.model.config.neighbor_length)
  buffer = decode_rows.Batch([row], *sizes, True, 32).fill_buffer()
  logits = tiny.apply(run.model.config, params, **buffer)[0]
  own = jax.nn.log_softmax(logits)[np.arange(len(grid) - 1), grid[1:]]
  own = own[sample.padding :]
  np.testing.assert_allclose(told.logprobs[1:], own, atol=1e-4)
  page = inspection.inspect(model, passage)
  assert page.on[1:] == pytest.approx((-told.logprobs[1:]).tolist(), abs=1e-5)
  assert len(page.pieces) == len(page.on) == len(sample.tokens)
  assert page.chunks[0].start == 0 and page.chunks[-1].stop == len(page.on)
  gains = [x.gain for chunk in page.chunks for x in chunk.neighbors]
  assert any(gains)
  shares = [sum(x.attention for x in c.neighbors) for c in page.chunks]
  assert shares[chunks - 3] == pytest.approx(1, abs=1e-3)
