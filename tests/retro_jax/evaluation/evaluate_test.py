# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every token once, with its context; known models give known figures."""

import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import evaluate
from retro_jax.nn import losses, retro as model
from tests.retro_jax.data import tiny_data
from tests.retro_jax.nn import tiny

M, R = tiny_data.M, tiny_data.R


@pytest.fixture(scope='module')
def config():
  return tiny.config(vocab_size=300, chunk_length=M, neighbor_length=R)


@pytest.fixture(scope='module')
def score(config):
  return jax.jit(
    functools.partial(
      losses.batch_nll,
      model.Retro(config),
      jax.tree.map(jnp.asarray, tiny.params(config)),
    )
  )


def _uniform(row):
  """A model that finds all 300 tokens equally likely."""
  return row['loss_mask'] * math.log(300)


def _documents(counts):
  counts = np.asarray(counts)
  return windows_lib.Documents(
    np.arange(len(counts)), np.cumsum(counts) - counts, counts
  )


@pytest.mark.parametrize('length', [1, 2, 3, 8])
def test_windows_score_each_chunk_once_with_context(length):
  documents = _documents([1, 2, 7, 8, 9, 30, 31])
  for stride in range(1, length + 1):
    windows = windows_lib.make_windows(documents, length, stride)
    seen = []
    for d, first, count, skip in zip(
      windows.document,
      windows.first,
      windows.count,
      windows.skip,
      strict=True,
    ):
      own = documents.first[d]
      assert own <= first
      assert first + count <= own + documents.count[d]
      assert skip < count <= length
      for chunk in range(first + skip, first + count):
        # Context: all the document, or what the stride leaves of a window.
        assert chunk - first >= min(chunk - own, length - stride)
        seen.append(chunk)
    assert seen == list(range(documents.count.sum()))


def test_rows_are_packed_full():
  rng = np.random.default_rng(0)
  counts = rng.integers(1, 9, 5000).tolist()
  rows = list(windows_lib.pack_windows(counts, 8))
  assert sorted(w for row in rows for w in row) == list(range(5000))
  assert max(sum(counts[w] for w in row) for row in rows) <= 8
  assert len(rows) < 1.02 * sum(counts) / 8


def test_a_uniform_model_costs_log2_of_the_vocabulary(root):
  reader = tiny_data.reader(root, 'valid')
  got = evaluate.evaluate(_uniform, reader, sequence_chunks=3, batch_size=2)
  chunks = reader.stores.chunks
  index = np.unique(chunks.documents(np.arange(chunks.num_chunks)))
  lengths = np.array([len(chunks.tokens.document(int(i))) for i in index])
  np.testing.assert_array_equal(got.tokens, lengths - 1)  # all but BOS
  np.testing.assert_allclose(got.nats, (lengths - 1) * math.log(300))
  texts = [_text(root, int(i)) for i in index]
  assert got.num_bytes.tolist() == [len(t.encode()) for t in texts]
  assert got.words.tolist() == [len(t.split()) for t in texts]
  summary = got.summary()
  tokens, num_bytes = sum(lengths - 1), sum(len(t.encode()) for t in texts)
  assert summary['bits_per_byte'] == pytest.approx(
    math.log2(300) * tokens / num_bytes
  )
  assert summary['token_perplexity'] == pytest.approx(300)
  assert summary['word_perplexity'] == pytest.approx(
    300 ** (tokens / sum(len(t.split()) for t in texts))
  )
  assert (summary['documents'], summary['tokens']) == (len(index), tokens)


def _text(root, i):
  lines = (root / 'documents.jsonl').read_text().splitlines()
  document = json.loads(lines[i])
  return f'{document["title"]}\n\n{document["text"]}'


def test_sliding_windows_score_with_the_context_they_have(root, score):
  """Against one window at a time, unpacked."""
  reader = tiny_data.reader(root, 'valid')
  length, stride = 4, 1
  got = evaluate.evaluate(
    score,
    reader,
    sequence_chunks=length,
    stride_chunks=stride,
    batch_size=5,
  )
  documents = windows_lib.find_documents(reader.stores.chunks)
  want = np.zeros(len(documents.index))
  for d, (first, count) in enumerate(
    zip(documents.first, documents.count, strict=True)
  ):
    for chunk in range(count):  # the last chunk of its window, if it can be
      start = max(0, chunk - length + 1)
      ids = np.full(length, -1)
      ids[: chunk + 1 - start] = first + np.arange(start, chunk + 1)
      row = {name: x[None] for name, x in reader.read(ids).items()}
      want[d] += np.asarray(score(row))[0, (chunk - start) * M :][:M].sum()
  np.testing.assert_allclose(got.nats, want, rtol=2e-5)


def test_retrieval_matters_and_off_equals_none(root, score):
  reader = tiny_data.reader(root, 'valid', k=2)
  run = functools.partial(evaluate.evaluate, score, sequence_chunks=4)
  results = {r: run(reader, retrieval=r) for r in evaluate.RETRIEVALS}
  fewer = run(tiny_data.reader(root, 'valid', k=1))
  figures = [x.bits_per_byte for x in (*results.values(), fewer)]
  assert len({round(x, 6) for x in figures}) == len(figures)
  other = run(reader, retrieval='shuffled', seed=1)
  assert (other.nats != results['shuffled'].nats).any()
  with pytest.raises(ValueError, match='num_neighbors'):
    run(tiny_data.reader(root, 'valid', k=0), retrieval='on')


def test_shuffled_chunks_are_of_other_documents():
  documents = _documents([1, 5, 3, 1, 7])
  total = int(documents.count.sum())
  ids = np.arange(total)
  owner = np.repeat(np.arange(5), documents.count)
  drawn = set()
  for seed in range(100):
    chosen = windows_lib.shuffle_chunks(
      ids, documents.first[owner], documents.count[owner], total, seed
    )
    assert (owner[chosen] != owner).all()
    drawn.add(int(chosen[2]))
  assert drawn == set(ids[owner != owner[2]].tolist())


def test_processes_give_the_rows_of_one_batch(root):
  """Two readers of half a batch see what one reader of it all sees."""
  reader = tiny_data.reader(root, 'valid')
  seen = {}

  def record(name):
    def fake(row):
      seen.setdefault(name, []).append(row['tokens'])
      return np.zeros((4, 3 * M))

    return fake

  run = functools.partial(
    evaluate.evaluate, reader=reader, sequence_chunks=3, batch_size=4
  )
  run(record('all'))
  for i in range(2):
    run(record(i), process_index=i, process_count=2)
  for all_rows, *parts in zip(seen['all'], seen[0], seen[1], strict=True):
    np.testing.assert_array_equal(all_rows, np.concatenate(parts))
