# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM: neural retriever and knowledge-augmented encoder.

Guu et al. 2020, section 3.2. The retriever scores blocks against a query; the
encoder reads the query joined with one block and predicts the masked tokens.

Dimension key: B queries, K candidate blocks, Q query length, T block length, J
joint length, M masked positions, E embedding width, D model width, V
vocabulary.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from flax import linen as nn, struct
import jax
from jax import numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from realm_jax.nn import config as config_lib
from retrieval.nn import bert, dropout, partitioning

Ids = Int[Array, 'b l']
Mask = Bool[Array, 'b l']
Vectors = Float[Array, 'b e']


@struct.dataclass
class RealmOutput:
  """Output of the model for a batch."""

  # [B, K] float32. Relevance scores f(x, z), before any softmax.
  scores: jax.Array
  # [B, K, M] float32. log p(y_m | z, x) of the masked tokens, in nats;
  # meaningless outside of the targets.
  gold_log_probs: jax.Array
  # [B, K, M] float32. The highest log-probability of any token.
  best_log_probs: jax.Array


def _projection_init(config: config_lib.RealmConfig):
  if config.projection_init == 'identity':
    return lambda key, shape, dtype: jnp.eye(*shape, dtype=dtype)
  return nn.initializers.truncated_normal(config.embedder.initializer_range)


class Embedder(nn.Module):
  """BERT, pooled, projected and normalised to one vector a text."""

  config: config_lib.RealmConfig

  def setup(self):
    """BERT, and projection and norm if the configuration has them."""
    config = self.config
    width_axis = None if config.projection_size else 'embed'
    param_dtype = config.embedder.param_dtype
    constant = nn.initializers.constant
    self.bert = bert.Bert(config.embedder_bert)
    if config.projection_size:
      # Float32 like the scores: one row for each text costs little.
      self.projection = nn.Dense(
        config.projection_size,
        use_bias=config.projection_bias,
        dtype=jnp.float32,
        param_dtype=param_dtype,
        kernel_init=partitioning.partitioned(
          _projection_init(config), 'embed', None
        ),
        bias_init=partitioning.partitioned(constant(0.0), None),
      )
    if config.projection_norm:
      self.projection_norm = nn.LayerNorm(
        epsilon=config.projection_norm_eps,
        dtype=jnp.float32,
        param_dtype=param_dtype,
        use_fast_variance=False,
        scale_init=partitioning.partitioned(
          constant(config.projection_norm_scale), width_axis
        ),
        bias_init=partitioning.partitioned(constant(0.0), width_axis),
      )
    self.dropout = dropout.Dropout(config.projection_dropout_rate)

  def __call__(
    self,
    ids: Ids,
    mask: Mask,
    type_ids: Ids | None = None,
    *,
    train: bool = False,
  ) -> Vectors:
    """Embed queries or blocks: [b, config.vector_size] float32.

    Rows are `[CLS] query [SEP]` or `[CLS] title [SEP] body [SEP]`; arguments are
    those of `bert.Bert`.
    """
    config = self.config
    # For [CLS] alone, the last layer costs a sixth.
    first = None if config.pooling == 'mean' else jnp.zeros_like(ids[:, :1])
    out = self.bert(ids, mask, type_ids, first, train=train)
    if config.pooling == 'pooler':
      x = out.pooled
    elif config.pooling == 'cls':
      x = out.hidden[:, 0]
    else:
      x = bert.mean_pool(out.hidden, mask)
    x = x.astype(jnp.float32)
    if config.projection_size:
      x = self.projection(x)
    if config.projection_norm:
      x = self.projection_norm(x)
    x = partitioning.constrain(x, 'batch', None)
    return self.dropout(x, train)


def fold(x: jax.Array) -> jax.Array:
  """[..., n] -> [rows, n]: candidates are rows of the batch."""
  return x.reshape(-1, x.shape[-1])


def fold_rows(
  batch: Mapping[str, jax.Array],
  prefix: str,
  names: Sequence[str] = ('ids', 'mask', 'types'),
) -> list[jax.Array]:
  """Arrays <prefix>_<name> of a batch as rows [rows, length]."""
  return [fold(batch[f'{prefix}_{name}']) for name in names]


def take_targets(
  logits: Float[Array, 'b k m v'], batch: Mapping[str, jax.Array]
) -> Float[Array, 'b k m']:
  """Take the values of the masked tokens."""
  targets = batch['mlm_targets'][:, None, :, None]
  targets = jnp.broadcast_to(targets, (*logits.shape[:3], 1))
  return jnp.take_along_axis(logits, targets, axis=-1)[..., 0]


def apply(
  model: nn.Module,
  params: Any,
  *inputs: Any,
  train: bool,
  key: jax.Array | None,
  method: str | None = None,
) -> Any:
  """Apply a method of a model, with dropout by `key` if it trains."""
  rngs = {'dropout': key} if train else None
  return model.apply(
    {'params': params}, *inputs, train=train, method=method, rngs=rngs
  )


