# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM: neural retriever and knowledge-augmented encoder (Guu et al. 2020, 3.2).

  p(z | x) = softmax over z of f(x, z)      `objectives.losses.log_prior`
  f(x, z)  = Embed_input(x)^T Embed_doc(z)  `DualEncoder.score`
  p(y | z, x) of BERT over join(x, z_body)  `Realm.token_logits`
  p(y | x) = sum_z p(y | z, x) p(z | x)     `objectives.losses`, equation 1

Dimension key: B queries, K candidate blocks, Q query length, T block length, J
joint length, M masked positions, E embedding width, D model width, V
vocabulary.
"""

from collections.abc import Mapping

from flax import linen as nn, struct
import jax
from jax import numpy as jnp
from jaxtyping import Array, Float

from realm_jax.nn import batches, config as config_lib
from realm_jax.nn.embedder import Embedder, Vectors
from retrieval.nn import bert


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


class DualEncoder(nn.Module):
  """Retriever: embedders of queries and blocks, one shared or two."""

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
    """Return Embed_input(x); `rows` are ids and mask, as for `Embedder`."""
    shared = self.dual_encoder_config.share_embedders
    embedder = self.embedder if shared else self.query_embedder
    return embedder(*rows, train=train)

  def embed_blocks(self, *rows: jax.Array, train: bool = False) -> Vectors:
    """Return Embed_doc(z); `rows` are ids, mask and types, as for `Embedder`."""
    shared = self.dual_encoder_config.share_embedders
    embedder = self.embedder if shared else self.block_embedder
    return embedder(*rows, train=train)

  def score(
    self, queries: Vectors, candidates: Float[Array, 'b k e']
  ) -> Float[Array, 'b k']:
    """Return f(x, z) of each query and its candidates."""
    return jnp.einsum('be,bke->bk', queries, candidates, precision='highest')


class Realm(DualEncoder):
  """Retriever and knowledge-augmented encoder."""

  def setup(self):
    """The embedders and the encoder."""
    super().setup()
    self.encoder = bert.BertForMaskedLm(self.config.encoder_bert)

  def relevance_scores(
    self, batch: Mapping[str, jax.Array], *, train: bool = False
  ) -> Float[Array, 'b k']:
    """Return f(x, z) of the candidates of a batch."""
    queries = self.embed_queries(
      batch['query_ids'], batch['query_mask'], train=train
    )
    blocks = self.embed_blocks(
      *batches.fold_rows(batch, 'candidate'), train=train
    )
    shape = (*batch['candidate_ids'].shape[:2], self.config.vector_size)
    return self.score(queries, blocks.reshape(shape))

  def token_logits(
    self, batch: Mapping[str, jax.Array], *, train: bool = False
  ) -> Float[Array, 'b k m v']:
    """Return the logits of p(y_m | z, x) of every token, with each candidate."""
    shape = batch['joint_ids'].shape[:2]
    positions = batch['mlm_positions'][:, None]
    positions = jnp.broadcast_to(positions, (*shape, positions.shape[-1]))
    logits = self.encoder(
      *batches.fold_rows(batch, 'joint'), batches.fold(positions), train=train
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
    gold = batches.take_targets(logits, batch)
    normalizer = jax.nn.logsumexp(logits, axis=-1)
    return RealmOutput(
      scores=scores,
      gold_log_probs=gold - normalizer,
      best_log_probs=logits.max(axis=-1) - normalizer,
    )
