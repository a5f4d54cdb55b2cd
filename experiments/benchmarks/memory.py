# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure the peak memory of preparing a corpus, at two sizes.

  python -m experiments.benchmarks.memory --documents=5000

Each size runs in a process of its own: synthetic documents are written,
tokenized by two processes, chunked, given random vectors, searched exactly and
stored as neighbors. Then ScaNN is built over the vectors and finds the
neighbors, too. Prints the peak resident memory of each stage, of the process
and of its largest child so far, and the ratio of the two sizes. Memory that
grows with the corpus shows as a ratio near ten. A child's peak includes its
parent's memory at the start, so it is an upper bound.

Exact search streams blocks of 1,024 rows here and keeps nothing on its devices.
ScaNN holds every vector; its bytes per chunk are printed beside a prediction.
"""

import json
import pathlib
import resource
import subprocess
import sys
import tempfile

from absl import app, flags
import numpy as np

from experiments.benchmarks import turns

_DIMENSION = 64
_WORDS = 60
_BLOCK_ROWS = 1024
_TOKENIZING_PROCESSES = 2


def _write_corpus(path: pathlib.Path, num_documents: int) -> None:
  rng = np.random.default_rng(0)
  words = np.asarray([f'word{i}' for i in range(5000)])
  with open(path, 'w') as f:
    for i in range(num_documents):
      text = ' '.join(rng.choice(words, _WORDS))
      f.write(json.dumps({'id': str(i), 'title': f'T{i}', 'text': text}) + '\n')


class _RandomEmbedder:
  """Random vectors: the stores are measured, not the encoder."""

  dimension = _DIMENSION
  fingerprint = 'random'

  def embed_texts(self, texts, progress=None):
    rng = np.random.default_rng(len(texts))
    return rng.standard_normal((len(texts), _DIMENSION)).astype(np.float32)


def prepare(root: pathlib.Path, num_documents: int) -> dict[str, float]:
  """Prepare a synthetic corpus and return the peak memory of this process.

  Args:
    root: an empty folder.

  Returns:
    Counts, bytes written, 'peak_bytes' by stage, also of the largest child so
    far, and 'scann_bytes_per_chunk'.
  """
  from retrieval import searchers, tokenization
  from retrieval.index import (
    index as index_lib,
    neighbors as neighbors_lib,
    sources,
    vectors as vectors_lib,
  )
  from retrieval.text import (
    chunks as chunks_lib,
    corpus as corpus_lib,
    tokens as tokens_lib,
  )

  facts = {'documents': num_documents}

  def record(stage):
    facts[f'peak_bytes_{stage}'] = turns.peak_bytes()
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    facts[f'peak_bytes_{stage}_child'] = child
    turns.reset_peak()

  corpus_file = root / 'documents.jsonl'
  _write_corpus(corpus_file, num_documents)
  corpus = corpus_lib.Corpus(
    corpus_lib.CorpusConfig(kind='jsonl', path=str(corpus_file))
  )
  sample = (d.text for d, _ in zip(corpus, range(500), strict=False))
  tokenizer = tokenization.train_sentencepiece(
    sample, root / 'tokenizer' / 'model', 278
  )
  record('tokenizer')
  tokens = tokens_lib.build_token_store(
    root / 'tokens',
    corpus,
    root / 'tokenizer',
    documents_per_shard=256,
    num_processes=_TOKENIZING_PROCESSES,
  )
  record('tokens')
  chunks = chunks_lib.build_chunk_store(root / 'chunks', tokens)
  facts['chunks'] = chunks.num_chunks
  vectors = vectors_lib.build_vector_store(
    root / 'vectors', chunks, tokenizer, _RandomEmbedder()
  )
  record('vectors')

  def find_neighbors(searcher):
    name = searcher.name
    index = index_lib.Index(root, searcher, name, '', {})
    source = sources.Dense(chunks, index, lambda _: vectors, lambda: None)
    path = root / f'neighbors-{name}'
    neighbors_lib.build_neighbor_store(path, chunks, chunks, source, k=2)
    record(f'neighbors_{name}')

  array = vectors.array('vectors')
  find_neighbors(
    searchers.ExactSearcher(
      array, 'squared_l2', block_rows=_BLOCK_ROWS, resident_bytes=0
    )
  )
  if searchers.scann_available():
    searcher, scann_facts = _build_scann(array)
    record('index_scann')
    facts |= scann_facts
    find_neighbors(searcher)
  files = (f for f in root.rglob('*') if f.is_file())
  facts['bytes_on_disk'] = sum(f.stat().st_size for f in files)
  return facts


def _build_scann(array):
  """Build ScaNN; return it and its bytes a vector, measured and predicted."""
  from retrieval import searchers
  from retrieval.searchers import scann

  before = turns.status_bytes('VmRSS')
  searcher = searchers.ScannSearcher.build(array, 'squared_l2')
  now = turns.status_bytes('VmRSS')
  measured = turns.peak_bytes() - before, now - before
  expected = scann.expected_bytes(
    *array.shape, searchers.ScannConfig(**searcher.settings)
  )
  facts = {}
  for name, pair in (('measured', measured), ('expected', expected)):
    for when, value in zip(('building', 'searching'), pair, strict=True):
      key = f'scann_bytes_per_chunk_{when}_{name}'
      facts[key] = value / len(array)
  return searcher, facts


def _measure(num_documents: int) -> dict[str, float]:
  with tempfile.TemporaryDirectory() as root:
    command = [sys.executable, '-m', 'experiments.benchmarks.memory']
    command += [f'--documents={num_documents}', f'--inside={root}']
    printed = subprocess.check_output(command, text=True)
  return json.loads(printed.splitlines()[-1])


def main(argv: list[str]) -> None:
  """Run both sizes and print their peaks."""
  del argv
  if flags.FLAGS.inside:
    root = pathlib.Path(flags.FLAGS.inside)
    print(json.dumps(prepare(root, flags.FLAGS.documents)))
    return
  small = _measure(flags.FLAGS.documents)
  large = _measure(10 * flags.FLAGS.documents)
  from experiments.engine import reports  # imports JAX; not in what is measured

  rows = []
  for name in small:
    in_mib = 'bytes' in name and 'per_chunk' not in name
    scale, unit = (2**20, ' (MiB)') if in_mib else (1, '')
    ratio = f'{large[name] / max(small[name], 1):.2f}'
    cells = (f'{x[name] / scale:,.0f}' for x in (small, large))
    rows.append((name.replace('_', ' ') + unit, *cells, ratio))
  reports.print_table(('', 'small', 'large', 'ratio'), rows, 'Preparing')


if __name__ == '__main__':
  flags.DEFINE_integer('documents', 2000, 'Documents of the smaller corpus.')
  flags.DEFINE_string('inside', '', 'Measure in this process, in this folder.')
  try:  # without experiments.engine.command: JAX would be in what is measured
    app.run(main)
  except (ValueError, OSError) as error:
    sys.exit(f'error: {error}')
