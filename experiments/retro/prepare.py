# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Prepare the data of RETRO: tokenize, chunk, embed, index, find neighbors.

A killed command continues when run again. The checksums of published stores are
compared first. Run the stages index and neighbors once for each source. Name an
evaluation set from the first run on: an existing datastore stays, and may hold
documents that resemble those of the set.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import itertools

from absl import logging

from experiments.engine import progress, stages
from experiments.retro import config as config_lib
from retrieval import settings, tokenization
from retrieval.index import (
  neighbors as neighbors_lib,
  published_index as index_lib,
  vectors as vectors_lib,
)
from retrieval.search import names
from retrieval.store import executors
from retrieval.text import (
  chunks as chunks_lib,
  corpus as corpus_lib,
  near_duplicates,
  tokens as tokens_lib,
)
from retro_jax.data import datastore as datastore_lib, folder as retro_data

Config = config_lib.Config
Folder = retro_data.DataFolder
Rows = stages.Rows
_TOKENIZED = 20_000  # documents that a tokenizer is trained on


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
  """Another corpus to evaluate on, in addition to held-out documents."""

  name: str = ''  # '': no other corpus
  corpus: corpus_lib.CorpusConfig = corpus_lib.CorpusConfig(kind='jsonl')

  def __post_init__(self):
    """Check the name, which becomes part of folders' names."""
    is_word = self.name.replace('-', '_').isidentifier()
    if self.name and (self.name in tokens_lib.SPLITS or not is_word):
      raise settings.SettingsError(
        'name',
        self.name,
        f'letters, digits, - and _, and none of {tokens_lib.SPLITS}',
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepare(stages.Prepare):
  """Preparation of data."""

  evaluation: Evaluation = Evaluation()


def train_tokenizer(config: Config, data: Folder) -> Rows:
  """Train a SentencePiece model on the corpus, or copy the named tokenizer."""
  path, chosen = data.tokenizer_path, config.tokenizer
  if not data.has_tokenizer and chosen.path:
    tokenization.load_tokenizer(chosen.path).save(path)
  elif not data.has_tokenizer:
    logging.info(
      f'Training SentencePiece: {chosen.vocab_size} pieces, on the training '
      f'documents of {_TOKENIZED} documents.'
    )
    documents = itertools.islice(corpus_lib.Corpus(config.corpus), _TOKENIZED)
    held_out = config.valid_fraction, (), config.test_fraction
    texts = (
      tokens_lib.document_text(document, config.tokens.with_title)
      for document in documents
      if tokens_lib.in_split(
        tokens_lib.hash_ids([document.id]), 'train', *held_out
      )[0]
    )
    tokenization.train_sentencepiece(texts, path / 'model', chosen.vocab_size)
  size = data.tokenizer.vocab_size
  same, what = size == chosen.vocab_size, f'vocab_size={chosen.vocab_size:,}'
  if chosen.path:
    named = tokenization.load_tokenizer(chosen.path)
    same = data.tokenizer.fingerprint == named.fingerprint
    what = f'path={chosen.path}'
  if not same:
    raise ValueError(
      f'{path}: holds another tokenizer of {size:,} pieces already, but '
      f'config.tokenizer.{what}: remove it, or name another data_dir.'
    )
  if isinstance(data.tokenizer, tokenization.WordPieceTokenizer):
    logging.warning(
      'WordPiece loses letter case and spaces, but bits per byte are over the '
      "documents' bytes: compare them among WordPiece models alone."
    )
  return [('vocabulary', f'{size:,}')]


def tokens_of(
  config: Config, data: Folder, folder: str, corpus: corpus_lib.CorpusConfig
) -> tokens_lib.TokenStore:
  """Write the token store of a corpus."""
  with progress.bar(folder.replace('tokens', 'tokenize'), 'documents') as shown:
    return tokens_lib.build_token_store(
      data.path(folder),
      corpus_lib.Corpus(corpus),
      data.tokenizer_path,
      with_title=config.tokens.with_title,
      documents_per_shard=config.tokens.documents_per_shard,
      executor=stages.executor(config, data.root, config.tokens.num_processes),
      progress=shown,
    )


def tokenize(config: Config, data: Folder) -> Rows:
  """Write the token store."""
  tokens = tokens_of(config, data, 'tokens', config.corpus)
  skipped = tokens.store.meta['skipped']
  return [
    ('documents', f'{tokens.num_documents:,}'),
    ('tokens', f'{len(tokens.tokens):,}'),
    *((f'skipped, {reason}', f'{n:,}') for reason, n in skipped.items()),
  ]


def find_duplicates(
  config: Config, data: Folder, evaluation: Evaluation
) -> Rows:
  """List the training documents that resemble a held-out document."""
  if not config.deduplicate.threshold:
    return [('near-duplicates', 'not looked for')]
  other = tokenize_evaluation(config, data, evaluation)
  with progress.bar('near-duplicates', 'documents') as update:
    duplicates = near_duplicates.build_duplicate_store(
      data.path('duplicates'),
      data.tokens,
      data.tokenizer,
      valid_fraction=config.valid_fraction + config.test_fraction,
      settings=config.deduplicate,
      evaluation=[other] if other else [],
      executor=stages.executor(config, data.root),
      progress=update,
    )
  rows = [('documents left out', f'{sum(duplicates.rows("document")):,}')]
  return rows + (_compared(duplicates, other) if other else [])


def _compared(duplicates, other) -> Rows:
  """Whether training documents were compared with an evaluation set."""
  sets = near_duplicates.compared_with(duplicates) if duplicates else {}
  if other.store.fingerprint in sets.values():
    return [(f'near-duplicates of {other.path.name}', 'left out')]
  logging.warning(
    f'{other.path}: the training documents were prepared without a look at this '
    'evaluation set and may contain parts of it; to leave them out, prepare another '
    'data_dir with this config.prepare.evaluation.name from the first run on.'
  )
  return [(f'near-duplicates of {other.path.name}', 'not looked for')]


def chunk(config: Config, data: Folder) -> Rows:
  """Cut every split into chunks."""
  rows = []
  for split in ('train', *config.held_out):
    leaves_out = split == 'train' and config.deduplicate.threshold
    chunks = chunks_lib.build_chunk_store(
      data.path(f'chunks-{split}'),
      data.tokens,
      chunk_length=config.model.chunk_length,
      split=split,
      valid_fraction=config.valid_fraction,
      test_fraction=config.test_fraction,
      dropped=data.duplicates if leaves_out else None,
    )
    rows.append((f'chunks, {split}', f'{chunks.num_chunks:,}'))
  return rows


def embed(config: Config, data: Folder, splits: Sequence[str] = ()) -> Rows:
  """Embed every chunk with the frozen embedder."""
  if data.source not in names.WITH_VECTORS:
    return [('vectors', f'not read by the source {data.source}')]
  embedder = datastore_lib.load_embedder(config.embedder)
  for split in splits or data.corpus_splits:
    with progress.bar(f'embed {split}', 'chunks') as update:
      vectors_lib.build_vector_store(
        data.path(f'vectors-{split}'),
        data.chunks(split),
        embedder,
        executor=stages.executor(config, data.root),
        progress=update,
      )
  return [('dimension', str(embedder.dimension))]


def build_index(config: Config, data: Folder) -> Rows:
  """Builds, measures and publishes the indices that the source reads."""
  source, rows = data.source, []
  executor = stages.executor(config, data.root)
  indices = data.datastore.text_indices(config)
  kind = names.WORDS_OF.get(source)
  if kind or source == 'colbert':
    build = functools.partial(indices.words, kind) if kind else indices.tokens
    with progress.bar(source, 'chunks') as update:
      build(executor=executor, progress=update)
    rows.append((f'chunks in {kind or source}', f'{len(indices.passages):,}'))
  if source not in names.WITH_VECTORS:
    return rows or [('index', f'not read by the source {source}')]
  vectors, queries = data.datastore.vectors('train'), None
  if 'valid' in data.corpus_splits:
    queries = data.datastore.vectors('valid').array('vectors')
  index = index_lib.build_index(
    data.path('index'),
    vectors.array('vectors'),
    vectors.fingerprint,
    vectors_lib.index_config(config.index, vectors),
    queries=queries,
    executor=executor,
  )
  return rows + [(key, _text(value)) for key, value in index.report.items()]


def find_neighbors(
  config: Config, data: Folder, splits: Sequence[str] = ()
) -> Rows:
  """Find every chunk's neighbors."""
  retriever = executors.Lazy(
    datastore_lib.Datastore.retriever, data.datastore, config
  )
  rows = []
  for split in splits or data.corpus_splits:
    with progress.bar(f'neighbors {split}', 'chunks') as update:
      neighbors = neighbors_lib.build_neighbor_store(
        data.neighbors_path(split),
        data.chunks(split),
        data.chunks('train'),
        retriever,
        k=config.neighbors.stored,
        executor=stages.executor(config, data.root),
        progress=update,
      )
    rows.append((f'chunks with neighbors, {split}', f'{len(neighbors):,}'))
  return rows


def tokenize_evaluation(
  config: Config, data: Folder, evaluation: Evaluation
) -> tokens_lib.TokenStore | None:
  """Write the token store of the evaluation set; None without a name."""
  if not evaluation.name:
    return None
  folder = f'tokens-{evaluation.name}'
  return tokens_of(config, data, folder, evaluation.corpus)


def prepare_evaluation(
  config: Config, data: Folder, evaluation: Evaluation
) -> Rows:
  """Prepare an evaluation set of another corpus, with neighbors in the datastore."""
  tokens = tokenize_evaluation(config, data, evaluation)
  if tokens is None:
    return [('evaluation set', 'not named')]
  name = evaluation.name
  chunks = chunks_lib.build_chunk_store(
    data.path(f'chunks-{name}'), tokens, chunk_length=config.model.chunk_length
  )
  embed(config, data, [name])
  rows = [(f'chunks, {name}', f'{chunks.num_chunks:,}')]
  made = data.chunks('train').store.fields.get('dropped')
  if made or config.deduplicate.threshold:
    free = data.path('duplicates').exists() and (
      made == data.duplicates.fingerprint
    )
    rows += _compared(data.duplicates if free else None, tokens)
  return rows + find_neighbors(config, data, [name])


STAGES: dict[str, Callable[..., Rows]] = {
  'tokenizer': train_tokenizer,
  'tokens': tokenize,
  'duplicates': find_duplicates,
  'chunks': chunk,
  'vectors': embed,
  'index': build_index,
  'neighbors': find_neighbors,
  'evaluation': prepare_evaluation,
}
_WITH_EVALUATION = ('duplicates', 'evaluation')


def verify(data: Folder) -> Rows:
  """Compare the checksums of published stores; ValueError names a damaged file."""
  rows = stages.verify_stores(data.root)
  if data.path('index').exists():
    index_lib.open_index(data.path('index'), cluster='')
    rows.append(('hashes, index', 'right'))
  return rows


def _text(value) -> str:
  if isinstance(value, float):
    return f'{value:,.4g}'
  return f'{value:,}' if isinstance(value, int) else str(value)


def prepare(config: Config, workdir: str, chosen: Prepare) -> None:
  """Run the chosen stages and print their results."""
  data = Folder.of(config, workdir)
  work = []
  for name in stages.choose(chosen.stages, STAGES):
    more = [chosen.evaluation] if name in _WITH_EVALUATION else []
    work.append((name, functools.partial(STAGES[name], config, data, *more)))
  stages.run(work, data.root, functools.partial(verify, data))
