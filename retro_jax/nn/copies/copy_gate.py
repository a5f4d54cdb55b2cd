# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A variant that the paper does not have: words of the neighbors are copied.

One more head attends to the encoded neighbors, and a gate g mixes its weights over
their tokens into the prediction, as a pointer network does (See et al. 2017, arXiv
1704.04368, equation 9):

  p(x) = (1 - g) p_readout(x) + g (sum of the weights of the tokens that are x)

Where no neighbor can be read g is 0: RETRO[OFF] is the model without the gate.

Dimension key: A rows of attending tokens, T their number, S tokens of all neighbors, D
model width, E encoder width, H head width, V vocabulary.
"""

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from retrieval.nn import partitioning
from retro_jax.nn import attention, cca
from retro_jax.nn.config import RetroConfig

START = -2.0  # the gate's logit at the start: g is .12
_MOST_NATS = 60.0  # of the readout, in the mixture: exp stays finite


class CopyGate(nn.Module):
  """The gate, its head, and its cache: what the last chunk's neighbors are."""

  config: RetroConfig

  def setup(self):
    """Make the parameters."""
    c = self.config
    matrix = partitioning.partitioned(
      nn.initializers.normal(c.init_scale), 'embed', 'kv'
    )
    self.q = self.param('q', matrix, (c.d_model, c.head_dim), c.param_dtype)
    self.k = self.param(
      'k', matrix, (c.encoder_d_model, c.head_dim), c.param_dtype
    )
    vector = partitioning.partitioned(nn.initializers.zeros, 'embed')
    self.gate = self.param('gate', vector, (c.d_model,), c.param_dtype)
    self.bias = self.param(
      'bias', nn.initializers.constant(START), (), c.param_dtype
    )

  def in_rows(
    self,
    x: Float[Array, 'B L D'],
    found: Float[Array, 'B L *V'],
    targets: Int[Array, 'B L'] | None,
    encoded: Float[Array, 'B C N R E'],
    neighbors: Int[Array, 'B C N R'],
    neighbor_mask: Bool[Array, 'B C N R'],
    token_mask: Bool[Array, 'B C M'] | None,
  ) -> Float[Array, 'B L *V']:
    """Mix copies into all tokens.

    Args:
      x: what the readout reads.
      found: nats of the targets, or without targets logits, which become logarithms
        of probabilities where copies are mixed in.
      targets: next tokens.
      encoded: as of cca.ChunkedCrossAttention, like both masks.
      neighbors: their tokens.
      neighbor_mask: False where there is no token.
      token_mask: False for tokens that may not read.
    """
    m, num_chunks = self.config.chunk_length, neighbors.shape[1]
    rows, start = len(x) * num_chunks, m - 1

    def cut(y):
      y = cca.attending_chunks(y, m, num_chunks)
      return y.reshape(rows, m, *y.shape[3:])

    mask = neighbor_mask.reshape(rows, 1, -1)
    if token_mask is not None:
      mask &= token_mask.reshape(rows, m, 1)
    new = self._mix(
      cut(x),
      cut(found),
      self._keys(encoded.reshape(rows, *encoded.shape[2:])),
      neighbors.reshape(rows, -1),
      mask,
      None if targets is None else cut(targets),
    ).reshape(len(x), num_chunks * m, *found.shape[2:])
    new = new[:, : x.shape[1] - start]
    return found.at[:, start : start + new.shape[1]].set(new)

  def after(
    self,
    x: Float[Array, 'B 1 D'],
    logits: Float[Array, 'B 1 V'],
    neighbor_mask: Bool[Array, 'B N R'],
    encoded: Float[Array, 'A N R E'] | None,
    neighbors: Int[Array, 'A N R'] | None,
    rows: Int[Array, ' A'] | slice = slice(None),
  ) -> Float[Array, 'B 1 V']:
    """Mix copies into one token of each row, as `in_rows`.

    Args:
      x: what the readout reads.
      logits: of the next token.
      neighbor_mask: of all rows' neighbors; False where nothing is read.
      encoded: new neighbors, None without any: those of the cache are read.
      neighbors: their tokens.
      rows: whose neighbors they are.
    """
    if encoded is not None:
      keys, tokens = self._keys(encoded), neighbors.reshape(len(neighbors), -1)
    if self.has_variable('cache', 'keys'):
      old_keys, old_tokens = (
        self.get_variable('cache', name) for name in ('keys', 'tokens')
      )
      if encoded is None:
        keys, tokens = old_keys, old_tokens
      else:
        keys = old_keys.at[rows].set(keys)
        tokens = old_tokens.at[rows].set(tokens)
    if attention.is_caching(self):
      self.put_variable('cache', 'keys', keys)
      self.put_variable('cache', 'tokens', tokens)
    mask = neighbor_mask.reshape(len(x), 1, -1)
    return self._mix(x, logits, keys, tokens, mask)

  def _keys(self, encoded):
    """[A, N, R, E] -> [A, S, H]."""
    rows = encoded.reshape(len(encoded), -1, encoded.shape[-1])
    return rows @ self.k.astype(self.config.dtype)

  def _mix(self, x, found, keys, tokens, mask, targets=None):
    """Mix copies into nats of targets [A, T], or into logits [A, T, V]."""
    gate, weights = self._attend(x, keys, mask)
    if targets is None:
      return mixed_logits(found, gate, weights, tokens)
    return mixed_nats(found, gate, weights, tokens, targets)

  def _attend(self, x, keys, mask):
    """G [A, T], and weights [A, T, S] whose sum is 1; 0 where nothing is read."""
    c = self.config
    wide = attention.accumulation_dtype(c.dtype)
    logits = jnp.einsum(
      'ATH,ASH->ATS',
      x @ self.q.astype(c.dtype),
      keys,
      preferred_element_type=wide,
    )
    there = mask.any(axis=-1)
    logits = jnp.where(mask, logits * c.attention_of('cca').scale, -jnp.inf)
    logits = jnp.where(there[..., None], logits, 0.0)
    weights = jnp.where(mask, jax.nn.softmax(logits), 0.0)
    gate = x.astype(wide) @ self.gate.astype(wide) + self.bias.astype(wide)
    return jnp.where(there, jax.nn.sigmoid(gate), 0.0), weights


def mixed_nats(nats, gate, weights, tokens, targets) -> Float[Array, 'A T']:
  """Return the nats of targets [A, T] under the mixture, from the readout's."""
  same = tokens[:, None] == targets[..., None]
  copied = jnp.where(same, weights, 0.0).sum(axis=-1)
  most = jnp.minimum(nats, _MOST_NATS)
  return most - jnp.log(1 - gate + gate * copied * jnp.exp(most))


def mixed_logits(logits, gate, weights, tokens) -> Float[Array, 'A T V']:
  """Return logarithms of the mixture's probabilities; the logits where g is 0."""

  def share_of_words(ids, each):
    words = jnp.zeros((len(each), logits.shape[-1]), each.dtype)
    return words.at[:, ids].add(each)

  shares, gate = jax.vmap(share_of_words)(tokens, weights), gate[..., None]
  found = jnp.maximum(jax.nn.log_softmax(logits), -_MOST_NATS)
  mixed = found + jnp.log(1 - gate + gate * shares * jnp.exp(-found))
  return jnp.where(gate > 0, mixed, logits)
