# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Commands that look into a run: evaluate, explain, the rows of Table 2."""

import functools
import io
import json
import math
import types

import grain
import jax
import numpy as np
import pytest
import rich.console

from experiments.engine import checkpoint_writer, loop, metric_writer, progress
from experiments.realm import (
  evaluate as realm_evaluate,
  explain as realm_explain,
  marginal_bias,
  quickstart as realm_quickstart,
  train as realm_train,
  warm_start,
  zero_shot,
)
from experiments.tables import realm_table2
from realm_jax.data import examples
from realm_jax.serving import (
  explain,
  index_folders,
  model_configs,
  trained as trained_lib,
)
from retrieval.questions import answers
from retrieval.store import checkpoints
from tests.experiments.realm import tiny_realm
from tests.realm_jax.nn import tiny

STEP = 7
QUESTIONS = (
  {'question': 'When stood the mill in Rome?', 'answer': ['1066', '1999']},
  {'question': 'the river crown of Paris', 'answer': ['crown was']},
  {'question': 'What?', 'answer': ['nowhere']},
)


@pytest.fixture(scope='module', autouse=True)
def fast():
  """Little time in the compiler: each program runs once or twice."""
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tiny_realm.make_data(tmp_path_factory.mktemp('data'))
  lines = '\n'.join(json.dumps(question) for question in QUESTIONS)
  (root / 'questions.jsonl').write_text(lines)
  return root


def _config(data, **fields):
  config = tiny_realm.get_config(data, **fields)
  config.evaluate.questions = (str(data / 'questions.jsonl'),)
  config.evaluate.ks = (1, 3, 100)
  return config


@pytest.fixture(scope='module')
def workdir(data, tmp_path_factory):
  """The checkpoint of a model whose documents and predictions differ much."""
  root = tmp_path_factory.mktemp('run')
  config = _config(data)
  folder = tiny_realm.data_of(config)
  params = tiny.params(
    model_configs.realm_config(config, folder.tokenizer.vocab_size), seed=1
  )
  with checkpoint_writer.Checkpoints(
    str(root),
    config=config.to_dict(),
    pipeline={},
    fingerprints=folder.fingerprints(),
  ) as saved:
    batches = iter(grain.MapDataset.range(1).to_iter_dataset())
    saved.save(STEP, {'params': params}, batches)
  return root


@pytest.fixture(scope='module')
def trained(workdir):
  return trained_lib.load_realm(workdir)


@pytest.fixture(scope='module')
def index(trained, workdir):
  return trained.open_index(workdir / index_folders.INDEX)


@pytest.fixture
def flags(monkeypatch):
  """Sets what a command's own flags hold."""

  def set_flags(module, **values):
    parsed = types.SimpleNamespace(**values)
    monkeypatch.setattr(module, 'flags', types.SimpleNamespace(FLAGS=parsed))

  return set_flags


def test_evaluates_documents_and_retrievers(
  data, workdir, index, tmp_path, capsys, monkeypatch
):
  measure, asked = zero_shot.measure, {}

  def watched(retrievers, *arguments):
    asked.update(retrievers)
    return measure(retrievers, *arguments)

  monkeypatch.setattr(zero_shot, 'measure', watched)
  config = _config(data)
  config.evaluate.workdir = str(workdir)
  realm_evaluate.run(config, str(tmp_path / 'new'))
  found = json.loads((tmp_path / 'new' / 'evaluation.json').read_text())
  assert found['step'] == STEP
  retrieved, random = (found['masked'][x] for x in ('retrieved', 'random'))
  assert retrieved['examples'] == random['examples'] == config.batch_size
  # The same sentences, so the same without documents, and others with them.
  for name in ('log_prob', 'accuracy', 'exact_span'):
    name = f'null_{name}'
    assert retrieved[name] == pytest.approx(random[name], abs=1e-5)
  assert abs(retrieved['log_prob'] - random['log_prob']) > 1e-3
  for values in (retrieved, random):
    gain = values['log_prob'] - values['null_log_prob']
    assert values['retrieval_utility'] == pytest.approx(gain, abs=1e-4)
    assert 0 < values['null_prior'] < 1
  rows = {(row['retriever'], row['rule']): row for row in found['zero_shot']}
  names = ('before', f'step {STEP}', 'BM25')
  assert set(rows) == {
    (x, rule) for x in names for rule in ('substring', 'dpr')
  }
  for row in rows.values():
    shares = [row[f'recall@{k}']['mean'] for k in config.evaluate.ks]
    # All blocks are among a hundred; two of three answers stand in one.
    assert shares == sorted(shares) and shares[-1] == pytest.approx(2 / 3)
    assert row['questions'] == 3
  texts = [question['question'] for question in QUESTIONS]
  before, after = (asked[name](texts, 9) for name in names[:2])
  assert (before != after).any(axis=1).all()
  printed = capsys.readouterr().out
  for part in ('retrieved', 'null only', 'random', *names, 'recall@100'):
    assert part in printed
  assert f'{-retrieved["log_prob"]:.4f}' in printed


