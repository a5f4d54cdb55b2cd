# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure the rates of the cost model on one core of this machine.

  taskset -c 0 python -m experiments.scale.measure --output=my_rates.json

Reads, tokenizes, cuts and embeds the packaged articles, counts documents that workers
read, builds and searches ScaNN, int8 codes and the exact searcher over synthetic
vectors, cuts these into shards, and writes and reads a file. All rates but those of the disk are of CPU seconds
of this process, so that other work on the machine changes them little. Compiled rates
of the file are kept.
"""

from collections.abc import Callable, Iterator
import functools
import json
import os
import pathlib
import statistics
import tempfile
import time

from absl import flags, logging
import numpy as np

from experiments.benchmarks import search as search_lib
from experiments.engine import command, reports
from experiments.scale import cost_model, rates as rates_lib
from retrieval import searchers, tokenization
from retrieval.nn import bert, embedders
from retrieval.searchers import codes, partition
from retrieval.store import executors
from retrieval.text import (
  batches,
  chunks as chunks_lib,
  corpus as corpus_lib,
  tokens as tokens_lib,
)

VOCAB_SIZE, CHUNK_LENGTH = 32_000, 64
_SHARD = 1024  # documents
_EMBEDDED, _FED = 1024, 16_384  # chunks
_QUERIES = 1024
# Rows, dimension, leaves and rows that train them, of each ScaNN that is fitted.
_SCANN = (
  (20_000, 384, 141, 20_000),
  (60_000, 384, 245, 60_000),
  (60_000, 384, 245, 10_000),
  (60_000, 384, 980, 10_000),
  (120_000, 384, 346, 120_000),
  (60_000, 128, 245, 60_000),
)
_SHARES = (40, 10, 4, 2)  # one of so many leaves is searched
_FILE_BYTES = 1 << 29
# Rows, dimension and shards of each partition that is fitted.
_PARTITIONS = (
  (40_000, 128, 256),
  (20_000, 768, 256),
  (20_000, 768, 1024),
  (40_000, 128, 1024),
)
_PLACED = (60_000, 64, 256)  # the same, of the rows that are placed
_COUNTED = 400_000  # documents of more than one range of lines

Found = Iterator[tuple[str, float, str, str]]  # name, value, unit, note


def cpu_sec(do: Callable[[], object], rounds: int = 3) -> float:
  """Return the median CPU seconds of a call, over all threads."""
  taken = []
  for _ in range(rounds):
    start = time.process_time()
    do()
    taken.append(time.process_time() - start)
  return statistics.median(taken)


def measure_text(folder: pathlib.Path) -> Found:
  """Reading, tokenizing, cutting and embedding."""
  vital = list(corpus_lib.open_corpus(kind='vital'))
  file = folder / 'vital.jsonl'
  with open(file, 'w', encoding='utf-8') as f:
    for x in vital:
      fields = {'id': x.id, 'title': x.title, 'text': x.text}
      f.write(json.dumps(fields, ensure_ascii=False) + '\n')
  corpus = corpus_lib.open_corpus(file)
  sec = cpu_sec(lambda: list(corpus))
  yield 'read', file.stat().st_size / sec, 'bytes/s of one process', ''

  texts = [tokens_lib.document_text(x, True) for x in vital]
  size = sum(len(x.encode()) for x in texts)
  tokenizer = tokenization.train_sentencepiece(
    iter(texts), folder / 'tokenizer' / 'model', VOCAB_SIZE
  )

  def tokenize():
    for low in range(0, len(vital), _SHARD):
      tokens_lib.encode_shard(vital[low : low + _SHARD], tokenizer, True)

  sec = cpu_sec(tokenize)
  tokens = tokens_lib.build_token_store(
    folder / 'tokens', corpus, folder / 'tokenizer'
  )
  count = len(tokens.tokens) - len(vital)
  note = f'{len(vital) / sec:,.0f} documents/s, {count / sec:,.0f} tokens/s'
  yield 'tokenize', size / sec, 'bytes/s of a core', note
  note = f'of a vocabulary of {VOCAB_SIZE:,}, packaged articles'
  yield 'bytes_per_token', size / count, 'bytes', note
  yield from _measure_chunks(folder, tokens, tokenizer)


def _measure_chunks(folder, tokens, tokenizer) -> Found:
  numbers = iter(range(99))

  def cut():
    path = folder / f'chunks-{next(numbers)}'
    return chunks_lib.build_chunk_store(path, tokens, chunk_length=CHUNK_LENGTH)

  chunks = cut()
  sec = cpu_sec(cut)
  yield 'chunk', chunks.num_chunks / sec, 'chunks/s of a core', ''

  embedder = embedders.Embedder.load('minilm', max_length=128)
  fed = np.arange(min(_FED, chunks.num_chunks))
  texts = chunks.texts(fed, tokenizer)
  size = sum(len(x.encode()) for x in texts)
  lengths = [len(x) for x in embedder.token_ids(texts)]
  sec = cpu_sec(lambda: embedder.token_ids(chunks.texts(fed, tokenizer)))
  note = f'text of chunks and its wordpieces, {len(fed) / sec:,.0f} chunks/s'
  yield 'feed', size / sec, 'bytes/s of a core', note
  note = 'of a chunk, without [CLS] and [SEP]'
  own = sum(lengths) - 2 * len(lengths)
  yield 'bytes_per_wordpiece', size / own, 'bytes', note

  some = fed[:: max(1, len(fed) // _EMBEDDED)][:_EMBEDDED]
  embed = lambda: embedder.embed_texts(chunks.texts(some, tokenizer))  # noqa: E731
  embed()  # compiles
  sec = cpu_sec(embed)
  flops = sum(
    lengths[i] * bert.flops_per_token(embedder.config, lengths[i]) for i in some
  )
  note = f'MiniLM, float32: {len(some) / sec:,.1f} chunks/s'
  yield 'embed', flops / sec, 'FLOP/s of a core', note


def measure_counting(folder: pathlib.Path) -> Found:
  """Counting of documents in one process, whose lines workers parse."""
  texts = [x.text[:500] for x in corpus_lib.open_corpus(kind='vital')]
  file = folder / 'lines.jsonl'
  with open(file, 'w', encoding='utf-8') as f:
    for i in range(_COUNTED):
      text = texts[i % len(texts)]
      fields = {'id': f'document {i}', 'title': f'{i}', 'text': text}
      f.write(json.dumps(fields, ensure_ascii=False) + '\n')
  corpus, reader = corpus_lib.open_corpus(file), executors.Processes(1)
  found = []
  count = lambda: found.extend(batches.read(corpus, _SHARD, reader))  # noqa: E731
  sec = cpu_sec(count, rounds=1)
  if not all(isinstance(x, batches.LineBatch) for x in found):
    raise ValueError(
      f'{file}: expected a file of more than one range of lines.'
    )
  note = f'{_COUNTED:,} documents, of one process; workers parse the lines'
  yield 'count', sec / _COUNTED, 'CPU s for a document', note


def measure_codes(folder: pathlib.Path) -> Found:
  """Search of int8 codes, which are decoded block by block."""
  rows, dimension = _SCANN[-1][:2]
  vectors, queries = search_lib.synthetic(rows, dimension, _QUERIES)
  codes.write(folder / 'codes', vectors, 'squared_l2')
  searcher = codes.Int8Searcher.load(folder / 'codes')
  yield 'int8', *_exact_rate(searcher, queries)


def measure_partition(folder: pathlib.Path) -> Found:
  """Finding the nearest shards of each row, and placing the rows of skewed data."""
  del folder
  cases = []
  for rows, dimension, shards in _PARTITIONS:
    vectors, _ = search_lib.synthetic(rows, dimension, 1)
    sec = cpu_sec(functools.partial(_nearest, vectors, vectors[:shards]))
    features = cost_model.partition_features(shards, dimension)
    cases.append((features, sec / rows))
  names = ('partition_product', 'partition_choice')
  units = ('a row, shard and dimension', 'a row and shard')
  yield from _fitted(names, units, cases)

  rows, dimension, shards = _PLACED
  vectors = _skewed(rows, dimension)
  centers = partition.centroids(vectors, shards)
  nearest, spilled = _nearest(vectors, centers), []

  def all_nearest(ids):
    spilled.append(len(ids))
    return partition.order(vectors[ids], centers)

  def place():
    spilled.clear()
    return list(partition.assign(nearest, rows, shards, all_nearest))

  sec = cpu_sec(place)
  note = (
    f'{rows:,} rows of clusters of very unequal sizes into {shards:,} shards, of one '
    f'process; {100 * sum(spilled) / rows:.2g} % needed more than '
    f'{partition.NUM_NEAREST} shards'
  )
  yield 'place', sec / rows, 'CPU s for a row', note


def _nearest(vectors: np.ndarray, centers: np.ndarray) -> list[np.ndarray]:
  """Return the nearest shards of the rows of each block."""
  step, few = partition.block_rows(centers), partition.NUM_NEAREST
  return [
    partition.order(vectors[low : low + step], centers, few=few).astype(
      np.uint16
    )
    for low in range(0, len(vectors), step)
  ]


def _skewed(rows: int, dimension: int) -> np.ndarray:
  """Return vectors of a thousand clusters, the n-th of a size of about 1 / n."""
  rng = np.random.default_rng(0)
  shares = 1 / np.arange(1, 1001)
  means = rng.standard_normal((1000, dimension))
  at = rng.choice(1000, rows, p=shares / shares.sum())
  noise = rng.standard_normal((rows, dimension))
  return (means[at] + 0.3 * noise).astype(np.float32)


def _exact_rate(searcher, queries) -> tuple[float, str, str]:
  search = lambda: searcher.search(queries, cost_model.FETCHED)  # noqa: E731
  search()  # compiles
  rows, dimension = searcher.num_vectors, searcher.dimension
  flops = 2.0 * len(queries) * rows * dimension
  note = f'{rows:,} x {dimension}, float32'
  return flops / cpu_sec(search), 'FLOP/s of a core', note


def measure_search(folder: pathlib.Path) -> Found:
  """Building and searching of ScaNN, and exact search."""
  del folder
  built, searched = [], []
  for rows, dimension, leaves, sample in _SCANN:
    vectors, queries = search_lib.synthetic(rows, dimension, _QUERIES)
    config = searchers.ScannConfig(
      num_leaves=leaves, training_sample_size=sample
    )
    start = time.process_time()
    searcher = searchers.ScannSearcher.build(vectors, 'squared_l2', config)
    sec = time.process_time() - start
    built.append(
      (cost_model.build_features(rows, dimension, leaves, sample), sec)
    )
    logging.info('ScaNN %s: %.1f s.', (rows, dimension, leaves, sample), sec)
    for share in _SHARES:
      some = max(1, leaves // share)
      sec = cpu_sec(
        lambda s=searcher, q=queries, some=some: s.search(
          q, cost_model.FETCHED, num_leaves_to_search=some
        )
      )
      features = cost_model.search_features(rows, dimension, leaves, some)
      searched.append((features, sec / _QUERIES))
  names = ('scann_hash', 'scann_assign', 'scann_train')
  units = ('a value', 'a vector, leaf and dimension', 'the same, of a sample')
  yield from _fitted(names, units, built)
  names = ('search_query', 'search_leaf', 'search_row')
  units = ('a query', 'a leaf and dimension', 'a row and block of its hash')
  yield from _fitted(names, units, searched)

  exact = searchers.ExactSearcher(vectors, 'squared_l2')
  yield 'exact', *_exact_rate(exact, queries)


def _fitted(names, units, cases) -> Found:
  features, seconds = zip(*cases, strict=True)
  found, error = rates_lib.fit(features, seconds)
  note = f'fit to {len(cases)} cases, largest error {100 * error:.0f} %'
  for name, value, unit in zip(names, found, units, strict=True):
    yield name, value, f'CPU s for {unit}', note


def measure_disk(folder: pathlib.Path) -> Found:
  """Writing and reading of a file, by the clock."""
  data = np.random.default_rng(0).bytes(_FILE_BYTES)
  start = time.perf_counter()
  with open(folder / 'data', 'wb') as f:
    f.write(data)
    f.flush()
    os.fsync(f.fileno())
    wrote = time.perf_counter() - start
    os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
  start = time.perf_counter()
  with open(folder / 'data', 'rb') as f:
    while f.read(1 << 20):
      pass
  read = time.perf_counter() - start
  note = f'{_FILE_BYTES >> 20} MiB, by the clock, dropped from the cache before it is read'
  yield 'disk_write', _FILE_BYTES / wrote, 'bytes/s', note
  yield 'disk_read', _FILE_BYTES / read, 'bytes/s', note


PARTS = {
  'text': measure_text,
  'counting': measure_counting,
  'search': measure_search,
  'codes': measure_codes,
  'partition': measure_partition,
  'disk': measure_disk,
}


def machine() -> str:
  """Describe this machine in words."""
  info = pathlib.Path('/proc/cpuinfo')
  lines = info.read_text().splitlines() if info.exists() else []
  names = (x.partition(': ')[2] for x in lines if x.startswith('model name'))
  return f'a core of {next(names, "a CPU")}'


def main(argv: list[str]) -> None:
  """Measure, print and write."""
  del argv
  options = flags.FLAGS
  output = pathlib.Path(options.output)
  found = rates_lib.load(output if output.exists() else rates_lib.FILE)
  where, lines = machine(), []
  for part in options.parts:
    with tempfile.TemporaryDirectory(dir=options.folder or None) as folder:
      for name, value, unit, note in PARTS[part](pathlib.Path(folder)):
        lines.append((name, f'{value:,.4g}', unit, note))
        logging.info('%s: %.4g %s %s', *lines[-1][:1], value, unit, note)
        found[name] = rates_lib.Rate(
          value=value,
          unit=unit,
          source='measured',
          machine=where,
          command='python -m experiments.scale.measure',
          note=note,
        )
    rates_lib.save(output, found)
  reports.print_table(('rate', 'value', 'unit', ''), lines, wrap=True)


if __name__ == '__main__':
  flags.DEFINE_string('output', str(rates_lib.FILE), 'File of rates.')
  flags.DEFINE_multi_enum('parts', list(PARTS), list(PARTS), 'What to measure.')
  flags.DEFINE_string('folder', '', "Folder of temporary files; '': /tmp.")
  command.main_of_script(main)
