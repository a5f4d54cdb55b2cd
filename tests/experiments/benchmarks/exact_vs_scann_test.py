# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The benchmark: both searchers or the reason, and a file that scores the same."""

import json
import types

import grain
import jax
import pytest

from experiments.benchmarks import exact_vs_scann as qa_benchmark
from experiments.engine import checkpoint_writer
from experiments.open_qa import starts
from retrieval import searchers
from retrieval.questions import dpr_json, question_sets, scoring
from tests.experiments.open_qa import tiny_open_qa


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  return tiny_open_qa.make_data(tmp_path_factory.mktemp('benchmark') / 'data')


def _save(data, workdir, arg='test'):
  """The checkpoint of a model as training begins."""
  config = tiny_open_qa.get_config(data, arg)
  folder = tiny_open_qa.tiny_realm.data_of(config)
  start = starts.untrained(config, folder)
  with checkpoint_writer.Checkpoints(
    str(workdir),
    config=config.to_dict(),
    pipeline={},
    fingerprints=folder.fingerprints(),
  ) as saved:
    batches = iter(grain.MapDataset.range(1).to_iter_dataset())
    saved.save(3, {'params': start.params}, batches)
  return config


@pytest.fixture(autouse=True)
def one_device(monkeypatch):
  """Answers on one device; little time in the compiler."""
  one = jax.local_devices()[:1]
  monkeypatch.setattr(jax, 'local_devices', lambda: one)
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)


@pytest.fixture
def run(monkeypatch):
  """Runs the command with flags."""

  def run_command(config, workdir, match='all', output='', depth=100):
    parsed = types.SimpleNamespace(
      match=match, retrieval_output=str(output), retrieval_depth=depth
    )
    found = types.SimpleNamespace(FLAGS=parsed)
    monkeypatch.setattr(qa_benchmark, 'flags', found)
    qa_benchmark.run(config, str(workdir))
    return json.loads((workdir / qa_benchmark.FILE).read_text())

  return run_command


class _Reversed(searchers.ExactSearcher):
  """Stands for ScaNN: finds what exact search finds, the other way round."""

  def search(self, queries, k):
    ids, scores = super().search(queries, k)
    return ids[:, ::-1], scores[:, ::-1]


@pytest.mark.slow
def test_both_searchers_and_a_file_that_scores_the_same(
  data, tmp_path, run, capsys, monkeypatch
):
  config = _save(data, tmp_path)
  spec = config.evaluate.questions[0]
  config.evaluate.questions = (spec,)
  config.evaluate.ks = (1, 5, 12)
  output = tmp_path / 'retrieved.json'
  found = run(config, tmp_path, output=output)
  (measures,) = found['sets']
  assert list(measures) == ['exact'] and found['step'] == 3
  printed = capsys.readouterr().out
  assert 'Without ScaNN: ' in printed and 'it needs 4,096' in printed
  for name in ('exact_match', 'official_exact_match', 'reader_oracle'):
    assert name in printed
  assert measures['exact']['questions_per_sec'] > 0
  assert 0 < measures['exact']['retrieval_ms'] < 1e6

  # Anyone who scores the file finds the table's figures.
  questions = question_sets.load(spec)
  results = list(dpr_json.read_results(output))
  assert all(context.title for x in results for context in x.contexts)
  blocks = tiny_open_qa.tiny_realm.data_of(config).blocks
  names = {*blocks.names(range(blocks.num_blocks))}
  assert {context.id for x in results for context in x.contexts} <= names
  scores = scoring.score_retrieval(questions, results, (1, 5, 12))
  for k in (1, 5, 12):
    for rule in ('substring', 'dpr'):
      table = measures['exact'][f'top_{k}_{rule}']['mean']
      assert scores.mean(f'{rule}/top_{k}') == pytest.approx(table)
    own = scores.mean(f'file/top_{k}')
    assert own == scores.mean(f'substring/top_{k}')
  assert 0 < scores.mean('substring/top_1') < scores.mean('substring/top_12')

  # With a searcher that is no exact one, both stand side by side.
  built = []

  def build(path, vectors, fingerprint, settings):
    built.append((path, settings))
    return types.SimpleNamespace(searcher=_Reversed(vectors, settings.metric))

  monkeypatch.setattr(searchers, 'SCANN_MIN_ROWS', 1)
  monkeypatch.setattr(qa_benchmark.index_lib, 'build_index', build)
  found = run(config, tmp_path, match='dpr', output=output, depth=5)
  (measures,) = found['sets']
  ((path, settings),) = built
  assert path.parent == tmp_path / 'index' / 'scann'
  assert settings.searcher == 'scann' and settings.recall_floor == 0
  exact, other = measures['exact'], measures['ScaNN']
  assert 'top_5_substring' not in exact and found['without_scann'] == ''
  assert exact['top_5_dpr'] != other['top_5_dpr']
  assert exact['top_12_dpr'] == other['top_12_dpr']
  assert 'Without ScaNN' not in capsys.readouterr().out
  results = list(dpr_json.read_results(output))
  assert {len(x.contexts) for x in results} == {5}
  scores = scoring.score_retrieval(questions, results, (5,))
  assert scores.mean('dpr/top_5') == pytest.approx(exact['top_5_dpr']['mean'])


def test_a_retriever_without_vectors_stands_alone(data, tmp_path, run, capsys):
  config = _save(data, tmp_path, 'bm25_test')
  patterns = config.evaluate.questions[1]
  config.evaluate.questions = (patterns,)
  output = tmp_path / 'retrieved.json'
  found = run(config, tmp_path, match='dpr', output=output)
  (measures,) = found['sets']
  assert list(measures) == ['bm25']
  # Patterns have one rule, whatever is asked for.
  tops = [name for name in measures['bm25'] if name.startswith('top_')]
  assert tops and all(name.endswith('_regex') for name in tops)
  assert "retriever 'bm25' searches no vectors" in capsys.readouterr().out
  scores = scoring.score_retrieval(
    question_sets.load(patterns, allow_other_counts=True),
    dpr_json.read_results(output),
    (5,),
  )
  assert scores.mean('regex/top_5') == measures['bm25']['top_5_regex']['mean']


def test_released_figures_stand_beside_their_sets(capsys):
  share = {'mean': 0.5, 'low': 0.4, 'high': 0.6}
  row = {'questions': 2, 'exact_match': share, 'top_5_dpr': share}
  row |= {'questions_per_sec': 3.0, 'retrieval_ms': 1.0}
  qa_benchmark.print_table('webquestions:test', {'exact': row})
  printed = capsys.readouterr().out
  (line,) = [x for x in printed.splitlines() if 'exact_match' in x]
  assert '50.0 ±10.0' in line and '43.5' in line and '42.8' in line
  (line,) = [x for x in printed.splitlines() if 'top_5_dpr' in x]
  assert '69' not in line  # released by another rule
  qa_benchmark.print_table('curatedtrec:test', {'exact': row})
  assert 'released' not in capsys.readouterr().out


def test_bad_settings_are_refused(data, tmp_path, run):
  config = tiny_open_qa.get_config(data)
  with pytest.raises(ValueError, match='names 2'):
    run(config, tmp_path, output=tmp_path / 'out.json')
  config.evaluate.questions = ()
  with pytest.raises(ValueError, match='evaluate.questions is empty'):
    run(config, tmp_path)