def test_recall_is_of_the_models_own_index(data, trained, index):
  """Zero-shot recall against the texts of the blocks, one by one."""
  config = _config(data)
  blocks = trained.data.blocks
  retrieve = realm_evaluate.retriever(trained, index)
  texts = [question['question'] for question in QUESTIONS]
  ids = retrieve(texts, 30)
  for text, row in zip(texts, ids, strict=True):
    found = index.retrieve_texts(
      [text], 30, trained.data.tokenizer, trained.layout
    )
    np.testing.assert_array_equal(found[0], row)
  rule = answers.make_rule('substring', None)
  hits = [
    any(rule.compile(tuple(q['answer']))(text) for text in blocks.texts(row))
    for q, row in zip(QUESTIONS, ids[:, :3].tolist(), strict=True)
  ]
  table = zero_shot.measure({'x': retrieve}, blocks, config.evaluate)
  assert table[0]['recall@3']['mean'] == pytest.approx(np.mean(hits))


def test_without_questions_or_checkpoint(data, workdir, tmp_path, capsys):
  config = _config(data)
  config.evaluate.questions = ()
  realm_evaluate.run(config, str(workdir))
  found = json.loads((workdir / 'evaluation.json').read_text())
  assert set(found) == {'step', 'masked'}
  with pytest.raises(FileNotFoundError, match='checkpoint'):
    realm_evaluate.run(config, str(tmp_path))


def test_explains_as_json(data, workdir, flags, capsys):
  texts = ['The mill stood in [MASK].', 'The [MASK] stood in Rome.']
  values = {'text': texts, 'answer': ['1999', 'rivers crown'], 'json': True}
  flags(realm_explain, **values)
  realm_explain.run(_config(data), str(workdir))
  one, several = json.loads(capsys.readouterr().out)
  assert (one['answer'], several['answer']) == ('1999', 'rivers crown')
  # A single mask stands for all wordpieces of the answer.
  assert len(one['predictions']) == 1 and len(several['predictions']) == 3
  assert [one['text'], several['text']] == texts
  for found in (one, several):
    for words in found['predictions']:
      shares = [share for _, share in words]
      assert len(words) == 5 and shares == sorted(shares, reverse=True)
    _check_documents(found, len(found['predictions']))


def _check_documents(found, num_targets):
  """Priors, posteriors and utilities of documents belong together."""
  documents = found['documents']
  null, *others = documents
  assert null['block'] == -1 and null['title'] == '(null)' and not null['text']
  assert len(others) == 2 and all(row['block'] >= 0 for row in others)
  prior = np.asarray([row['prior'] for row in documents])
  own = np.asarray([row['log_prob'] for row in documents])
  assert prior.sum() == pytest.approx(1)
  posterior = prior * np.exp(own - own.max())
  for row, share in zip(documents, posterior / posterior.sum(), strict=True):
    assert row['posterior'] == pytest.approx(share, rel=1e-3, abs=1e-6)
    gain = row['log_prob'] - null['log_prob']
    assert row['utility'] == pytest.approx(gain, abs=1e-3)
    assert row['word']
  assert found['null_log_prob'] == null['log_prob']
  if num_targets == 1:
    total = math.log((prior * np.exp(own)).sum())
    assert found['log_prob'] == pytest.approx(total, abs=1e-4)
    for k, row in enumerate(documents):
      rest = np.delete(prior, k) / (1 - prior[k])
      rest = math.log((rest * np.exp(np.delete(own, k))).sum())
      assert row['without'] == pytest.approx(rest, abs=1e-3)


