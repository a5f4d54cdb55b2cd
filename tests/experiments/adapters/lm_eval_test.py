# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""lm-evaluation-harness runs our models; its figures are those of the library.

The harness itself is needed by the slow test: pip install -e '.[lm-eval]'.
"""

import json
import math
import os
import subprocess
import sys
import types

import numpy as np
import pytest

from experiments.adapters import lm_eval
from experiments.retro import evaluate as retro_evaluate
from retro_jax.trained import language_model, packaged
from tests.experiments.retro import tiny_config, tiny_retro

_WORDS = 'river queen gardens walked seven lanterns under a crooked bridge'
_ENDS = 'the bridge', 'seven lanterns'
_TASKS = {
  'choices': """
output_type: multiple_choice
doc_to_text: "Question: {{line}}\\nAnswer:"
doc_to_target: label
doc_to_choice: ["the bridge", "seven lanterns"]
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
""",
  'last_word': """
output_type: loglikelihood
doc_to_text: "{{line.split(' ')[:-1]|join(' ')}}"
doc_to_target: "{{' '+line.split(' ')[-1]}}"
metric_list:
  - {metric: perplexity, aggregation: perplexity, higher_is_better: false}
  - {metric: acc, aggregation: mean, higher_is_better: true}
""",
  'texts': """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - {metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}
""",
  'written': """
output_type: generate_until
doc_to_text: "{{line}}"
doc_to_target: "{{written}}"
generation_kwargs: {until: [" b"], max_gen_toks: 9}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
""",
}


def _requests(*rows):
  return [types.SimpleNamespace(args=row) for row in rows]


def test_requests_are_answered_by_the_run(root, monkeypatch):
  runs = tiny_retro.load_from(root, monkeypatch)
  pairs = [('river queen ' * 3, 'moon'), ('', 'moon x')]
  for neighbors, k in (('on', None), ('off', 0)):
    one = lm_eval.Retro.create_from_arg_obj(
      {'workdir': 'retro', 'neighbors': neighbors}, {'batch_size': '2'}
    )
    likelihoods = runs['retro'].loglikelihood(
      *zip(*pairs, strict=True), num_neighbors=k
    )
    expected = [(-x.nats, x.is_greedy) for x in likelihoods]
    assert one.loglikelihood(_requests(*pairs)) == expected
    rolling = one.loglikelihood_rolling(_requests(('',), ('moon x',), ('',)))
    assert rolling == pytest.approx([0.0, expected[1][0], 0.0])
    assert one.loglikelihood_rolling(_requests(('',))) == [0.0]
    for name, value in (('min_p', 0.1), ('num_beams', 4), ('temprature', 0.0)):
      with pytest.raises(ValueError, match=f'gen_kwargs.{name}'):
        one.generate_until(_requests(('moon', {'until': ['x'], name: value})))


@pytest.mark.parametrize(
  'name, given',
  [
    ('neighbors', {'neighbors': 'of', 'workdir': 'retro'}),
    ('neighbors', {'neighbors': 'shuffled', 'workdir': 'baseline'}),
    ("--model_args: .*'neighbor'", {'neighbor': 'on', 'workdir': 'retro'}),
  ],
)
def test_arguments_that_do_not_fit_are_refused(root, monkeypatch, name, given):
  tiny_retro.load_from(root, monkeypatch)
  with pytest.raises(ValueError, match=f'^{name}'):
    lm_eval.Retro.create_from_arg_obj(given)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """The packaged RETRO over documents whose sentences come again."""
  rng = np.random.default_rng(0)
  sentences = [
    f'The {a} of {b} {c} the {d}.'
    for a, b, c, d in rng.choice(_WORDS.split(), (200, 4)).tolist()
  ]
  documents = [
    {'title': f'Page {i}', 'text': ' '.join(rng.choice(sentences, 30 + i % 90))}
    for i in range(300)
  ]
  folder = tmp_path_factory.mktemp('run')
  return packaged.take(folder, documents=documents)


def _harness(run, folder, neighbors, rows):
  """Figures of the harness's own command."""
  for name, task in _TASKS.items():
    data = folder / f'{name}.jsonl'
    data.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    head = f'task: {name}\ndataset_path: json\ntest_split: test\n'
    files = f'dataset_kwargs: {{data_files: {{test: {data}}}}}'
    (folder / f'{name}.yaml').write_text(head + files + task)
  arguments = f"""
    --model retro --model_args workdir={run},neighbors={neighbors} --batch_size 4
    --tasks {','.join(_TASKS)} --include_path {folder} --output_path {folder}/x.json
  """
  result = subprocess.run(
    [sys.executable, '-m', 'experiments.adapters.lm_eval', *arguments.split()],
    env=os.environ | {'HF_HOME': str(folder / 'hf'), 'HF_HUB_OFFLINE': '1'},
    capture_output=True,
    text=True,
    timeout=600,
  )
  assert result.returncode == 0, result.stderr[-2000:]
  assert '|choices' in result.stdout
  (path,) = folder.glob('x_*.json')
  found = json.loads(path.read_text())['results'].items()
  return {k: {name.split(',')[0]: x for name, x in v.items()} for k, v in found}


