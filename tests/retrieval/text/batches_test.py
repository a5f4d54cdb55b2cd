# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Workers read what one process reads: the same store, the same errors."""

import gzip
import json
import pickle

import cloudpickle
import hypothesis
from hypothesis import strategies as st
import pytest

from retrieval.store import executors
from retrieval.text import (
  batches as batches_lib,
  corpus as corpus_lib,
  line_ranges,
  seen_ids,
  tokens as tokens_lib,
)
from tests.retrieval.store import tiny_stores
from tests.retrieval.text import tiny_blocks

BYTE_ORDER_MARK = b'\xef\xbb\xbf'


class Backwards(executors.Remote):
  """Runs pickled tasks here; the results come last to first."""

  def __init__(self):
    super().__init__()
    self.jobs = {}  # name -> shards or ranges

  def run(self, name, set_up, calls):
    """See `executors.Executor`."""
    task = cloudpickle.loads(cloudpickle.dumps(set_up))()
    calls = [pickle.loads(pickle.dumps(call)) for call in calls]
    self.jobs[name] = [call[0] for call in calls]
    yield from reversed([task(*call) for call in calls])


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
  """Ranges shorter than some lines."""
  monkeypatch.setattr(line_ranges, 'RANGE_BYTES', 200)


@pytest.fixture(scope='module')
def tokenizer(tmp_path_factory):
  """The folder of a tokenizer."""
  return tiny_blocks.write_vocabulary(tmp_path_factory.mktemp('tokenizer'))


def _line(i, text='The mill stood in Rome.', **changes):
  record = {'id': f'd{i}', 'title': f'T\xeftle {i}', 'text': text}
  return json.dumps(record | changes, ensure_ascii=False).encode()


# What is bad here begins with a document and ends with one.
FILES = {
  'a.jsonl': b'\r\n'.join(
    [
      BYTE_ORDER_MARK + _line(0),
      b'',
      _line(1, 'R\xf3me \u65e5\u672c ' * 40),
      b' ',
    ]
  ),
  'b/empty.jsonl': b'',
  'b/blank.jsonl': b'\n\n\n',
  'b/long.jsonl': _line(2, 'crown ' * 400)
  + b'\n'
  + _line(3)
  + b'\n\n'
  + _line(4),
  'c.jsonl': b'\n'.join(_line(i, f'Paris {i}\u2028\x85') for i in range(5, 30)),
  'd.jsonl': b'\n' * 500
  + _line(30)
  + b'\n'
  + BYTE_ORDER_MARK.join([b'', b'\n']),
}
BAD = {
  'a': [_line(7, title='again'), b'{"id": 1', _line(31, text=' \t'), _line(32)],
  'e': [
    b'\xff',
    _line(0),
    b'[]',
    _line(33),
    b'{"id": "x"}',
    _line(33),
    _line(34),
  ],
}


def _write(root, with_bad):
  for name, data in FILES.items():
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(data)
  for name in BAD if with_bad else ():
    data = b'\n'.join(BAD[name])
    (root / f'b/{name}.jsonl').write_bytes(data + b'\n')
  if not with_bad:  # a mark is no JSON where no file begins
    (root / 'd.jsonl').write_bytes(b'\n' * 500 + _line(30))
  return root


def _build(out, path, tokenizer, executor, size=4, **fields):
  corpus = corpus_lib.open_corpus(path, kind='jsonl', **fields)
  tokens = tokens_lib.build_token_store(
    out, corpus, tokenizer, documents_per_shard=size, executor=executor,
    with_text=True,
  )  # fmt: skip
  return tiny_stores.file_hashes(out), tokens.store.meta


def _check(root, path, tokenizer, executor=None, **fields):
  """Both ways write the same store; return its meta and the executor's jobs."""
  executor = executor or Backwards()
  want = _build(root / 'one', path, tokenizer, executors.Inline(), **fields)
  found = _build(root / 'split', path, tokenizer, executor, **fields)
  assert found == want
  return found[1], executor


@pytest.mark.parametrize(
  ('fields', 'count', 'skipped'),
  [
    ({}, 31, 0),
    ({'with_bad': True, 'on_error': 'skip'}, 34, 9),
    ({'with_bad': True, 'on_error': 'skip', 'id_field': ''}, 37, 6),
    ({'with_bad': True, 'on_error': 'skip', 'max_documents': 4}, 4, 2),
    ({'max_documents': 8}, 8, 0),
    ({'id_field': '', 'title_field': ''}, 31, 0),
    ({'size': 1}, 31, 0),
    ({'size': 1000}, 31, 0),
  ],
)
def test_workers_read_what_one_process_reads(
  tmp_path, tokenizer, fields, count, skipped
):
  fields = dict(fields)
  path = _write(tmp_path / 'files', fields.pop('with_bad', False))
  meta, executor = _check(tmp_path, path, tokenizer, **fields)
  assert len(executor.jobs['lines']) > 20
  assert meta['num_documents'] == count
  assert sum(meta['skipped'].values()) == skipped


def test_processes_read_what_one_process_reads(tmp_path, tokenizer):
  path = _write(tmp_path / 'files', with_bad=True)
  _check(tmp_path, path, tokenizer, executors.Processes(2), on_error='skip')


FAULTS = [
  b'{"id": 1',
  b'[1]',
  b'\xff',
  b'{"id": "x", "title": "", "text": "\\ud800"}',
  b'{"id": [], "title": "", "text": ""}',
  _line('x', text=''),
  _line(9),
]


