# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO, the decoder that reads neighbors of each chunk (algorithm 1).

Borgeaud et al. 2022 (arXiv 2112.04426). Matrices, norms and residuals follow
section 2.4 and appendix B; what the paper leaves open is a field of
RetroConfig. Without neighbors, or with none visible, only the
decoder acts: the cross-attentions add exactly zero (RETRO[OFF]).

Dimension key: B batch, L tokens, D model width, C chunks, M chunk length, N neighbors,
R neighbor length, V vocabulary.
"""

from flax import linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from retrieval.nn import partitioning
from retro_jax.nn import (
  cca,
  inputs,
  layers,
  positions as positions_lib,
  readout,
  stack,
)
from retro_jax.nn.config import RetroConfig


class Retro(nn.Module):
  """The language model; with cca_layers == () its no-retrieval baseline."""

  config: RetroConfig

  @nn.compact
  def __call__(
    self,
    tokens: Int[Array, 'B L'],
    neighbors: Int[Array, 'B C N R'] | None = None,
    neighbor_mask: Bool[Array, 'B C N R'] | None = None,
    *,
    segment_ids: Int[Array, 'B L'] | None = None,
    last: Int[Array, ' B'] | None = None,
    targets: Int[Array, 'B L'] | None = None,
    train: bool = False,
  ) -> Float[Array, 'B _ V'] | Float[Array, 'B L']:
    """Logits of each next token.

    Args:
      tokens: of any length.
      neighbors: tokens that chunk u of `tokens` retrieved, with their
        continuations; any N. C is at most ceil(L / M): chunks beyond it have none,
        and those of an incomplete last chunk are never read. None turns retrieval
        off.
      neighbor_mask: False for missing neighbors and padding; None means all are
        there.
      segment_ids: 0 for padding, else the document of the token. Documents start at
        chunk boundaries (but may be padded on the left). Tokens read only
        their document and neighbors of its chunks.
      last: reads out these positions alone. If the collection 'cache' may change,
        it then holds what RetroStep needs to go on after them, in the document
        that each is of; tokens after them do not matter.
      targets: next tokens, whose nats are returned in place of logits.
      train: whether dropout acts; it then needs the rng 'dropout'.

    Returns:
      [B, L, V] float32, [B, 1, V] with `last`, or [B, L] with `targets`. Row t
      predicts token t + 1. At initialisation L is at least one chunk, so that any
      arguments make every parameter.

    Raises:
      ValueError: for shapes that do not fit each other or the config; for stacked
        parameters where layers are no loops.
    """
    c = self.config
    tokens, neighbors, neighbor_mask, segment_ids = self._inputs(
      tokens, neighbors, neighbor_mask, segment_ids
    )
    retrieved = inputs.complete_chunks(c, tokens, neighbors, neighbor_mask)
    embedding, _, positions, x = self._begin(tokens, segment_ids, last, train)
    segments = None if segment_ids is None else (segment_ids, segment_ids)
    found = self._look_up(tokens, segment_ids, last)

    def encode(x):
      """Return the encoded neighbors and their masks, for the layers of P."""
      self.sow('intermediates', 'conditioning', x)
      inputs.put_neighbors(self, x, retrieved[1], segment_ids, last)
      encoded, token_mask = self._encode(embedding, x, *retrieved, segment_ids)
      self.sow('intermediates', 'encoded', encoded)
      return encoded, retrieved[1], token_mask, last

    if stack.runs_loops(self):
      x = stack.run(
        c,
        self.variables['params'],
        x,
        None if retrieved is None else encode,
        segments=segments,
        positions=positions,
        train=train,
        key=self.make_rng('dropout') if train and c.dropout_rate else None,
      )
    else:
      self_attention = layers.recomputed(layers.Attention, c, 4)
      read_neighbors = layers.recomputed(layers.ReadNeighbors, c, 2)
      feed_forward = layers.recomputed(layers.FeedForward, c, 2)
      read = None
      for p in range(1, c.num_layers + 1):
        x = self_attention(c, name=f'layer_{p}_attn')(
          self._recall(p, x, found), None, segments, train, positions
        )
        if retrieved is not None and p in c.cca_layers:
          read = read or encode(x)
          x = read_neighbors(c, name=f'layer_{p}_cca')(x, train, *read)
        x = feed_forward(c, name=f'layer_{p}_ffw')(x, train)
        x = partitioning.constrain(x, 'batch', 'length', None)
        self.sow('intermediates', f'layer_{p}', x)
    return self._read(embedding, x, targets, last)

  def _inputs(self, tokens, neighbors, neighbor_mask, segment_ids):
    """Check the inputs; at initialisation, make those of one chunk."""
    c = self.config
    inputs.check(c, tokens, neighbors, neighbor_mask, segment_ids)
    if self.is_initializing() and c.cca_layers:
      missing = max(0, c.chunk_length - tokens.shape[1])
      tokens = jnp.pad(tokens, ((0, 0), (0, missing)))
      neighbors = jnp.zeros((len(tokens), 1, 1, c.neighbor_length), jnp.int32)
      neighbor_mask = segment_ids = None
    return tokens, neighbors, neighbor_mask, segment_ids

  def _begin(self, tokens, segment_ids, last, train):
    """The table of embeddings, EMB of it, positions, and the first layer's input."""
    embedding = self._table('embedding', self.config.d_model)
    embed, positions = self._embedder(embedding), None
    if self.config.decoder.positions != 'relative':
      positions = positions_lib.in_rows(tokens.shape[1], segment_ids)
    x = layers.dropped(self.config, embed(tokens, positions), train)
    x = partitioning.constrain(x, 'batch', 'length', None)
    inputs.put_first(self, tokens, segment_ids, last)
    return embedding, embed, positions, x

  def _look_up(self, *_):
    """Return what `_recall` adds; None here, where there is no further memory."""

  def _recall(self, p, x, found):
    """The input of layer p."""
    del p, found
    return x

  def _table(self, name, width):
    c = self.config
    init = nn.initializers.normal(c.init_scale)
    init = partitioning.partitioned(init, 'vocab', 'embed')
    return self.param(name, init, (c.vocab_size, width), c.param_dtype)

  def _embedder(self, embedding):
    """EMB of algorithm 1: (tokens, positions) -> x.

    Positions are learned where the decoder has such.
    """
    c, learned = self.config, None
    if c.decoder.positions == 'absolute':
      learned = layers.LearnedPositions(c, name='positions')

    def embed(tokens, positions):
      x = layers.embed(embedding, tokens, c.dtype)
      return x if learned is None else learned(x, positions)

    return embed

  def _encode(self, embedding, x, neighbors, mask, segment_ids):
    """E, and which tokens of the attending chunks may read it."""
    c = self.config
    batch, num_chunks = neighbors.shape[:2]
    size = num_chunks * c.chunk_length

    def split(y):
      return y[:, :size].reshape(
        batch, num_chunks, c.chunk_length, *y.shape[2:]
      )

    chunk_mask = token_mask = None
    if segment_ids is not None:
      # A chunk belongs to the document of the token that retrieves for it: its
      # last, as the first may be padding on the left.
      chunk_ids = split(segment_ids)
      owner = chunk_ids[:, :, -1:]
      chunk_mask = (chunk_ids == owner) & (owner > 0)
      reader_ids = cca.attending_chunks(segment_ids, c.chunk_length, num_chunks)
      token_mask = (reader_ids == owner) & (owner > 0)
    if not c.share_embeddings:
      embedding = self._table('encoder_embedding', c.encoder_d_model)
    embedded = layers.embed(embedding, jnp.where(mask, neighbors, 0), c.dtype)
    encoded = layers.Encoder(c, name='encoder')(
      embedded, mask, split(x), chunk_mask
    )
    return encoded, token_mask

  def _read(self, embedding, x, targets=None, last=None):
    """READ of algorithm 1: logits, or nats of targets; of `last` alone if named."""
    c = self.config
    if last is not None:
      x = jnp.take_along_axis(x, last[:, None, None], axis=1)
    x = layers.norm(c, 'final_norm')(x)
    if not c.tie_readout:
      embedding = self._table('readout', c.d_model)
    if targets is not None:
      return readout.nll(x, embedding, targets)
    return readout.logits(x, embedding)