@pytest.mark.slow
@pytest.mark.parametrize('neighbors', ['on', 'off', 'shuffled'])
def test_the_harness_finds_the_figures_of_the_library(run, tmp_path, neighbors):
  pytest.importorskip('lm_eval')
  source = 'random' if neighbors == 'shuffled' else ''
  k = 0 if neighbors == 'off' else 2
  model = language_model.load(run, source=source)
  store = model.data.chunks('valid')
  numbers = np.unique(store.documents(np.arange(len(store)))).tolist()
  texts = [
    model.data.tokenizer.decode(store.tokens.document(i)) for i in numbers
  ]
  words = [text[:400].rsplit(' ', 2)[:2] for text in texts]
  lines = [' '.join(pair) for pair in words]
  samples = model.sample(
    lines,
    neighbors=None if k else [],
    temperature=0.0,
    top_p=1.0,
    max_new_tokens=9,
    stop_strings=(' b',),
  )
  rows = [
    {'text': text, 'line': line, 'label': i % 2, 'written': x.completion}
    for i, (text, line, x) in enumerate(zip(texts, lines, samples, strict=True))
  ]
  found = _harness(run, tmp_path, neighbors, rows)
  scores = model.score(texts)
  bits = [scores.bits_per_byte if k else scores.bits_per_byte_off]
  if neighbors != 'shuffled':  # evaluation reads stored neighbors
    evaluate = tiny_config.section(
      'evaluate', split='valid', num_neighbors=(2,), shuffled=False
    )
    whole = retro_evaluate.evaluate_trained(model, tiny_config.of(), evaluate)
    name = 'RETRO, k=2' if k else 'RETRO off'
    bits.append(whole[name].bits_per_byte)
  for value in bits:
    assert found['texts']['bits_per_byte'] == pytest.approx(value, rel=1e-5)

  def measure(contexts, ends):
    found = model.loglikelihood(contexts, ends, num_neighbors=k)
    return np.array([(x.nats, x.is_greedy) for x in found])

  last = measure([a for a, _ in words], [f' {b}' for _, b in words])
  nats, greedy = last.mean(axis=0)
  assert found['last_word']['perplexity'] == pytest.approx(math.exp(nats))
  assert found['last_word']['acc'] == greedy
  asked = [f'Question: {line}\nAnswer:' for line in lines]
  costs = [measure(asked, [f' {x}'] * len(lines))[:, 0] for x in _ENDS]
  right = np.argmin(costs, axis=0) == np.arange(len(lines)) % 2
  assert found['choices']['acc'] == pytest.approx(right.mean())
  assert found['written']['exact_match'] == 1
