# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Masked sentences of the corpus X (Guu et al. 2020, section 3.4 and Table 2)."""

import dataclasses
from typing import Literal

import numpy as np

from realm_jax.data import examples
from retrieval import settings
from retrieval.store import manifests
from retrieval.text import (
  blocks as blocks_lib,
  salient as salient_lib,
  tokens as tokens_lib,
)

Kind = Literal['salient', 'uniform', 'span']
MASK_RATE = 0.15  # Devlin et al. 2018, section 3.1
# Joshi et al. 2020 (SpanBERT), section 3.1: lengths are geometric, at most 10.
_SPAN_P = 0.2
_MAX_SPAN = 10
_LEAST_TOKENS = 4  # fewest tokens of a sentence for the random maskers


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceConfig:
  """Choice of the masked tokens."""

  masker: Kind = 'salient'
  # by the hash of the document's id
  split: Literal['train', 'valid', 'all'] = 'train'
  valid_fraction: settings.Rate = 0.0

  __post_init__ = settings.check


class MaskedSentences:
  """Blocks of X with one masked sentence each, a random-access source.

  A pass takes every usable block once and chooses one of its spans (or
  sentences) at random, as released. `skipped`: reason -> number unusable.
  """

  def __init__(
    self,
    blocks: blocks_lib.BlockStore,
    layout: examples.Layout,
    config: SourceConfig,
    spans: salient_lib.SalientStore | None = None,
  ):
    """List usable `spans`, those of masker 'salient', or sentences.

    Raises:
      ValueError: if nothing can be masked.
    """
    self._blocks, self._layout, self._config = blocks, layout, config
    self._spans_fingerprint = spans.fingerprint if spans else ''
    if spans:
      sentences = np.asarray(spans.sentence[:])
      places = np.stack([spans.token_start[:], spans.token_limit[:]], axis=1)
      places -= blocks.sentence_tokens[sentences][:, :1]  # in the sentence
      fault = 'beyond the query length'
      usable = places[:, 1] <= layout.query_tokens
    else:
      sentences, places = np.arange(blocks.num_sentences), None
      lengths = np.diff(blocks.sentence_tokens[sentences], axis=1)[:, 0]
      fault = 'short sentence'
      usable = lengths >= _LEAST_TOKENS
    self.skipped = {fault: int((~usable).sum())}
    hashes = blocks.tokens.id_hash[:]
    chosen = tokens_lib.in_split(hashes, config.split, config.valid_fraction)
    rows = chosen[blocks.documents(blocks.sentence_blocks(sentences))] & usable
    self._sentences = sentences = sentences[rows]
    self._spans = None if places is None else places[rows]
    unit_blocks = blocks.sentence_blocks(sentences)
    self._unit_blocks, self._first = np.unique(unit_blocks, return_index=True)
    self._end = np.append(self._first[1:], len(sentences))
    if not len(self._unit_blocks):
      raise ValueError(
        f'{blocks.path}: nothing to mask for {config} (skipped: '
        f'{self.skipped}).'
      )

  def __len__(self) -> int:
    return len(self._unit_blocks)

  def __getitem__(self, i: int) -> int:
    return int(i)

  def __repr__(self) -> str:
    return f'MaskedSentences({self.fingerprint})'

  @property
  def fingerprint(self) -> str:
    """Hash of the data and of the choice of masked tokens."""
    return manifests.fingerprint(
      [
        self._blocks.fingerprint,
        self._spans_fingerprint,
        dataclasses.asdict(self._config),
        dataclasses.asdict(self._layout),
      ]
    )

  def example(self, i: int, rng: np.random.Generator) -> examples.Batch:
    """Mask a sentence of the i-th usable block, chosen by `rng`.

    Adds origin [] int32, the block, and origin_hash [] uint64 to the arrays of
    `examples.mask_sentence`.
    """
    low, high = int(self._first[i]), int(self._end[i])
    unit = low + int(rng.integers(high - low))
    sentence = int(self._sentences[unit])
    tokens, counts = self._blocks.gather_sentences(
      np.asarray([sentence]), self._layout.query_tokens
    )
    tokens = tokens[0, : int(counts[0])]
    if self._spans is not None:
      positions = np.arange(*self._spans[unit])
    elif self._config.masker == 'uniform':
      positions = mask_uniformly(len(tokens), rng)
    else:
      continues = self._continues(sentence, len(tokens))
      positions = mask_spans(len(tokens), rng, continues)
    origin = int(self._unit_blocks[i])
    return examples.mask_sentence(self._layout, tokens, positions) | {
      'origin': np.int32(origin),
      'origin_hash': np.uint64(self._blocks.hashes(np.asarray([origin]))[0]),
    }

  def _continues(self, sentence: int, length: int) -> np.ndarray:
    """Whether each token begins where the preceding token ends."""
    blocks, ids = self._blocks, np.asarray([sentence])
    start = int(blocks.sentence_tokens[ids][0, 0])
    document = int(blocks.documents(blocks.sentence_blocks(ids))[0])
    spans = blocks.tokens.token_bytes(document)[start : start + length]
    return np.append(False, spans[1:, 0] == spans[:-1, 1])


def budget(length: int, rate: float = MASK_RATE) -> int:
  """Number of tokens that the random maskers mask, at least one."""
  return max(1, round(rate * length))


def mask_uniformly(
  length: int,
  rng: np.random.Generator,
  rate: float = MASK_RATE,
  weights: np.ndarray | None = None,
) -> np.ndarray:
  """Choose single tokens (BERT) by `weights` [length]: sorted indices."""
  return np.sort(
    rng.choice(length, budget(length, rate), replace=False, p=weights)
  )


def mask_spans(
  length: int, rng: np.random.Generator, continues: np.ndarray
) -> np.ndarray:
  """Choose contiguous spans of whole words (SpanBERT): sorted indices.

  The last word may exceed the budget. `continues` [length] bool marks tokens
  that continue the preceding word.
  """
  first = ~continues
  first[0] = True
  starts = np.flatnonzero(first)
  ends = np.append(starts[1:], length)
  chosen = np.zeros(length, bool)
  count = budget(length)
  while (left := count - int(chosen.sum())) > 0:
    words = min(int(rng.geometric(_SPAN_P)), _MAX_SPAN, left)
    word = int(rng.integers(len(starts)))
    last = min(word + words, len(starts)) - 1
    chosen[starts[word] : ends[last]] = True
  return np.flatnonzero(chosen)
