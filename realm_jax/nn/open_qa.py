# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Open-domain question answering: a retriever, and a reader that marks spans.

Guu et al. 2020, section 4.2, with the model of ORQA (Lee et al. 2019, section
4): blocks are retrieved by their inner product with the question, the reader
scores every short span of the best blocks, and both scores add up.

Dimension key: B questions, C retriever beam, R reader beam, L reader row, W
widest span, n rows, S span hidden, D model width.
"""

from collections.abc import Mapping
import dataclasses
from typing import Annotated

from flax import linen as nn
import jax
from jax import numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from realm_jax.nn import (
  batches,
  config as config_lib,
  initialize,
  realm as model_lib,
)
from retrieval import settings
from retrieval.nn import bert, partitioning

# Added to the score of a span with a token outside of the block, as released.
OUTSIDE = -1e4
ROWS = ('ids', 'mask', 'types', 'block_mask')  # inputs of `SpanReader`


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanConfig:
  """The head of the reader; the defaults are ORQA's."""

  # S, of a span's representation
  span_hidden_size: bert.Width = 256
  # W, tokens
  max_span_width: Annotated[int, settings.Range(1, 1024)] = 10
  # Added to the variance by the span's LayerNorm: 1e-3 as released.
  span_norm_eps: bert.Epsilon = 1e-3
  # One more candidate, of score 0: no block that is read holds an answer. Spans are
  # then scored without the retriever, which only chooses what is read.
  null_answer: bool = False
  # Added to the scores of a row's spans: this times the share of the question's word
  # pieces that title and block hold. A block about something else then counts less.
  coverage_weight: settings.NotNegative = 0.0

  __post_init__ = settings.check

  @property
  def retriever_weight(self) -> float:
    """Factor on the retriever's score in that of block and span together."""
    return 0.0 if self.null_answer else 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenQaConfig(SpanConfig):
  """A retriever and the head of the reader."""

  # The embedders as of REALM; `encoder` is the reader's BERT.
  realm: config_lib.RealmConfig


def _score_width(
  reader: 'SpanReader',
  carry: tuple[()],
  starts: jax.Array,
  ends: jax.Array,
  width: jax.Array,
) -> tuple[tuple[()], jax.Array]:
  """[n, L, S] and [n, L + W - 1, S] to [n, L]: spans that end `width` later."""
  ends = jax.lax.dynamic_slice_in_dim(ends, width, starts.shape[1], axis=1)
  x = reader.span_norm(jax.nn.relu(starts + ends))
  return carry, reader.span_score(x)[..., 0]


def coverage(
  ids: Int[Array, 'n l'], mask: Bool[Array, 'n l'], type_ids: Int[Array, 'n l']
) -> Float[Array, ' n']:
  """Return the share of a question's distinct tokens that title and block hold.

  Args:
    ids, mask, type_ids: rows of `data.reader_rows`.

  Returns:
    [n] float32 from 0 to 1; 0 for a question without tokens.
  """
  at = jnp.arange(ids.shape[1])
  first = mask & (type_ids == 0)  # [CLS] q [SEP]
  question = first & (at > 0) & (at < first.sum(-1, keepdims=True) - 1)
  same = ids[:, :, None] == ids[:, None]
  held = (same & (mask & (type_ids == 1))[:, None]).any(-1)
  question &= ~(jnp.tril(same, -1) & question[:, None]).any(-1)
  return (question & held).sum(-1) / jnp.maximum(question.sum(-1), 1)


class SpanReader(nn.Module):
  """BERT over question and block, with a score of every short span."""

  config: OpenQaConfig

  def setup(self):
    """BERT, a projection of both ends of a span, a norm and a score."""
    config = self.config
    encoder = config.realm.encoder_bert
    # In float32 as are the scores: next to BERT it costs next to nothing.
    exact = dataclasses.replace(encoder, dtype=jnp.float32)
    constant = nn.initializers.constant
    self.bert = bert.Bert(encoder)
    self.span_projection = bert.dense(
      exact, 2 * config.span_hidden_size, ('embed', None)
    )
    self.span_norm = nn.LayerNorm(
      epsilon=config.span_norm_eps,
      dtype=jnp.float32,
      param_dtype=encoder.param_dtype,
      use_fast_variance=False,
      scale_init=partitioning.partitioned(constant(1.0), None),
      bias_init=partitioning.partitioned(constant(0.0), None),
    )
    self.span_score = bert.dense(exact, 1, (None, None))

  def __call__(
    self,
    ids: Int[Array, 'n l'],
    mask: Bool[Array, 'n l'],
    type_ids: Int[Array, 'n l'],
    block_mask: Bool[Array, 'n l'],
    *,
    train: bool = False,
  ) -> Float[Array, 'n w l']:
    """Score the spans of rows, as `data.reader_rows` makes them.

    Args:
      block_mask: True on the block, where answers are.

    Returns:
      [n, W, L] float32. [w, s] is the span of the w + 1 tokens s to s + w; its
      score is lowered by 1e4 if the span begins or ends outside of the block or
      the row. `coverage_weight` times `coverage` is added to all of a row.
    """
    hidden = self.bert(ids, mask, type_ids, train=train).hidden
    both = self.span_projection(hidden.astype(jnp.float32))
    starts, ends = jnp.split(both, 2, axis=-1)
    length, widths = ids.shape[1], jnp.arange(self.config.max_span_width)
    # Positions beyond the row are outside of the block.
    beyond = (0, len(widths) - 1)
    ends = jnp.pad(ends, ((0, 0), beyond, (0, 0)))
    last = jnp.pad(block_mask, ((0, 0), beyond))
    # Widths run one after the other and again in the backward pass, so that no
    # array [n, W, L, S] needs memory.
    score = nn.scan(
      nn.remat(_score_width, prevent_cse=False),
      variable_broadcast='params',
      split_rngs={'params': False},
      in_axes=(nn.broadcast, nn.broadcast, 0),
      out_axes=1,
    )
    _, scores = score(self, (), starts, ends, widths)
    at = jnp.arange(length) + widths[:, None]
    inside = block_mask[:, None] & last[:, at]
    scores += jnp.where(inside, 0.0, OUTSIDE)
    if weight := self.config.coverage_weight:
      scores += weight * coverage(ids, mask, type_ids)[:, None, None]
    return scores


