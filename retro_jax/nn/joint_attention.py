# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Self-attention of a text to itself and to neighbors: the branch ATTN of `joint`.

Dimension key: B batch, L tokens, D model width, M chunk length, G groups of tokens, J
rows of neighbors, E entries of each, P groups that share those, N neighbors, R neighbor
length, S = N R keys of an entry, A rows that are updated, Z neighbors of a batch, H
heads, K head width.
"""

from flax import linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from retrieval.kernels import products
from retrieval.nn import partitioning
from retro_jax.nn import attention, layers, primitives
from retro_jax.nn.config import RetroConfig

START = 1.0  # of b: neighbors are read more than their distance alone lets


class Reading(nn.Module):
  """Trained parameters of one layer: b and the low-rank changes."""

  config: RetroConfig

  @nn.compact
  def __call__(self) -> dict[str, Array]:
    """Return b [H], and for each of q, k, v and o matrices [in, rank], [rank, out]."""
    c = self.config
    heads = c.attention_of('decoder').heads

    def matrix(name, init, axes, *shape):
      init = partitioning.partitioned(init, *axes)
      return self.param(name, init, shape, c.param_dtype).astype(c.dtype)

    start = partitioning.partitioned(nn.initializers.constant(START), None)
    params = {'b': self.param('b', start, (c.num_heads,), c.param_dtype)}
    widths = {name: (c.d_model, n * c.head_dim) for name, n in heads.items()}
    widths['o'] = widths['q'][::-1]
    for name, (width, out) in widths.items():
      normal = nn.initializers.normal(width**-0.5)
      ends = ('heads', 'embed') if name == 'o' else ('embed', 'heads')
      for part, init, axes, shape in (
        ('in', normal, (ends[0], None), (width, c.joint_rank)),
        ('out', nn.initializers.zeros, (None, ends[1]), (c.joint_rank, out)),
      ):
        params[f'{name}_{part}'] = matrix(f'{name}_{part}', init, axes, *shape)
    return params


class JointAttention(attention.RelativeAttention):
  """Self-attention of neighbors, and of the text to itself and to neighbors."""

  def _changed(self, name, y, x, reads, new):
    """`y`, which is `x` times a matrix, with the low-rank change where `reads`."""
    change = products.linear(x, new[f'{name}_in'])
    change = products.linear(change, new[f'{name}_out'])
    return y + change * reads[..., None].astype(y.dtype)

  def _heads(self, x, positions, reads, new):
    """Queries and keys at `positions`, and values, of the text."""
    c, heads = self.config, {}
    for names in ('q', 'kv'):
      for name, y in zip(names, self._project(names, x), strict=True):
        flat = y.transpose(1, 2, 0, 3).reshape(*x.shape[:2], -1)
        flat = self._changed(name, flat, x, reads, new)
        y = flat.reshape(*x.shape[:2], -1, c.head_dim).transpose(2, 0, 1, 3)
        heads[name] = y if name == 'v' else self._placed(name, y, positions)
    return [heads[name] for name in 'qkv']

  def _out(self, mixed, width, reads, new):
    """[H, N, L, K] -> [N, L, D]."""
    out = self._output(mixed, width)
    mixed = mixed.transpose(1, 2, 0, 3).reshape(*out.shape[:2], -1)
    return self._changed('o', out, mixed, reads, new)

  @nn.compact
  def __call__(self, kind: str, *args, **kwargs):
    """Attend as `of_neighbors`, `of_text` or `of_step`, normalized, no residual."""
    return getattr(self, kind)(*args, **kwargs)

  def of_neighbors(self, x, mask):
    """The decoder's attention in each neighbor; keys and values [H, Z, R, K] to read.

    Args:
      x: [Z, 1 + R, D], the begin token first.
      mask: [Z, 1 + R] False where there is no token.
    """
    length = x.shape[1]
    places = jnp.arange(length)[None]
    (q,), (k, v) = self._project('q', x), self._project('kv', x)
    q, k = self._placed('q', q, places), self._normed('k', k)
    keys = self._rotated(k, places - (length - 1))
    k = self._rotated(k, places)
    segments = jnp.ones_like(mask), mask
    mixed, _ = self._mixed(q, k, v, None, segments, True, length, length)
    out = self._output(mixed, x.shape[-1])
    return out, (keys[:, :, 1:], v[:, :, 1:])

  def of_text(
    self,
    x: Float[Array, 'B L D'],
    keys,
    *,
    new,
    visible: Bool[Array, 'B G M S'],
    reads: Bool[Array, 'B L'],
    entries: Int[Array, 'J P'],
    positions: Int[Array, '#B L'],
    segments: Int[Array, 'B L'] | None,
    cached: Int[Array, ' B'] | None,
  ) -> Float[Array, 'B L D']:
    """Attend from all tokens of a text.

    The first group has an empty place before token 0.

    Args:
      keys: keys and values of all entries [H, J E N, R, K].
      visible: which keys of its group's neighbors each token reads.
      reads: tokens that read any.
      entries: which of its entries the groups of B / J rows read, P = B G / J.
      positions: of the tokens in their document.
      segments: documents of the tokens.
      cached: entry that the step after this reads; None leaves no cache.
    """
    c, (batch, length, width) = self.config, x.shape
    groups, size, num_keys = visible.shape[1:]
    q, k, v = self._heads(x, positions, reads, new)

    def chosen(y, entries):  # -> [H, B, G or 1, S, K]
      of_rows = y.reshape(len(y), len(entries), -1, num_keys, c.head_dim)
      of_rows = jnp.take_along_axis(
        of_rows, entries[None, :, :, None, None], axis=2
      )
      return of_rows.reshape(len(y), batch, -1, num_keys, c.head_dim)

    if cached is not None:
      of_rows = cached.reshape(len(entries), -1)
      for name, new_keys, of_text in zip('kv', keys, (k, v), strict=True):
        there = chosen(new_keys, of_rows)[:, :, 0]
        self.put_variable(
          'cache', name, jnp.concatenate([there, of_text], axis=2)
        )

    def with_text(of_neighbors, of_text):  # -> [H, B G, S + L, K]
      of_text = jnp.broadcast_to(
        of_text[:, :, None], (len(of_text), batch, groups, length, c.head_dim)
      )
      y = jnp.concatenate([chosen(of_neighbors, entries), of_text], axis=3)
      return y.reshape(len(y), batch * groups, -1, c.head_dim)

    k, v = (with_text(*pair) for pair in zip(keys, (k, v), strict=True))
    padding = ((0, 0), (0, 0), (1, groups * size - 1 - length), (0, 0))
    q = jnp.pad(q, padding).reshape(len(q), batch * groups, size, c.head_dim)
    place = jnp.arange(groups * size).reshape(groups, size, 1) - 1
    before = jnp.broadcast_to(
      jnp.arange(length) <= place, (batch, groups, size, length)
    )
    if segments is not None:
      documents = jnp.pad(segments, ((0, 0), padding[2]))
      documents = documents.reshape(batch, groups, size, 1)
      before &= documents == segments[:, None, None]
    mask = jnp.concatenate([visible, before], axis=-1)
    mask = mask.reshape(batch * groups, size, -1)
    mixed = self._mix_joint(q, k, v, mask, new['b'], num_keys)
    mixed = mixed.reshape(len(mixed), batch, -1, c.head_dim)
    return self._out(mixed[:, :, 1 : 1 + length], width, reads, new)

  def _mix_joint(self, q, k, v, mask, b, num_keys):
    """One softmax over neighbors' keys, which come first, and the text's.

    Args:
      q: [H, N, Q, K].
      k: [kv heads, N, S, K]; heads that share keys are rows of queries.
      v: as k.
      mask: [N, Q, S].
      b: [H].
    """
    wide, rows, size = primitives.accumulation_dtype(q.dtype), *q.shape[1:3]
    heads, length = k.shape[0], k.shape[2]

    def by_keys(y):  # [H, N, Q, X] -> [kv heads, N, heads of each * Q, X]
      y = y.reshape(heads, -1, *y.shape[1:]).swapaxes(1, 2)
      return y.reshape(heads, rows, -1, y.shape[-1])

    def by_queries(y):
      y = y.reshape(heads, rows, -1, size, y.shape[-1]).swapaxes(1, 2)
      return y.reshape(-1, rows, size, y.shape[-1])

    of_keys = jnp.broadcast_to(jnp.arange(length) < num_keys, mask.shape)
    # A product: its gradient is one, too.
    bias = b.astype(wide)[:, None] @ of_keys.astype(wide).reshape(1, -1)
    bias = by_keys(bias.reshape(len(b), *mask.shape))
    mask = jnp.tile(mask, (1, len(b) // heads, 1))[None]
    q = by_keys(q)
    if self._keeps_weights():
      shares = by_queries(products.weights(q, k, bias, mask))
      self.sow('weights', 'weights', shares[..., :num_keys])
    return by_queries(products.attend(q, k, v, bias, mask))

  def of_step(
    self,
    x: Float[Array, 'B 1 D'],
    keys,
    *,
    new,
    read: Bool[Array, 'B S'],
    rows: Int[Array, ' A'] | None,
    first: Int[Array, ' B'],
    position: Int[Array, ' B'],
    length: int,
  ) -> Float[Array, 'B 1 D']:
    """Attend from the next token of each row, whose keys are in the collection 'cache'.

    Args:
      keys: of the new neighbors of `rows`, None without any.
      read: keys of neighbors that each row reads.
      first: first position of each row's document.
      position: of the token.
      length: positions of the text in the cache.
    """
    c, num_keys = self.config, read.shape[1]
    every, reads = jnp.arange(len(x)), read.any(axis=1)[:, None]
    q, k, v = self._heads(x, (position - first)[:, None], reads, new)
    cached = []
    for i, (name, new_entry) in enumerate((('k', k), ('v', v))):
      cache = self.get_variable('cache', name)
      if keys is not None:
        of_rows = keys[i].reshape(len(cache), -1, num_keys, c.head_dim)
        cache = cache.at[:, rows, :num_keys].set(of_rows)
      cache = cache.at[:, every, num_keys + position].set(new_entry[:, :, 0])
      self.put_variable('cache', name, cache)
      # Without copies for each head XLA copies the cache to change it.
      cached.append(self._for_queries(cache))
    places = jnp.arange(length)
    before = (places >= first[:, None]) & (places <= position[:, None])
    mask = jnp.concatenate([read, before], axis=1)[:, None]
    mixed = self._mix_joint(q, *cached, mask, new['b'], num_keys)
    return self._out(mixed, x.shape[-1], reads, new)


class JointBranch(nn.Module):
  """The branch ATTN of a layer, of the text and of neighbors."""

  config: RetroConfig

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'B L D'],
    neighbors: Float[Array, 'Z Rb D'] | None,
    neighbor_mask: Bool[Array, 'Z Rb'] | None,
    train: bool,
    how: dict,
  ) -> tuple[Float[Array, 'B L D'], Float[Array, 'Z Rb D'] | None]:
    """Add the branch to both streams.

    Args:
      neighbors: with their begin tokens; None without new ones.
      how: arguments of JointAttention.of_text or of_step, by name.
    """
    c, keys = self.config, None
    norm = layers.norm(c, 'norm')
    attend = JointAttention(c.attention_of('decoder'), name='attention')
    if neighbors is not None:
      y, keys = attend('of_neighbors', norm(neighbors), neighbor_mask)
      neighbors = neighbors + y
    kind = 'of_step' if 'first' in how else 'of_text'
    y = attend(kind, norm(x), keys, **how)
    return x + layers.dropped(c, y, train), neighbors
