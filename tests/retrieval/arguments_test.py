# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of texts as arguments: one string is never a list of letters."""

import importlib
import inspect
import pkgutil
from unittest import mock

import numpy as np
import pytest

import realm_jax
import retrieval
from retrieval import arguments
from retrieval.questions import dpr_json, qa_metrics, question_files
import retro_jax

# Parameters that are texts; others, such as labels and parts, are names.
TEXTS = {'answers', 'passages', 'patterns', 'prompts', 'queries', 'questions'}
TEXTS |= {'texts', 'titles'}
KINDS = (
  'Sequence[str',
  'Iterable[str',
  'Sequence[collections.abc.Sequence[str',
)
OTHERS = {
  'trec_files.relevance.questions',  # ids
  'samples.given_neighbors.titles',  # as many as passages
  # passed on to `colbert_rows.Rows` as they are
  'colbert.ColbertEncoder.queries.texts',
  'colbert.ColbertEncoder.passages.texts',
  # lists of the callers
  'examples.encode_rows.texts',
  'reader_rows.pattern_spans.answers',
}


class Seen(Exception):
  """An argument was looked at."""


def _modules():
  for package in (retrieval, realm_jax, retro_jax):
    for info in pkgutil.walk_packages(package.__path__, f'{package.__name__}.'):
      yield importlib.import_module(info.name)


def _functions():
  """Yield the name of each public function of the libraries, and itself."""
  for module in _modules():
    stem = module.__name__.rpartition('.')[2]
    for name, found in vars(module).items():
      if name[0] == '_' or getattr(found, '__module__', '') != module.__name__:
        continue
      if inspect.isfunction(found):
        yield f'{stem}.{name}', found
      elif inspect.isclass(found) and not getattr(found, '_is_protocol', False):
        for method, it in vars(found).items():
          it = getattr(it, '__func__', it)
          if method[0] != '_' or method in ('__init__', '__call__'):
            yield f'{stem}.{name}.{method}', it


def _of_texts():
  for name, function in _functions():
    if not inspect.isfunction(function):
      continue
    if getattr(function, '__isabstractmethod__', False):
      continue
    function = inspect.unwrap(function)
    for parameter in inspect.signature(function).parameters.values():
      kind = str(parameter.annotation)
      if parameter.name in TEXTS and any(x in kind for x in KINDS):
        if f'{name}.{parameter.name}' not in OTHERS:
          yield name, function, parameter.name


def _call(function, name):
  """Call a function with one text for an argument, and mocks for all others.

  Returns whether the text was handed as it is to another method of the object.
  """
  given = {}
  for parameter in inspect.signature(function).parameters.values():
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
      continue
    if parameter.name == name:
      given[parameter.name] = 'Paris'
    elif parameter.default is parameter.empty:
      given[parameter.name] = mock.MagicMock()
  for _ in function(**given) or ():  # of a generator
    break
  calls = getattr(given.get('self'), 'mock_calls', ())
  return any('.' not in x[0] and 'Paris' in x.args for x in calls)


@pytest.mark.usefixtures('unchecked')
def test_every_public_function_takes_one_text_as_one():
  found = list(_of_texts())
  assert len(found) > 25
  missed = []
  for name, function, argument in found:

    def look(values, unused_name):
      if isinstance(values, str) and values == 'Paris':
        raise Seen
      return values

    with (
      mock.patch.object(arguments, 'listed', look),
      mock.patch.object(arguments, 'lists', look),
    ):
      try:
        if _call(function, argument):
          continue
      except Seen:
        continue
      except Exception as error:  # noqa: BLE001 - before it looked
        missed.append(f'{name}({argument}): {error!r}')
      else:
        missed.append(f'{name}({argument})')
  assert not missed, '\n'.join(missed)


@pytest.mark.usefixtures('unchecked')
def test_one_answer_of_a_record_is_no_list_of_letters():
  for record in (
    question_files.Question('1', 'Where?', 'Paris'),
    dpr_json.Result(question='Where?', answers='Paris'),
  ):
    assert record.answers == ('Paris',)


@pytest.mark.parametrize(
  'values', [5, b'text', {'a': 1}, [1], ['a', None], ['a', b'b'], None]
)
def test_other_values_are_refused_by_name(values):
  with pytest.raises(ValueError, match='^answers'):
    arguments.listed(values, 'answers')


@pytest.mark.usefixtures('unchecked')
def test_a_prediction_and_lists_of_other_kinds_are_refused_by_name():
  for metric in qa_metrics.exact_match, qa_metrics.f1, qa_metrics.regex_match:
    with pytest.raises(ValueError, match='^prediction'):
      metric(5, ['a'])
  for values in (5, b'text', {'a': 1}, None):
    with pytest.raises(ValueError, match='^passages'):
      arguments.lists(values, 'passages')
  with pytest.raises(ValueError, match='^passages') as error:
    arguments.lists([['a', b'b' * 10**6]], 'passages')
  assert len(str(error.value)) < 500


def test_halves_of_surrogate_pairs_are_refused_by_name():
  with pytest.raises(ValueError, match=r'^texts\[1\]'):
    arguments.texts(['a', 'b\ud800'], 'texts')


def test_stored_texts_are_not_read():
  class Stored:
    def __iter__(self):
      raise AssertionError('read')

  stored = Stored()
  for look in arguments.listed, arguments.texts:
    assert look(stored, 'texts') is stored
  assert arguments.lists([stored], 'texts') == [stored]
  assert arguments.listed(np.array(['a', 'b']), 'texts').tolist() == ['a', 'b']