def test_without_an_answer_the_prediction_is_explained(trained, index, capsys):
  text = 'The [MASK] stood in [MASK].'
  found = explain.explain(trained, index, text)
  best = [words[0][0] for words in found.predictions]
  assert len(best) == 2 and found.answer.split() == ' '.join(best).split()
  again = explain.explain(trained, index, text, found.answer)
  assert again.log_prob == pytest.approx(found.log_prob, abs=1e-4)
  realm_explain.print_explained(found)
  printed = capsys.readouterr().out
  assert text in printed and '(null)' in printed and best[0] in printed


@pytest.mark.parametrize(
  ('text', 'answer', 'message'),
  [
    ('The mill.', '', 'at least one \\[MASK\\]'),
    ('[MASK] ' * 11, '', '11 masks, expected at most layout.max_targets=10'),
    ('[MASK]', 'x' * 11, '11 masks, expected at most'),
    ('[MASK] [MASK]', '1999', "'1999' is 1 wordpieces, but there are 2 masks"),
    ('[MASK]', ' ', "' ' is 0 wordpieces, but there are 1 masks"),
    ('mill ' * 30 + '[MASK]', '', '31 wordpieces, expected at most 22'),
  ],
)
def test_what_cannot_be_explained_is_refused(trained, text, answer, message):
  with pytest.raises(ValueError, match=message):
    explain.encode(trained, text, answer)


@pytest.mark.parametrize(('texts', 'count'), [([], 0), (['[MASK]'], 2)])
def test_as_many_answers_as_texts(data, workdir, flags, texts, count):
  flags(realm_explain, text=texts, answer=['x'] * count, json=False)
  with pytest.raises(ValueError, match=f'{len(texts)} --text and {count} --an'):
    realm_explain.run(_config(data), str(workdir))


def test_markup_in_documents_is_not_interpreted(monkeypatch):
  row = {'title': '[/i]', 'text': '[red] [/]', 'word': '[b]', 'utility': 0.0}
  row |= {name: 0.5 for name in ('prior', 'posterior', 'without')}
  found = explain.Explained(
    '[/b] [MASK]', [[('[/u]', 0.5)]], '[x]', -1.0, -1.0, [row]
  )
  out = rich.console.Console(file=io.StringIO(), width=200)
  monkeypatch.setattr(progress, 'console', lambda: out)
  realm_explain.print_explained(found)
  printed = out.file.getvalue()
  for part in ('[/b] [MASK]', '[/u] 0.500', "'[x]'", '[/i]: [red] [/]', '[b]'):
    assert part in printed


def test_the_table_before_anything_was_run(data, tmp_path, flags, capsys):
  flags(realm_table2, row=[], qa_config=None, dataset=[])
  realm_table2.run(_config(data), str(tmp_path))
  printed = capsys.readouterr().out
  rows = [line for line in printed.splitlines() if 'not run' in line]
  assert len(rows) == len(realm_table2.SYSTEMS) and ' ours ' in printed
  (line,) = [line for line in rows if '38.2' in line]
  assert 'REALM' in line and '38.5' in line and 'salient' in line


def test_rows_that_cannot_be_run_are_refused(data, tmp_path, flags):
  flags(realm_table2, row=['bm25', 'bm26'], qa_config=None, dataset=[])
  with pytest.raises(ValueError, match="--row=bm26: expected one of \\['salie"):
    realm_table2.run(_config(data), str(tmp_path))
  flags(realm_table2, row=['bm25'], qa_config=None, dataset=[])
  config = _config(data)
  config.evaluate.questions = ()
  with pytest.raises(ValueError, match='evaluate.questions is empty'):
    realm_table2.run(config, str(tmp_path))