@pytest.mark.parametrize('fault', FAULTS)
@pytest.mark.parametrize('executor', [Backwards, executors.Inline])
def test_the_first_fault_is_told_by_file_and_line(
  tmp_path, tokenizer, fault, executor
):
  path = _write(tmp_path / 'files', with_bad=False)
  lines = [b'', *(_line(i) for i in range(50, 60)), fault, b'{', _line(50)]
  (path / 'x.jsonl').write_bytes(b'\n'.join(lines))
  (path / 'y.jsonl').write_bytes(b'{')
  with pytest.raises(ValueError, match=r'x.jsonl:12') as one:
    list(corpus_lib.open_corpus(path, kind='jsonl'))
  with pytest.raises(ValueError) as found:
    _build(tmp_path / 'split', path, tokenizer, executor())
  assert str(found.value) == str(one.value)


def test_a_corpus_without_a_document_is_refused(tmp_path, tokenizer):
  (tmp_path / 'a.jsonl').write_bytes(b'{}\n' * 200)
  with pytest.raises(ValueError, match='No document in .*missing field id'):
    _build(
      tmp_path / 'x', tmp_path / 'a.jsonl', tokenizer, Backwards(),
      on_error='skip',
    )  # fmt: skip


def test_a_resumed_build_makes_the_missing_shards_alone(tmp_path, tokenizer):
  path = _write(tmp_path / 'files', with_bad=False)
  want, _ = _build(tmp_path / 'one', path, tokenizer, executors.Inline())
  out = tmp_path / 'split'

  class Killed(Backwards):
    def run(self, name, set_up, calls):
      results = super().run(name, set_up, calls)
      if name == 'lines':
        yield from results
        return
      task = set_up()
      for call in list(calls)[:3]:
        yield task(*call)
      raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    _build(out, path, tokenizer, Killed())
  executor = Backwards()
  found, _ = _build(out, path, tokenizer, executor)
  assert executor.jobs['split'] == [3, 4, 5, 6, 7]
  assert found == want


@pytest.mark.parametrize('change', ['packed', 'small', 'inline', 'text'])
def test_other_corpora_are_read_by_one_process(tmp_path, monkeypatch, change):
  path, kind, executor = _write(tmp_path / 'a', False), 'jsonl', Backwards()
  if change == 'packed':
    (path / 'z.jsonl.gz').write_bytes(gzip.compress(_line(50)))
  elif change == 'small':
    monkeypatch.setattr(line_ranges, 'RANGE_BYTES', 1 << 20)
    path = path / 'c.jsonl'
  elif change == 'inline':
    executor = executors.Inline()
  else:
    kind, path = 'text', tmp_path / 'text'
    path.mkdir()
    (path / 'a.txt').write_text('a' * 1000)
  corpus = corpus_lib.open_corpus(path, kind=kind)
  found = list(batches_lib.read(corpus, 4, executor))
  assert found == _cut(list(corpus), 4)
  assert not getattr(executor, 'jobs', {})


def _cut(documents, size):
  return [documents[i : i + size] for i in range(0, len(documents), size)]


@pytest.mark.parametrize(
  'change',
  [
    lambda data: data[:300],
    lambda data: b' ' * len(data),
    lambda data: data.replace(b'text', b'test'),
  ],
)
def test_a_file_that_changes_meanwhile_is_refused(tmp_path, change):
  file = tmp_path / 'c.jsonl'
  file.write_bytes(FILES['c.jsonl'])
  batches = batches_lib.read(corpus_lib.open_corpus(file), 4, Backwards())
  assert [document.id for document in batches[1]] == ['d9', 'd10', 'd11', 'd12']
  file.write_bytes(change(file.read_bytes()))
  with pytest.raises(ValueError, match='from line 5 on where there were 4'):
    list(batches[1])


def test_the_first_of_equal_ids_stays_the_first():
  keys = [seen_ids.key_of(name) for name in 'aabbc']
  rows = [*zip(keys, ['x:9', 'x:10', 'x:11', 'x:100', 'x:101'], strict=True)]
  with seen_ids.SeenIds() as seen:
    assert seen.add_all(rows[2:]) == {'x:100': 'x:11'}
    assert seen.add_all(rows[:2]) == {'x:10': 'x:9'}
    assert seen.add_all([(keys[0], 'y:1')]) == {'y:1': 'x:9'}


LINES = st.one_of(
  st.sampled_from([b'', b' ', b'{', b'\xff', BYTE_ORDER_MARK]),
  st.builds(_line, st.integers(0, 9), st.text(max_size=12)),
  st.builds(_line, st.integers(10, 99), st.just('x' * 150)),
)
ENDS = st.sampled_from([b'\n', b'\r\n', b'\n\n'])
DATA = st.lists(st.tuples(LINES, ENDS).map(b''.join), max_size=12).map(b''.join)


@hypothesis.settings(
  max_examples=60,
  deadline=None,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(
  st.lists(st.tuples(DATA, st.integers(0, 2)), min_size=1, max_size=3),
  st.integers(1, 5),
  st.sampled_from(['raise', 'skip']),
  st.sampled_from(['id', '']),
  st.integers(0, 6),
)
def test_any_files(tmp_path_factory, files, size, on_error, id_field, most):
  root = tmp_path_factory.mktemp('any')
  for i, (data, cut) in enumerate(files):
    (root / f'{i}.jsonl').write_bytes(data[: len(data) - cut])
  corpus = corpus_lib.open_corpus(
    root, kind='jsonl', on_error=on_error, id_field=id_field, max_documents=most
  )

  def read(executor):
    try:
      found = [list(x) for x in batches_lib.read(corpus, size, executor)]
    except ValueError as error:
      found = str(error)
    return found, dict(corpus.skipped)

  found, want = read(Backwards()), read(executors.Inline())
  assert found == want
