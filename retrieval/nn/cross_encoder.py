# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A cross-encoder: BERT reads query and passage together and scores the pair.

Nogueira and Cho 2019 (arXiv 1901.04085), section 3, with one score in place of
two classes.

  pair   [CLS] query [SEP] passage [SEP]   types 0 to the first [SEP], then 1

Dimension key: B queries, P passages of each, b rows, l row length.
"""

from collections.abc import Sequence
import dataclasses
import functools
import os
from typing import Annotated, Any

from flax import linen as nn
import jax
from jax import numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from retrieval import arguments, settings, tokenization
from retrieval.nn import batch_encoder, bert, dropout, means, trained_encoders
from retrieval.store import manifests

TASK = 'cross_encoder'  # config.task of the run that trained the model

_SPECIALS = 3  # [CLS] and two [SEP]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairLayout:
  """Lengths of a pair, in word pieces; longer texts are cut."""

  # of the query, without the specials
  query_length: Annotated[int, settings.Range(1, 2**16)] = 32
  # of the whole row
  row_length: Annotated[int, settings.Range(_SPECIALS, 2**17)] = 128

  def __post_init__(self):
    settings.check(self)
    if self.query_length + _SPECIALS >= self.row_length:
      raise ValueError(
        f'query_length={self.query_length}, row_length={self.row_length}: '
        f'expected room for a passage beside the query and {_SPECIALS} specials.'
      )


class CrossEncoder(nn.Module):
  """BERT with a linear score of [CLS]; `config.pooler` must be False."""

  config: bert.BertConfig

  def setup(self):
    """Create BERT and the score."""
    exact = dataclasses.replace(self.config, dtype=jnp.float32)
    self.bert = bert.Bert(self.config)
    self.relevance = bert.dense(exact, 1, ('embed', None))
    self.dropout = dropout.Dropout(self.config.dropout_rate)

  def __call__(
    self,
    ids: Int[Array, 'b l'],
    mask: Bool[Array, 'b l'],
    type_ids: Int[Array, 'b l'],
    *,
    train: bool = False,
  ) -> Float[Array, ' b']:
    """Return the float32 score of each pair; arguments as of `Bert`."""
    # The last layer is computed at [CLS] alone.
    first = jnp.zeros((ids.shape[0], 1), jnp.int32)
    hidden = self.bert(ids, mask, type_ids, first, train=train).hidden[:, 0]
    hidden = self.dropout(hidden.astype(jnp.float32), train)
    return self.relevance(hidden)[:, 0]


def pair_rows(
  tokenizer: tokenization.WordPieceTokenizer,
  layout: PairLayout,
  queries: Sequence[str],
  passages: Sequence[Sequence[str]],
) -> list[list[int]]:
  """Return the ids of all pairs, one query after the other.

  Each text is tokenized once, however often it occurs.
  """
  queries = arguments.texts(queries, 'queries')
  passages = arguments.lists(passages, 'passages')
  heads = tokenizer.encode_ids_batch(queries, layout.query_length + 2)
  texts = list(dict.fromkeys(text for row in passages for text in row))
  tails = dict(
    zip(
      texts,
      tokenizer.encode_ids_batch(texts, layout.row_length),
      strict=True,
    )
  )
  rows = []
  for head, texts in zip(heads, passages, strict=True):
    room = layout.row_length - len(head) - 1
    rows += [[*head, *tails[x][1:-1][:room], tokenizer.sep_id] for x in texts]
  return rows


def localized_contrastive(
  scores: Float[Array, 'B P'], valid: Bool[Array, 'B P']
) -> tuple[means.Mean, dict[str, means.Mean]]:
  """Cross-entropy of a query's first passage among its passages.

  The localized contrastive estimation of Gao et al. 2021 (arXiv 2101.08751),
  section 3: the negatives come from the top of the list that is re-ranked.

  Returns:
    The mean in nats over the queries that have a positive, the first, and a
    negative; over the same queries accuracy, whether the positive is ranked
    first, and mrr, the reciprocal of its rank.
  """
  # A finite value keeps the gradient of a row without passages finite.
  masked = jnp.where(valid, scores, jnp.finfo(jnp.float32).min)
  counted = valid[:, 0] & valid[:, 1:].any(axis=1)
  nll = -jax.nn.log_softmax(masked, axis=1)[:, 0]
  # Among equal scores the positive ranks last.
  above = (valid[:, 1:] & (scores[:, 1:] >= scores[:, :1])).sum(axis=1)
  return means.of(nll, counted), {
    'accuracy': means.of(above == 0, counted),
    'mrr': means.of(1.0 / (1.0 + above), counted),
  }


def _encode(model, sep_id, params, ids, lengths):
  mask, types = bert.segments(ids, lengths, sep_id)
  return model.apply({'params': params}, ids, mask, types)[:, None]


class CrossReranker:
  """A cross-encoder on all local devices; see `rerank.TextScorer`."""

  unit = 'logit of relevance'

  def __init__(
    self,
    config: bert.BertConfig,
    params: Any,
    tokenizer: tokenization.WordPieceTokenizer,
    layout: PairLayout,
  ):
    """Place `CrossEncoder` parameters on all local devices."""
    self._tokenizer, self._layout = tokenizer, layout
    sizes = {k: str(v) for k, v in dataclasses.asdict(config).items()}
    self.fingerprint = manifests.fingerprint(
      [
        sizes,
        dataclasses.asdict(layout),
        tokenizer.fingerprint,
        trained_encoders.hash_params(params),
      ]
    )
    model = CrossEncoder(config)
    self._encoder = batch_encoder.BatchEncoder(
      functools.partial(_encode, model, tokenizer.sep_id),
      params,
      dimension=1,
      max_length=layout.row_length,
    )

  def score(
    self, queries: Sequence[str], passages: Sequence[Sequence[str]]
  ) -> list[np.ndarray]:
    """See `rerank.TextScorer`."""
    passages = arguments.lists(passages, 'passages')
    rows = pair_rows(self._tokenizer, self._layout, queries, passages)
    scores = self._encoder(rows, len(rows))[:, 0]
    ends = np.cumsum([len(texts) for texts in passages])
    return np.split(scores, ends)[:-1]


def load(path: str | os.PathLike, step: str = '') -> CrossReranker:
  """Load a run of experiments.train."""
  params, config, tokenizer = trained_encoders.load(path, TASK, step)
  model = {**config.model, 'pooler': False}
  return CrossReranker(
    settings.build(bert.BertConfig, model, 'config.model'),
    params,
    tokenizer,
    settings.build(PairLayout, {**config.layout}, 'config.layout'),
  )