def test_rows_of_words_and_of_ict(data, tmp_path, flags, capsys, monkeypatch):
  train = functools.partial(loop.train, devices=jax.devices()[:1])
  monkeypatch.setattr(loop, 'train', train)
  flags(realm_table2, row=['bm25', 'ict'], qa_config=None, dataset=[])
  config = _config(data, eval_batches=0)
  realm_table2.run(config, str(tmp_path))
  lines = capsys.readouterr().out.splitlines()
  lines = [line for line in lines if 'not run' in line]
  # Two rows share ICT's retriever.
  assert len(lines) == len(realm_table2.SYSTEMS) - 3
  for name in ('bm25', 'ict'):
    rows = json.loads((tmp_path / name / 'zero_shot.json').read_text())
    assert {row['retriever'] for row in rows} == {name}
    # Five documents are counted though the config asks for others.
    assert all(0 <= row['recall@5']['mean'] <= 1 for row in rows)
  assert checkpoints.find(str(tmp_path / 'ict')).step == 4

  def again(*unused):
    raise AssertionError('ICT is trained twice.')

  monkeypatch.setattr(realm_train, 'run', again)
  found = warm_start.train(config, 'ict', tmp_path)
  assert found == str(tmp_path / 'ict')
  config.warm_start.needs_mlm = False
  assert warm_start.train(config, 'mlm', tmp_path) == ''
  # Such a model has no encoder, but a retriever to evaluate.
  config.evaluate.questions = ()
  realm_evaluate.run(config, str(tmp_path / 'ict'))
  found = json.loads((tmp_path / 'ict' / 'evaluation.json').read_text())
  assert found == {'step': 4}
  trained = trained_lib.load_realm(tmp_path / 'ict', str(data))
  with pytest.raises(ValueError, match='has no encoder'):
    explain.explain(trained, None, 'The [MASK].')


@pytest.mark.parametrize(
  ('name', 'changed'),
  [
    ('salient', {'masker': 'salient'}),
    ('uniform', {'masker': 'uniform'}),
    ('span', {'masker': 'span'}),
    ('stale', {'refresh': {'staleness': 30}}),
    ('realm_retriever', {'masker': 'salient'}),
  ],
)
def test_rows_change_the_config(
  data, tmp_path, flags, monkeypatch, name, changed
):
  """Everything but training: which run a row would make, and where."""
  made = []

  def run(config, folder):
    made.append((config, folder))

  monkeypatch.setattr(realm_train, 'run', run)
  index = types.SimpleNamespace()
  trained = types.SimpleNamespace(
    open_index=lambda folder='', progress=None: index
  )
  monkeypatch.setattr(trained_lib, 'load_realm', lambda *_: trained)
  monkeypatch.setattr(realm_table2, '_write_recall', lambda *_: None)
  flags(realm_table2, row=[name], qa_config=None, dataset=[])
  config = _config(data)
  config.optimizer.accumulate_steps = 2
  config.optimizer.part_scales = {'encoder': 0.5}
  realm_table2.run(config, str(tmp_path))
  *starts, (realm, folder) = made
  assert folder == str(tmp_path / realm_table2.SYSTEMS[name].retriever)
  for start, part, (warm, warm_folder) in zip(
    ('ict', 'mlm'), ('embedder', 'encoder'), starts, strict=True
  ):
    assert warm_folder == realm[f'{part}_from'] == str(tmp_path / start)
    settings = config.warm_start[start]
    assert warm.num_steps == settings.num_steps
    assert warm.batch_size == settings.batch_size
    assert warm.optimizer.learning_rate == settings.learning_rate
    assert warm.optimizer.accumulate_steps == 1
    assert not warm.optimizer.part_scales
  assert realm.optimizer.part_scales
  for key, value in changed.items():
    found = realm[key]
    if isinstance(value, dict):
      ((field, value),) = value.items()
      found = found[field]
    assert found == value
  assert realm.num_steps == config.num_steps
  assert realm.optimizer.learning_rate == config.optimizer.learning_rate


