# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A bundle's rows are the library's; its spans are answers; training learns them."""

import dataclasses
import functools
import json
import shutil

import jax
import numpy as np
import pytest

from experiments.accelerators import (
  reader_batches,
  reader_bundle,
  train_reader,
  weight_files,
)
from realm_jax.data import folder as data_folder, reader_rows
from realm_jax.nn import initialize
from realm_jax.serving import model_configs
from retrieval.nn import sharding
from retrieval.store import packed
from tests.experiments.accelerators import bare
from tests.experiments.open_qa import tiny_open_qa

_PASSAGE = 'The mill stood by the river in 1066. The crown was in Rome in 1999.'


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  root = tmp_path_factory.mktemp('bundle')
  folder = data_folder.DataFolder(tiny_open_qa.make_data(root / 'data'))
  rows = [
    {
      'question': f'When was the {word}?',
      'answers': [year],
      'answer_start': [_PASSAGE.index(year)],
      'context': _PASSAGE,
      'title': 'Mill',
    }
    for word, year in (('mill', '1066'), ('crown', '1999'))
  ]
  rows += [
    {'question': f'Where was the {x}?', 'answers': [x]} for x in ('river',)
  ]
  path = root / 'rows.jsonl'
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  asked = [*reader_bundle.read(str(path))]
  asked += reader_bundle.read(f'custom:test={root}/data/questions.jsonl', True)
  passages = reader_bundle.prepare_passages(
    asked, root / 'passages', folder.tokenizer_path, 32
  )
  arrays = reader_bundle.make(
    folder, passages, asked, candidates=6, dev_share=10**6
  )
  return root, folder, passages, asked, arrays


def _run(arrays, name, at):
  ends = arrays[f'{name}_end']
  low = ends[at - 1] if at else 0
  return arrays[f'{name}_tokens'][low : ends[at]].tolist()


def test_spans_are_answers(made):
  _, folder, _, asked, arrays = made
  encode = folder.tokenizer.encode
  questions = [encode(x.question.question).ids.tolist() for x in asked]
  assert len(arrays['gold']) > 8 and arrays['dev'].any()
  for row, candidate, start, wider in arrays['gold'].tolist():
    body = _run(arrays, 'block', arrays['candidates'][row, candidate])
    at = questions.index(_run(arrays, 'question', row))
    wanted = [encode(x).ids.tolist() for x in asked[at].question.answers]
    assert body[start : start + wider + 1] in wanted


def test_rows_are_those_of_the_library(made):
  _, folder, passages, _, arrays = made
  data, _ = reader_batches.prepare(arrays, {})
  layout = reader_batches.Layout(*arrays['layout'].tolist())
  library = reader_rows.ReaderLayout(
    row_length=layout.row,
    question_length=layout.question + 2,
    title_length=layout.title,
    cls_id=layout.cls,
    sep_id=layout.sep,
    pad_id=0,
  )
  seen = 0
  for number, ids in enumerate(arrays['candidates']):
    ids = ids[ids >= 0]
    ids = np.pad(ids, (0, 6 - len(ids)), constant_values=-1)
    rows = jax.jit(reader_batches.rows_of, static_argnums=0)(
      layout, data, np.asarray([number]), ids[None], np.zeros(1, bool)
    )
    for place, block in enumerate(ids[ids >= 0]):
      body = _run(arrays, 'block', block)
      title = _run(arrays, 'title', arrays['block_title'][block])
      for blocks in (folder.blocks, passages.blocks):
        for i in np.arange(blocks.num_blocks)[:, None]:
          mine, [n] = blocks.gather(i, layout.row)
          titles, [t] = blocks.gather_titles(i, layout.title)
          if mine[0, :n].tolist() != body or titles[0, :t].tolist() != title:
            continue
          question = np.asarray(_run(arrays, 'question', number))
          wanted = reader_rows.reader_rows(library, blocks, i[None], [question])
          for name in ('ids', 'mask', 'types', 'block_mask'):
            np.testing.assert_array_equal(
              rows[f'reader_{name}'][0, place],
              wanted[f'reader_{name}'][0, 0],
            )
          seen += 1
  assert seen > 20


def test_a_batch_holds_an_answer_or_none(made):
  data, _ = reader_batches.prepare(made[-1], {})
  layout = reader_batches.Layout(*made[-1]['layout'].tolist())
  draw = functools.partial(
    reader_batches.draw, layout=layout, size=64, read=3, width=4
  )
  batch = jax.jit(draw)(data, jax.random.key(0))
  there = np.asarray(batch['reader_correct']).any((1, 2, 3))
  assert 0.6 < there.mean() < 1
  outside = batch['reader_correct'] & ~batch['reader_block_mask'][:, :, None]
  assert not outside.any()


