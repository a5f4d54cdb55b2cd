# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A decoder that reads neighbors by its own self-attention (RETROfit, not the paper's).

Chunks, neighbors and who reads them are RETRO's (Borgeaud et al. 2022, section 2); the
cross-attention is not. Each neighbor runs through the decoder alone, after a begin
token. Its keys and values of every layer then stand beside the text's, in one softmax:

  logit(i, j) = q_i . k_j / sqrt(K) + [j is of a neighbor] b_h

Keys of neighbors have the positions just before the text, whatever their chunk. So
the decoder can read before anything was trained. Trained are b, a number for each layer
and head, and low-rank changes (Hu et al. 2021) of q, k, v and o, which act in tokens
that read. All else is the decoder, bit for bit: what neighbors are does not depend on
the text that reads them, nor on training.

Relatives: parallel context windows (Ratner et al. 2023) are such keys without chunks,
Memorizing Transformers (Wu et al. 2022) mix two softmaxes in one layer, CEPE (Yen et
al. 2024) trains an encoder and cross-attentions, Block-attention (Ma et al. 2024) trains
the whole decoder.

Dimension key: B batch, L tokens, D model width, G groups of tokens, M places of a group,
J rows of neighbors, E entries of each, N neighbors, R neighbor length, A rows that are updated, Z
neighbors of a batch, V vocabulary.
"""

from flax import linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from retrieval.nn import partitioning
from retro_jax.nn import (
  inputs,
  joint_attention,
  layers,
  retro,
  retro_step,
)


class JointRetro(retro.Retro):
  """The language model; arguments and results are those of Retro.

  Tokens go in groups: number g begins with the last token of chunk g - 1 and reads its
  neighbors, entry g - 1. `entries` names others for rows of one document, -1 for none:
  so a prompt may read what its end retrieved, and groups may share an entry, which
  is encoded once. Rows may share neighbors, too: B / J rows in turn read the entries of
  one of J.
  """

  @nn.compact
  def __call__(
    self,
    tokens: Int[Array, 'B L'],
    neighbors: Int[Array, 'J E N R'] | None = None,
    neighbor_mask: Bool[Array, 'J E N R'] | None = None,
    *,
    entries: Int[Array, 'B G'] | None = None,
    segment_ids: Int[Array, 'B L'] | None = None,
    last: Int[Array, ' B'] | None = None,
    targets: Int[Array, 'B L'] | None = None,
    train: bool = False,
  ) -> Float[Array, 'B _ V'] | Float[Array, 'B L']:
    """Logits of each next token; without neighbors those of the decoder."""
    c = self.config
    tokens, neighbors, neighbor_mask, segment_ids = self._inputs(
      tokens, neighbors, neighbor_mask, segment_ids
    )
    if not c.cca_layers or neighbors is None or not neighbors.size:
      return super().__call__(
        tokens,
        segment_ids=segment_ids,
        last=last,
        targets=targets,
        train=train,
      )
    if neighbor_mask is None:
      neighbor_mask = jnp.ones(neighbors.shape, bool)
    embedding, embed, positions, x = self._begin(
      tokens, segment_ids, last, train
    )
    stream, mask = _begin(c, embed, neighbors, neighbor_mask)
    of_groups = _groups(c, positions, segment_ids, len(tokens))
    entries, there = _who_reads(neighbors.shape[1], of_groups, entries)
    shared = entries.reshape(len(neighbors), -1)
    keys = neighbor_mask.reshape(*neighbors.shape[:2], -1)
    keys = jnp.take_along_axis(keys, shared[..., None], axis=1)
    keys = keys.reshape(*entries.shape, 1, -1)
    visible = (there & (of_groups > 0))[..., None] & keys
    reads = visible.any(axis=-1).reshape(len(tokens), -1)
    how = {
      'visible': visible,
      'reads': reads[:, 1 : 1 + tokens.shape[1]],
      'entries': shared,
      'positions': positions,
      'segments': segment_ids,
      'cached': None,
    }
    if inputs.is_kept(self, last):
      rows, place = jnp.arange(len(last)), last + 1
      group = place // c.chunk_length
      how['cached'] = entries[rows, group]
      read = there[rows, group, place % c.chunk_length]
      owner = rows * len(neighbors) // len(tokens)
      read = neighbor_mask[owner, how['cached']] & read[:, None, None]
      self.put_variable('cache', 'neighbor_mask', read)
    attend = layers.recomputed(joint_attention.JointBranch, c, 4)
    feed_forward = layers.recomputed(layers.FeedForward, c, 2)
    for p in range(1, c.num_layers + 1):
      new = joint_attention.Reading(c, name=f'layer_{p}_reading')()
      x, stream = attend(c, name=f'layer_{p}_attn')(
        x, stream, mask, train, {**how, 'new': new}
      )
      ffw = feed_forward(c, name=f'layer_{p}_ffw')
      stream = ffw(stream, train) if p < c.num_layers else None
      x = partitioning.constrain(ffw(x, train), 'batch', 'length', None)
      self.sow('intermediates', f'layer_{p}', x)
    return self._read(embedding, x, targets, last)


class JointStep(retro_step.RetroStep):
  """JointRetro for the next token of each row, as RetroStep for Retro.

  The cache holds keys and values of each layer, those of the neighbors that the next
  token reads before the text's; which of them are there; and where documents begin.
  """

  @nn.compact
  def __call__(
    self, tokens, position, rows=None, neighbors=None, neighbor_mask=None
  ):
    """Logits of each next token; arguments as of RetroStep."""
    c, cache = self.config, self.variables['cache']
    first, read = cache['first'], cache.get('neighbor_mask')
    if read is None:
      return super().__call__(tokens, position)
    embedding = self._table('embedding', c.d_model)
    embed = self._embedder(embedding)
    x = embed(tokens[:, None], (position - first)[:, None])
    stream = mask = None
    if rows is not None:
      stream, mask = _begin(c, embed, neighbors, neighbor_mask)
      read = read.at[rows].set(neighbor_mask)
    self.put_variable('cache', 'neighbor_mask', read)
    length = cache['layer_1_attn']['attention']['k'].shape[2]
    how = {
      'read': read.reshape(len(read), -1),
      'rows': rows,
      'first': first,
      'position': position,
      'length': length - read[0].size,
    }
    for p in range(1, c.num_layers + 1):
      new = joint_attention.Reading(c, name=f'layer_{p}_reading')()
      attend = joint_attention.JointBranch(c, name=f'layer_{p}_attn')
      x, stream = attend(x, stream, mask, False, {**how, 'new': new})
      ffw = layers.FeedForward(c, name=f'layer_{p}_ffw')
      if stream is not None:
        stream = ffw(stream) if p < c.num_layers else None
      x = ffw(x)
    return self._read(embedding, x)[:, 0]


def _begin(config, embed, neighbors, mask):
  """Embedded neighbors after their begin tokens [Z, 1 + R, D], and their mask."""
  length, before = neighbors.shape[-1], ((0, 0), (1, 0))
  tokens = jnp.where(mask, neighbors, 0).reshape(-1, length)
  tokens = jnp.pad(tokens, before, constant_values=config.begin_id)
  mask = jnp.pad(mask.reshape(-1, length), before, constant_values=True)
  return embed(tokens, jnp.arange(length + 1)[None]), mask


def _groups(config, positions, segment_ids, batch):
  """The document of each place of each group, 0 for padding: [B, G, M].

  Below 0 for the first token of a document, which reads nothing: it is where attention
  rests.
  """
  m, length = config.chunk_length, positions.shape[1]
  owners = 1 if segment_ids is None else segment_ids
  owners = jnp.where(positions > 0, owners, -owners)
  owners = jnp.broadcast_to(owners, (batch, length))
  padding = (1, -(length + 1) % m)
  return jnp.pad(owners, ((0, 0), padding)).reshape(batch, -1, m)


def _who_reads(count, documents, entries):
  """The entry of each group [B, G], and which of its places read it [B, G, M].

  Args:
    count: E.
    documents: of `_groups`; first tokens, which read nothing, count as others here.
    entries: as of JointRetro; None: RETRO's.
  """
  documents = jnp.abs(documents)
  batch, groups = documents.shape[:2]
  there = documents > 0
  if entries is None:  # of the chunk before, in its document
    entries = jnp.arange(-1, groups - 1)
    entries = jnp.where(entries < count, entries, -1)
    entries = jnp.broadcast_to(entries, (batch, groups))
    there &= documents == documents[:, :, :1]
  there &= (entries >= 0)[..., None]
  return jnp.maximum(entries, 0), there
