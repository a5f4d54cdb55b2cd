# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Data of models of blocks: tokenize, cut into blocks, tag salient spans.

Every unfinished stage runs; after a kill it continues at the first missing shard.
Shards are made in processes of this machine or on a Ray cluster, as config.tokens,
and config.cluster say.
"""

from collections.abc import Callable, Iterator
import dataclasses
import functools
import pathlib

from experiments.engine import progress, stages
from experiments.realm import config as config_lib
from realm_jax.data import folder as realm_data
from retrieval import tokenization
from retrieval.text import (
  blocks as blocks_lib,
  corpus as corpus_lib,
  salient as salient_lib,
  taggers,
  tokens as tokens_lib,
)

Config = config_lib.Run
Prepare = stages.Prepare
_ALL = Prepare()
Rows = stages.Rows
Corpora = Iterator[tuple[str, pathlib.Path, corpus_lib.CorpusConfig]]


def take_tokenizer(config: Config, data: realm_data.DataFolder) -> Rows:
  """Copy the WordPiece vocabulary of config.tokenizer.path."""
  path = realm_data.tokenizer_path(config.tokenizer.path)
  tokenizer = tokenization.WordPieceTokenizer(path)
  if not data.has_tokenizer:
    tokenizer.save(data.tokenizer_path)
  if data.tokenizer.fingerprint != tokenizer.fingerprint:
    raise ValueError(
      f'{data.tokenizer_path}: holds tokenizer {data.tokenizer.fingerprint}, '
      f'but config.tokenizer.path {config.tokenizer.path} is '
      f'{tokenizer.fingerprint}: remove it, or name another data_dir.'
    )
  return [('vocabulary', f'{tokenizer.vocab_size:,}')]


def _corpora(config: Config, data: realm_data.DataFolder) -> Corpora:
  """(kind, folder, section) of the corpus Z, and of X if it is another one."""
  yield '', data.root, config.corpus
  masked = getattr(config, 'masked_corpus', None)  # readers mask nothing
  if masked is not None and masked.kind:
    corpus = dataclasses.replace(config.corpus, **vars(masked), metadata='')
    yield 'masked ', data.root / 'masked', corpus


def tokenize(config: Config, data: realm_data.DataFolder) -> Rows:
  """Write the token stores, with texts."""
  rows = []
  for kind, root, corpus in _corpora(config, data):
    with progress.bar('tokenize', 'documents') as update:
      tokens = tokens_lib.build_token_store(
        root / 'tokens',
        corpus_lib.Corpus(corpus),
        data.tokenizer_path,
        with_title=False,
        with_text=True,
        documents_per_shard=config.tokens.documents_per_shard,
        executor=stages.executor(
          config, data.root, config.tokens.num_processes
        ),
        progress=update,
      )
    rows += [
      (f'{kind}documents', f'{tokens.num_documents:,}'),
      (f'{kind}tokens', f'{len(tokens.tokens):,}'),
    ]
    skipped = tokens.store.meta['skipped']
    rows += [(f'skipped, {why}', f'{n:,}') for why, n in skipped.items()]
  return rows


def _marks(
  corpus: corpus_lib.CorpusConfig, field: str
) -> taggers.AnnotatedTagger:
  """Sentences or salient spans that a corpus contains."""
  return taggers.AnnotatedTagger(
    (annotation.document_id, getattr(annotation, field).tolist())
    for annotation in corpus_lib.Corpus(corpus).annotations()
  )


def cut_blocks(config: Config, data: realm_data.DataFolder) -> Rows:
  """Pack sentences into blocks."""
  rows = []
  for kind, root, corpus in _corpora(config, data):
    marked = corpus.kind == 'realm_pretraining'
    annotations = _marks(corpus, 'sentences') if marked else None
    titles = blocks_lib.titles_to_drop(config.blocks.drop_titles, corpus)
    with progress.bar('blocks', 'documents') as update:
      blocks = blocks_lib.build_block_store(
        root / 'blocks',
        tokens_lib.TokenStore(root / 'tokens'),
        data.tokenizer_path,
        executor=stages.executor(
          config, data.root, config.tokens.num_processes
        ),
        progress=update,
        annotations=annotations,
        **dataclasses.asdict(config.blocks) | {'drop_titles': titles},
      )
    rows += [
      (f'{kind}blocks', f'{blocks.num_blocks:,}'),
      (f'{kind}sentences', f'{blocks.num_sentences:,}'),
      (f'{kind}documents dropped by title', f'{blocks.num_dropped:,}'),
    ]
  return rows


def tag_spans(config: Config, data: realm_data.DataFolder) -> Rows:
  """Find the salient spans of X."""
  data.check_masked(config)
  tagger = config.spans.tagger
  if tagger.kind == 'corpus':
    *_, (_, _, masked) = _corpora(config, data)
    tagger = _marks(masked, 'spans')
  with progress.bar('tag', 'documents') as update:
    spans = salient_lib.build_salient_store(
      data.path('spans'),
      data.masked_blocks,
      tagger,
      executor=stages.executor(config, data.root, config.tokens.num_processes),
      progress=update,
    )
  return [(name, f'{count:,}') for name, count in spans.counts().items()]


STAGES: dict[str, Callable[[Config, realm_data.DataFolder], Rows]] = {
  'tokenizer': take_tokenizer,
  'tokens': tokenize,
  'blocks': cut_blocks,
  'spans': tag_spans,
}


def prepare(
  config: Config, workdir: str, options: Prepare = _ALL, shown: bool = True
) -> None:
  """Run the chosen stages and print a table of their results, if `shown`."""
  data = realm_data.DataFolder.of(config, workdir)
  chosen = stages.choose(options.stages, STAGES)
  if options.stages == 'all' and getattr(config, 'masker', '') != 'salient':
    chosen.remove('spans')
  work = [(x, functools.partial(STAGES[x], config, data)) for x in chosen]
  verify = functools.partial(stages.verify_stores, data.root)
  stages.run(work, data.root, verify, shown)