def test_questions_that_are_left_out_are_never_drawn(made):
  arrays = made[-1]
  usable = np.arange(len(arrays['dev'])) == 1
  data, held = reader_batches.prepare(arrays, {}, usable)
  drawn = np.diff(np.asarray(data['drawn']), prepend=0.0)
  assert drawn.tolist() == usable.tolist() and not len(held)


@pytest.fixture(scope='module')
def start(made):
  """A packed model that training starts from."""
  root, folder, _, _, arrays = made
  np.savez(root / reader_bundle.FILE, **arrays)
  config = tiny_open_qa.get_config(root / 'data', **{'encoder.max_length': 256})
  start = root / 'start'
  model = model_configs.realm_config(config, folder.tokenizer.vocab_size)
  params = sharding.unbox(initialize.random_params(jax.random.key(0), model))
  packed.write(
    start,
    {'encoder': params['encoder']},
    json.loads(json.dumps(dataclasses.asdict(config))),
    step=0,
    fingerprints={},
  )
  return start


@pytest.mark.slow
def test_a_dry_run_trains_on_a_bare_machine(made, start, tmp_path):
  bare.run(
    'experiments.accelerators.train_reader',
    '--dry_run',
    f'--bundle={made[0]}',
    f'--start={start}',
    f'--output={tmp_path}',
  )
  for part in ('encoder', 'reader'):
    assert 'layer_0' in weight_files.read(tmp_path, part)['bert']


def test_training_learns_and_keeps_the_table(made, start):
  root, folder, _, _, _ = made
  output = root / 'trained'
  levels = packed.load_params(start)['encoder']
  options = {
    'batch': 8, 'mlm_batch': 8, 'read': 3, 'steps': 25, 'every': 25,
    'dev': 64, 'dropout': 0.1, 'learning_rate': 1e-2,
  }  # fmt: skip
  train_reader.train(
    root,
    start,
    output,
    masked={'num_steps': 5},
    reading={'num_steps': 50},
    weights={},
    options=options,
  )
  curve = json.loads((output / 'curve.json').read_text())
  losses = [x['loss'] for x in curve if x['part'] == 'reader']
  assert losses[-1] < losses[0]
  for name in ('encoder', 'reader'):
    found = weight_files.read(output, name)['bert']['layer_0']['output']
    before = levels['bert']['layer_0']['output']
    assert (found['kernel'] != before['kernel']).any()
  folder.tokenizer.save(start)
  train_reader.pack([output], start, start)
  once = packed.load_params(start)['reader']['span_score']
  other = root / 'other'
  other.mkdir()
  layout = (output / train_reader.LAYOUT).read_text()
  (other / train_reader.LAYOUT).write_text(layout)
  tree = weight_files.read(output, 'reader')
  tree['span_score']['kernel'] *= 3
  weight_files.write(other, 'reader', tree)
  (other / train_reader.CURVE).write_text(json.dumps(curve))
  train_reader.pack([output, other], start, start)
  twice = packed.load_params(start)['reader']['span_score']
  np.testing.assert_allclose(2 * once['kernel'], twice['kernel'], rtol=1e-5)
  now = packed.read_config(start)
  assert now['lookup']['title_length'] == 12 and now['reader']['null_answer']
  target = shutil.copytree(start, root / 'target')
  packed.write(
    target,
    {'encoder': levels},
    now | {'reader': now['reader'] | {'coverage_weight': 2.0}},
    step=0,
    fingerprints={},
    others=['tokenizer.json'],
  )
  train_reader.pack([output], start, target)
  assert packed.read_config(target)['reader'] == now['reader']
  train_reader.train(
    root,
    start,
    root / 'further',
    masked={},
    reading={'num_steps': 1},
    weights={},
    options=options | {'learning_rate': 1e-9, 'steps': 1},
    go_on=True,
  )
  further = json.loads((root / 'further' / 'curve.json').read_text())
  assert further[0]['loss'] < losses[0]
  model, data = (
    train_reader.open_qa.OpenQa(
      train_reader._model(str(start), len(levels['mlm_head']['bias']), 0.0)
    ),
    reader_batches.prepare(made[-1], {})[0],
  )
  params = packed.load_params(start)
  layout = reader_batches.Layout(*made[-1]['layout'].tolist())
  given = {'reader': params['reader']}, data
  right = train_reader.round_trip(model, layout, *given, np.arange(2), 3)
  evaluate = train_reader.evaluator(model, layout, 3, size=1)
  for i in range(2):
    found = evaluate(*given, np.asarray([i]))
    assert right[i] == found['exact_match']
  assert {*params} == {'encoder', 'reader'}
  for part in params.values():
    table = part['bert']['embeddings']['word']['embedding']
    np.testing.assert_array_equal(
      table, levels['bert']['embeddings']['word']['embedding']
    )