class OpenQa(model_lib.DualEncoder):
  """Retriever, which scores vectors of blocks, and reader."""

  config: OpenQaConfig

  def setup(self):
    """The embedders and the reader."""
    super().setup()
    self.reader = SpanReader(self.config)

  @property
  def dual_encoder_config(self) -> config_lib.RealmConfig:
    """Configuration of the embedders."""
    return self.config.realm

  def beam_scores(
    self, batch: Mapping[str, jax.Array], *, train: bool = False
  ) -> Float[Array, 'B C']:
    """Retriever logits [B, C] float32 of a beam, by a new vector of the question.

    Args:
      batch: question_ids, question_mask [B, Q]; beam_vectors [B, C, d], which
        are constants; beam_valid [B, C]; reader_valid [B, R]. Optional
        block_ids, block_mask and block_types [B, R, T]: the first R blocks are
        embedded anew, too, with a gradient. Optional beam_scores [B, C] of a
        search by words are the logits, in place of vectors.
    """
    if 'beam_scores' in batch:
      return batch['beam_scores']
    queries = self.embed_queries(
      batch['question_ids'], batch['question_mask'], train=train
    )
    # Vectors of missing blocks become 0, so that no gradient is NaN.
    vectors = jnp.where(
      batch['beam_valid'][..., None],
      batch['beam_vectors'].astype(jnp.float32),
      0.0,
    )
    scores = self.score(queries, jax.lax.stop_gradient(vectors))
    if 'block_ids' not in batch:
      return scores
    rows = batches.fold_rows(batch, 'block')
    fresh = self.embed_blocks(*rows, train=train)
    fresh = fresh.reshape(*batch['block_ids'].shape[:2], -1)
    read = fresh.shape[1]
    fresh = jnp.where(
      batch['reader_valid'], self.score(queries, fresh), scores[:, :read]
    )
    return jnp.concatenate([fresh, scores[:, read:]], axis=1)

  def read(
    self, *rows: jax.Array, train: bool = False
  ) -> Float[Array, 'n w l']:
    """Score the spans of rows; arguments as for `SpanReader`."""
    return self.reader(*rows, train=train)

  def read_beam(
    self, batch: Mapping[str, jax.Array], *, train: bool = False
  ) -> Float[Array, 'B R W L']:
    """Score the spans of a batch's reader rows."""
    rows = batches.fold_rows(batch, 'reader', ROWS)
    scores = self.read(*rows, train=train)
    return scores.reshape(*batch['reader_ids'].shape[:2], *scores.shape[1:])


def random_params(key: jax.Array, config: OpenQaConfig) -> dict:
  """Random parameters of an OpenQa, boxed with their logical axes."""
  ids = jnp.zeros((1, 2), jnp.int32)
  rows = ids, ids == 0, ids

  def run(model):
    model.embed_queries(*rows[:2])
    model.embed_blocks(*rows)
    model.read(*rows, ids == 0)

  return nn.init(run, OpenQa(config))(key)['params']


def init_params(
  key: jax.Array,
  config: OpenQaConfig,
  *,
  embedder: initialize.Source = None,
  encoder: initialize.Source = None,
) -> dict:
  """Initial parameters of an OpenQa, boxed with their logical axes.

  The paper starts from a pre-trained REALM: it is `embedder` and `encoder`.

  Args:
    embedder: folder of the BERT from which the embedders start, or parameters
      of a Realm, of ICT or of an OpenQa with trained embedders; random without.
    encoder: folder of the BERT from which the reader starts, or parameters of a
      Realm or of masked language modelling with a trained encoder. Parameters
      of an OpenQa give its reader, and its embedders where it has some and
      `embedder` gives no trained ones.

  Raises:
    ValueError: with everything in a source that does not fit.
  """
  if isinstance(encoder, Mapping) and 'reader' in encoder:
    if not isinstance(embedder, Mapping) and len(encoder) > 1:
      embedder = encoder
    start, whole = {'reader': nn.unbox(encoder['reader'])}, ['reader']
  elif encoder:
    trained = initialize.load_encoder(encoder, config.realm.encoder_bert)
    start = {'reader': {'bert': trained['bert']}}
    whole = ['reader/bert'] if isinstance(encoder, Mapping) else []
  else:
    start, whole = {}, []
  params = jax.jit(random_params, static_argnums=1)(key, config)
  embedders, trained = initialize.start_embedders(embedder, config.realm)
  return initialize.replace(params, start | embedders, whole=whole + trained)