def embed_pairs(
  model: nn.Module,
  params: Any,
  train: bool,
  batch: Mapping[str, jax.Array],
  key: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
  """Embed queries [B, d] and blocks [B, ..., d], each with dropout of its own.

  `model` has `embed_queries` and `embed_blocks`, as `Realm`. The batch has
  query_ids, query_mask [B, Q]; block_ids, block_mask, block_types [B, ..., T].
  """
  keys = [jax.random.fold_in(key, i) if train else None for i in range(2)]
  asked = [batch['query_ids'], batch['query_mask']]
  rows = fold_rows(batch, 'block')
  queries, blocks = (
    apply(model, params, *inputs, train=train, key=key, method=method)
    for inputs, key, method in zip(
      (asked, rows), keys, ('embed_queries', 'embed_blocks'), strict=True
    )
  )
  return queries, blocks.reshape(*batch['block_ids'].shape[:-1], -1)


class DualEncoder(nn.Module):
  """Embedders of queries and blocks, one shared or two; usable one by one."""

  config: config_lib.RealmConfig

  @property
  def dual_encoder_config(self) -> config_lib.RealmConfig:
    """Configuration of the embedders."""
    return self.config

  def setup(self):
    """The embedders."""
    config = self.dual_encoder_config
    if config.share_embedders:
      self.embedder = Embedder(config)
    else:
      self.query_embedder = Embedder(config)
      self.block_embedder = Embedder(config)

  def embed_queries(self, *rows: jax.Array, train: bool = False) -> Vectors:
    """Embed_input(x); `rows` are ids and mask, as for `Embedder`."""
    shared = self.dual_encoder_config.share_embedders
    embedder = self.embedder if shared else self.query_embedder
    return embedder(*rows, train=train)

  def embed_blocks(self, *rows: jax.Array, train: bool = False) -> Vectors:
    """Embed_doc(z); `rows` are ids, mask and types, as for `Embedder`."""
    shared = self.dual_encoder_config.share_embedders
    embedder = self.embedder if shared else self.block_embedder
    return embedder(*rows, train=train)

  def score(
    self, queries: Vectors, candidates: Float[Array, 'b k e']
  ) -> Float[Array, 'b k']:
    """Inner products of each query with its own candidates, scaled."""
    scores = jnp.einsum(
      'be,bke->bk', queries, candidates, precision=jax.lax.Precision.HIGHEST
    )
    return self.dual_encoder_config.score_scale * scores


class Realm(DualEncoder):
  """Retriever and encoder."""

  def setup(self):
    """The embedders and the encoder."""
    super().setup()
    self.encoder = bert.BertForMaskedLm(self.config.encoder_bert)

  def relevance_scores(
    self, batch: Mapping[str, jax.Array], *, train: bool = False
  ) -> Float[Array, 'b k']:
    """Score the candidates of a batch."""
    queries = self.embed_queries(
      batch['query_ids'], batch['query_mask'], train=train
    )
    blocks = self.embed_blocks(*fold_rows(batch, 'candidate'), train=train)
    shape = (*batch['candidate_ids'].shape[:2], self.config.vector_size)
    return self.score(queries, blocks.reshape(shape))

  def token_logits(
    self, batch: Mapping[str, jax.Array], *, train: bool = False
  ) -> Float[Array, 'b k m v']:
    """Logits of the encoder with every candidate of a batch."""
    shape = batch['joint_ids'].shape[:2]
    positions = batch['mlm_positions'][:, None]
    positions = jnp.broadcast_to(positions, (*shape, positions.shape[-1]))
    logits = self.encoder(
      *fold_rows(batch, 'joint'), fold(positions), train=train
    )
    return logits.reshape(*shape, *logits.shape[1:])

  def __call__(
    self, batch: Mapping[str, jax.Array], *, train: bool = False
  ) -> RealmOutput:
    """Score the candidates and predict the masked tokens with each of them.

    `batch` has int32 ids and bool masks:
      query_ids, query_mask: [B, Q] `[CLS] query [SEP]`.
      candidate_ids, candidate_mask, candidate_types: [B, K, T] blocks for the
        embedder, the null block first.
      joint_ids, joint_mask, joint_types: [B, K, J] query and block for the
        encoder.
      mlm_positions: [B, M] positions of masked tokens in the joint sequences.
      mlm_targets: [B, M] the masked tokens.
    """
    scores = self.relevance_scores(batch, train=train)
    logits = self.token_logits(batch, train=train)
    gold = take_targets(logits, batch)
    normalizer = jax.nn.logsumexp(logits, axis=-1)
    return RealmOutput(
      scores=scores,
      gold_log_probs=gold - normalizer,
      best_log_probs=logits.max(axis=-1) - normalizer,
    )
