# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The data folder of REALM and its stores.

tokenizer/   WordPiece
tokens/      every document of Z, with its text
blocks/      spans of sentences, the units of retrieval
spans/       salient spans of X, the corpus that is masked
masked/      tokens/ and blocks/ of X, if X is another corpus than Z
"""

from collections.abc import Mapping
import dataclasses
import functools
import os
import pathlib
from typing import Any

from realm_jax.data import examples
from retrieval import tokenization
from retrieval.nn import bert_checkpoint
from retrieval.store import checkpoints
from retrieval.text import (
  blocks as blocks_lib,
  corpus as corpus_lib,
  data_folder,
  salient as salient_lib,
  tokens as tokens_lib,
)

MINILM = 'minilm'


def checkpoint_path(path: str) -> pathlib.Path:
  """Folder of a BERT checkpoint; 'minilm' is the packaged all-MiniLM-L6-v2."""
  return bert_checkpoint.find_minilm() if path == MINILM else pathlib.Path(path)


def tokenizer_path(path: str) -> pathlib.Path:
  """A WordPiece vocabulary; 'minilm' is the one that comes with this package."""
  packaged = pathlib.Path(__file__).parents[1] / 'packaged'
  return packaged if path == MINILM else pathlib.Path(path)


@dataclasses.dataclass(frozen=True)
class DataFolder(data_folder.DataFolder):
  """The data folder of a REALM or ICT experiment."""

  MADE_BY = 'experiments.prepare'

  @functools.cached_property
  def tokenizer(self) -> tokenization.WordPieceTokenizer:
    """The tokenizer of both corpora."""
    tokenizer = super().tokenizer
    if not isinstance(tokenizer, tokenization.WordPieceTokenizer):
      raise ValueError(
        f'{self.tokenizer_path}: REALM needs a WordPiece vocabulary with [MASK].'
      )
    return tokenizer

  @functools.cached_property
  def blocks(self) -> blocks_lib.BlockStore:
    """Blocks of Z."""
    return self._blocks(self.root)

  @functools.cached_property
  def masked_blocks(self) -> blocks_lib.BlockStore:
    """Blocks of X, which is Z if there is no other corpus."""
    other = self.root / 'masked'
    return self._blocks(other) if other.exists() else self.blocks

  def check_masked(self, config: Any) -> None:
    """Raise ValueError unless X is here exactly if the config names it."""
    path, kind = self.root / 'masked', config.masked_corpus.kind
    if path.exists() != bool(kind):
      raise ValueError(
        f'{path}: {"exists" if path.exists() else "does not exist"}, but '
        f'config.masked_corpus.kind is {kind!r}; run {self.MADE_BY} for another '
        'data_dir, or name the corpora that were prepared.'
      )

  def _blocks(self, root: pathlib.Path) -> blocks_lib.BlockStore:
    tokens = tokens_lib.TokenStore(root / 'tokens')
    tokens.check_tokenizer(self.tokenizer)
    return blocks_lib.BlockStore(root / 'blocks', tokens)

  @functools.cached_property
  def spans(self) -> salient_lib.SalientStore:
    """Salient spans of X."""
    return salient_lib.SalientStore(self.path('spans'), self.masked_blocks)

  def layout(self, config: Any) -> examples.Layout:
    """Lengths of rows; ValueError for blocks packed to another length."""
    if self.blocks.max_length != config.blocks.max_length:
      raise ValueError(
        f'{self.blocks.path}: blocks of at most {self.blocks.max_length} '
        f'wordpieces, but config.blocks.max_length is '
        f'{config.blocks.max_length}.'
      )
    tokenizer = self.tokenizer
    return examples.Layout(
      **vars(config.layout),
      block_length=config.blocks.max_length,
      cls_id=tokenizer.cls_id,
      sep_id=tokenizer.sep_id,
      mask_id=tokenizer.mask_id,
      pad_id=tokenizer.pad_id,
    )

  def fingerprints(self) -> dict[str, str]:
    """Fingerprints of the stores of a training run, by name."""
    return {
      'tokenizer': self.tokenizer.fingerprint,
      'blocks': self.blocks.fingerprint,
    }


@dataclasses.dataclass(frozen=True)
class JoinedFolder(DataFolder):
  """The data folders of several runs as one, whose root is the first's."""

  parts: tuple[DataFolder, ...] = ()
  names: tuple[str, ...] = ()  # of the folders, in ids of documents

  @functools.cached_property
  def blocks(self) -> blocks_lib.BlockStore:
    """Blocks of all; ValueError for those of another tokenizer."""
    from retrieval.text import joined  # training reads one folder

    for part in self.parts:
      part.blocks.tokens.check_tokenizer(self.tokenizer)
    return joined.JoinedBlocks([x.blocks for x in self.parts], self.names)


def build_blocks(
  root: pathlib.Path,
  corpus: corpus_lib.Corpus,
  tokenizer_path: str | os.PathLike,
  *,
  tokens: Mapping[str, Any],
  blocks: Mapping[str, Any],
) -> blocks_lib.BlockStore:
  """Write the token store and the blocks of a corpus under `root`.

  `tokens` and `blocks` are arguments of the builders of both stores.
  """
  store = tokens_lib.build_token_store(
    root / 'tokens',
    corpus,
    tokenizer_path,
    with_title=False,
    with_text=True,
    **tokens,
  )
  return blocks_lib.build_block_store(
    root / 'blocks', store, tokenizer_path, **blocks
  )


def open_saved(
  saved: checkpoints.Saved, workdir: str | os.PathLike, data_dir: str = ''
) -> DataFolder:
  """Open the data folder of a checkpoint; data_dir = '' is that of the run.

  Raises:
    ValueError: if the data have another tokenizer.
  """
  data = DataFolder.of(saved.config, workdir)
  data = DataFolder(pathlib.Path(data_dir)) if data_dir else data
  made_with = saved.fingerprints.get('tokenizer')
  if made_with and made_with != data.tokenizer.fingerprint:
    raise ValueError(
      f'{workdir}: trained with tokenizer {made_with}, but the data in '
      f'{data.root} are of tokenizer {data.tokenizer.fingerprint}; expected '
      'data_dir to name data of the same tokenizer.'
    )
  return data