def test_quickstart_from_stores_to_explained_predictions(
  data, tmp_path, capsys, monkeypatch
):
  """Every stage at a tiny size; run again, nothing is trained anew."""
  train = functools.partial(loop.train, devices=jax.devices()[:1])
  monkeypatch.setattr(loop, 'train', train)
  config = _config(data, num_steps=4)
  config.evaluate.before = config.evaluate.bm25 = False
  config.explain.sentences = (('The [MASK] stood in Paris.', 'mill'),)
  realm_quickstart.run(config, str(tmp_path))
  printed = capsys.readouterr().out
  for part in ('nats a token', 'The [MASK] stood in Paris.', 'Done in'):
    assert part in printed
  assert checkpoints.find(str(tmp_path / 'mlm')).step == 4
  saved = json.loads((tmp_path / 'config.json').read_text())
  assert saved['encoder_from'] == str(tmp_path / 'mlm')
  before = metric_writer.read(tmp_path)
  realm_quickstart.run(config, str(tmp_path))
  assert metric_writer.read(tmp_path) == before


def test_marginal_bias_is_zero_over_all_documents(
  data, workdir, tmp_path, monkeypatch
):
  config = _config(data)
  config.evaluate.workdir = str(workdir)
  config.marginal_bias.update(
    num_examples=2, ks=(2, 10_000), num_draws=3, read_at_once=16, steps=(STEP,)
  )
  marginal_bias.run(config, str(tmp_path))
  assert (tmp_path / marginal_bias.PICTURE).stat().st_size
  saved = json.loads((tmp_path / marginal_bias.FILE).read_text())
  rows = {(r['estimator'], r['k'], r['gradient']): r for r in saved['rows']}
  assert len(rows) == 4 * 2 * 2
  for name in ('top', 'uniform', 'mixed'):
    for space in ('blocks', 'query'):
      every, few = (rows[name, k, space] for k in (10_000, 2))
      assert every['cosine'] == pytest.approx(1)
      assert every['bias'] == pytest.approx(0, abs=1e-5)
      assert every['posterior_mass'] == pytest.approx(1)
      assert few['cosine'] < 0.9999 and few['posterior_mass'] < 1
  monkeypatch.setattr(marginal_bias, 'compare', None)  # nothing is left to do
  marginal_bias.run(config, str(tmp_path))
  config.marginal_bias.num_examples = 10_000
  monkeypatch.undo()
  with pytest.raises(ValueError, match='num_examples=10000: expected at most'):
    marginal_bias.run(config, str(tmp_path))


def test_marginal_bias_reads_the_block_with_its_sentence(data, workdir):
  """The encoder's values are those of the training's loss."""
  config = _config(data)
  trained = trained_lib.load_realm(workdir, str(data))
  reader = marginal_bias._Reader(trained, 5)
  row = next(marginal_bias._rows(config, trained))
  vectors, scores, gold = reader.read(row)
  batch = examples.stack([row])
  ids = np.flatnonzero(trained.data.blocks.all_hashes() != row['origin_hash'])
  asked = batch['sentence'], batch['sentence_count']
  batch |= examples.queries(trained.layout, *asked) | examples.candidates(
    trained.layout, trained.data.blocks, np.append(-1, ids)[None], *asked
  )
  read = jax.jit(lambda x: trained.model.apply({'params': trained.params}, x))
  out = read({k: v for k, v in batch.items() if k != 'origin_hash'})
  targets = batch['mlm_mask'][0]
  assert len(vectors) == len(ids) + 1
  np.testing.assert_allclose(scores, out.scores[0], atol=1e-4)
  np.testing.assert_allclose(gold, out.gold_log_probs[0][:, targets], atol=1e-4)
