# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Peak memory of preparing a corpus, at one size and at ten times that size.

  python -m experiments.benchmark_memory --documents=5000

Each size runs in a process of its own: synthetic documents are written,
tokenized, chunked, given random vectors, searched exactly and stored as
neighbors. Prints the peak resident memory of each and their ratio; memory that
grows with the corpus would show as a ratio near ten.
"""

import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import types

from absl import app
from absl import flags
import numpy as np
import rich.console
import rich.table

_DIMENSION = 64
_WORDS = 60


def _write_corpus(path: pathlib.Path, num_documents: int) -> None:
  rng = np.random.default_rng(0)
  words = np.asarray([f'word{i}' for i in range(5000)])
  with open(path, 'w') as f:
    for i in range(num_documents):
      text = ' '.join(rng.choice(words, _WORDS))
      f.write(json.dumps({'id': str(i), 'title': f'T{i}', 'text': text}) + '\n')


class _RandomEmbedder:
  """Random vectors: what is measured is the stores, not the encoder."""

  dimension = _DIMENSION
  fingerprint = 'random'

  def embed_texts(self, texts, progress=None):
    rng = np.random.default_rng(len(texts))
    return rng.standard_normal((len(texts), _DIMENSION)).astype(np.float32)


def prepare(root: pathlib.Path, num_documents: int) -> dict[str, float]:
  """Prepares a synthetic corpus and returns the peak memory of this process.

  Args:
    root: an empty folder.
    num_documents: documents of about 60 words.

  Returns:
    Counts, bytes written and 'peak_bytes' by stage.
  """
  from retrieval import chunks as chunks_lib
  from retrieval import corpus as corpus_lib
  from retrieval import neighbors as neighbors_lib
  from retrieval import searchers
  from retrieval import tokenizers
  from retrieval import tokens as tokens_lib
  from retrieval import vectors as vectors_lib

  peaks = {}

  def record(stage):
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peaks[f'peak_bytes_{stage}'] = kib * 1024

  corpus_file = root / 'documents.jsonl'
  _write_corpus(corpus_file, num_documents)
  corpus = corpus_lib.Corpus(
    corpus_lib.CorpusConfig(kind='jsonl', path=str(corpus_file))
  )
  sample = (d.text for d, _ in zip(corpus, range(500), strict=False))
  tokenizer = tokenizers.train_sentencepiece(
    sample, root / 'tokenizer' / 'model', 278
  )
  record('tokenizer')
  tokens = tokens_lib.build_token_store(
    root / 'tokens', corpus, root / 'tokenizer', documents_per_shard=256
  )
  record('tokens')
  chunks = chunks_lib.build_chunk_store(root / 'chunks', tokens)
  vectors = vectors_lib.build_vector_store(
    root / 'vectors', chunks, tokenizer, _RandomEmbedder()
  )
  record('vectors')
  searcher = searchers.ExactSearcher(vectors.array('vectors'), 'squared_l2')
  index = types.SimpleNamespace(searcher=searcher, fingerprint='exact')
  neighbors_lib.build_neighbor_store(
    root / 'neighbors', chunks, vectors, chunks, vectors, index, k=2
  )
  record('neighbors')
  written = sum(f.stat().st_size for f in root.rglob('*') if f.is_file())
  return {
    'documents': num_documents,
    'chunks': chunks.num_chunks,
    'bytes_on_disk': written,
    **peaks,
  }


def _measure(num_documents: int) -> dict[str, float]:
  with tempfile.TemporaryDirectory() as root:
    result = subprocess.run(
      [
        sys.executable,
        '-m',
        'experiments.benchmark_memory',
        f'--documents={num_documents}',
        f'--inside={root}',
      ],
      check=True,
      capture_output=True,
      text=True,
    )
  return json.loads(result.stdout.splitlines()[-1])


def main(argv: list[str]) -> None:
  """Runs both sizes and prints their peaks."""
  del argv
  if flags.FLAGS.inside:
    root = pathlib.Path(flags.FLAGS.inside)
    print(json.dumps(prepare(root, flags.FLAGS.documents)))
    return
  small = _measure(flags.FLAGS.documents)
  large = _measure(10 * flags.FLAGS.documents)
  table = rich.table.Table('', 'small', 'large', 'ratio', title='Preparing')
  for name in small:
    scale = 2**20 if 'bytes' in name else 1
    unit = ' (MiB)' if 'bytes' in name else ''
    table.add_row(
      name.replace('_', ' ') + unit,
      f'{small[name] / scale:,.0f}',
      f'{large[name] / scale:,.0f}',
      f'{large[name] / small[name]:.2f}',
    )
  rich.console.Console().print(table)


if __name__ == '__main__':
  flags.DEFINE_integer('documents', 2000, 'Documents of the smaller corpus.')
  flags.DEFINE_string('inside', '', 'Measure in this process, in this folder.')
  app.run(main)
