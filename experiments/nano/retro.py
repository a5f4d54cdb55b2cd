# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO in one file: train a small one, show its gains and a sample.

Borgeaud et al. 2021 (arXiv 2112.04426): chunks and neighbors, the model of algorithm
1, loss, training, sampling, by JAX, Optax and NumPy. The library lends text and a
tokenizer. Letters: B batch, L tokens of a row, C its chunks, M tokens of a chunk, K
neighbors of a chunk, R = 2 M tokens of a neighbor, D width; N, A, B, Q, S in attention.
"""

import dataclasses
import functools
import itertools
import json
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from retrieval import tokenization
from retrieval.readers import files


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes; a decoder of 0.7 M parameters, the encoder apart."""

  vocab_size: int = 1024
  chunk: int = 32  # M; 64 in the paper
  neighbors: int = 2  # K
  row: int = 8  # C of a training row
  width: int = 128  # D, of decoder and encoder
  heads: int = 4
  layers: int = 3
  cca: tuple[int, ...] = (2, 3)  # P: decoder layers that read neighbors
  position_base: float = 100.0  # longest wavelength over 2 pi, in tokens
  batch: int = 8
  steps: int = 600
  learning_rate: float = 3e-3


# Section 2.1. The database.
class Chunks:
  """Chunks of documents (lists of tokens), padded by 0."""

  def __init__(self, documents, m):
    rows = [np.pad(x, (0, m - len(x) % m)).reshape(-1, m) for x in documents]
    self.tokens = np.concatenate(rows).astype(np.int32)  # [n, M]
    self.document = np.repeat(np.arange(len(rows)), [len(x) for x in rows])
    # Whether the document goes on in the next chunk.
    self.continues = np.append(np.diff(self.document) == 0, False)
    after = np.roll(self.tokens, -1, axis=0) * self.continues[:, None]
    values = np.concatenate([self.tokens, after], axis=1)
    self.values = np.pad(values, ((0, 1), (0, 0)))  # [n + 1, R]; at -1: none


# Section 2.3. A frozen embedder; the paper's is BERT.
def make_table(chunks, vocab_size, width=256):
  """Vectors of all tokens: random directions, log(chunks / chunks with it) long."""
  seen = sum(np.bincount(np.unique(x), minlength=vocab_size) for x in chunks)
  table = np.random.default_rng(0).standard_normal((vocab_size, width))
  table *= np.log(len(chunks) / (1 + seen))[:, None] * (seen > 0)[:, None]
  table[0] = 0  # no token
  return table.astype(np.float32)


def embed(table, chunks):
  """Sum the vectors of the tokens of each chunk [n, M]: unit vectors [n, width]."""
  x = sum(table[column] for column in chunks.T)
  return x / (np.linalg.norm(x, axis=1, keepdims=True) + 1e-6)


def search(table, vectors, chunks, k, document=None):
  """Rows [n, K] nearest to chunks [n, M], by exact search; none of its document."""
  nearest = np.empty((len(chunks), k), np.int64)
  for start in range(0, len(chunks), 1024):
    rows = np.arange(start, min(start + 1024, len(chunks)))
    scores = embed(table, chunks[rows]) @ vectors.T
    if document is not None:
      scores[document[rows, None] == document] = -2  # less than any product
    for j in range(k):
      nearest[rows, j] = scores.argmax(axis=1)
      scores[rows - start, nearest[rows, j]] = -2
  return nearest


# Section 2.4 and appendix B.1: RMSNorm, attention, feed-forward.
def norm(scale, x):
  """RMSNorm."""
  return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


def positions(first, count, width, base):
  """R(d) for d = first, first - 1, ...: sines, then cosines, [count, width]."""
  d = first - np.arange(count)[:, None]
  angles = d * base ** (-np.arange(0, width, 2) / width)
  return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def attention(p, x, y, mask, c, offset=0):
  """Attend from x [N, A, Q, D] to y [N, B, S, D], by content and by distance.

    logit(i, j) = ((q_i + u) . k_j + (q_i + w) . (R(i - j + offset) r)) / sqrt(K)

  A and B count neighbors, which stand at the same positions and, as keys, share a
  softmax. `mask` broadcasts to [N, A, Q, B, S].
  """

  def heads(z):
    return z.reshape(*z.shape[:-1], c.heads, -1)

  n, a, num_queries, _ = x.shape
  num_keys, width = y.shape[2], len(p['r'])
  q, k, v = heads(x @ p['q']), heads(y @ p['k']), heads(y @ p['v'])
  first, count = num_queries - 1 + offset, num_queries + num_keys
  vectors = positions(first, count, width, c.position_base)
  r = heads(jnp.asarray(vectors, x.dtype) @ p['r'])
  content = jnp.einsum('naqhk,nbshk->nhaqbs', q + heads(p['u']), k)
  # Column t is of distance first - t. Row i wants it at key j = t - (Q - 1 - i): one
  # column further in each row, as if rows were one column shorter.
  by_distance = jnp.einsum('naqhk,thk->nhaqt', q + heads(p['w']), r)
  flat = by_distance.reshape(n, c.heads, a, -1)[..., num_queries - 1 :]
  flat = flat[..., : num_queries * (count - 1)]
  by_key = flat.reshape(n, c.heads, a, num_queries, -1)[..., :num_keys]
  logits = (content + by_key[..., None, :]) * (q.shape[-1] ** -0.5)
  visible = jnp.broadcast_to(mask[:, None], logits.shape)
  weights = jax.nn.softmax(jnp.where(visible, logits, -1e30), axis=(-2, -1))
  weights *= visible  # a query that sees nothing gets zeros
  mixed = jnp.einsum('nhaqbs,nbshk->naqhk', weights, v)
  return mixed.reshape(n, a, num_queries, -1) @ p['o']


def feed_forward(p, x):
  """FFW and its residual."""
  return x + jax.nn.gelu(norm(p['norm'], x) @ p['w1']) @ p['w2']


# Algorithm 1.
def encode(params, y, mask, h, c):
  """ENCODER of one layer: neighbors y [B, C, K, R, D], conditioned on chunks of h."""
  p, shape = params['encoder'], y.shape
  k, r, d = shape[2:]
  h = norm(p['conditioning_norm'], h).reshape(-1, 1, c.chunk, d)
  y, mask = y.reshape(-1, 1, r, d), mask.reshape(-1, 1, 1, 1, r)
  z = norm(p['layer_1_attn']['norm'], y)
  y = y + attention(p['layer_1_attn'], z, z, mask, c)
  z = norm(p['layer_1_ca']['norm'], y).reshape(-1, k, r, d)
  z = attention(p['layer_1_ca'], z, h, jnp.ones((1,) * 5, bool), c)
  y = feed_forward(p['layer_1_ffw'], y + z.reshape(y.shape))
  return norm(p['final_norm'], y).reshape(shape)


def chunked_cross_attention(p, x, e, mask, c):
  """CCA: the last token of chunk u, and M - 1 more, read E_u: they write u + 1."""
  batch, length, d = x.shape
  _, chunks, k, r, _ = e.shape
  early = c.chunk - 1  # tokens that have no neighbors yet
  x = jnp.pad(x, ((0, 0), (0, early), (0, 0)))[:, early:]
  x = x[:, : chunks * c.chunk].reshape(-1, 1, c.chunk, d)
  e, mask = e.reshape(-1, k, r, d), mask.reshape(-1, 1, 1, k, r)
  out = attention(p, x, e, mask, c, offset=early).reshape(batch, -1, d)
  return jnp.pad(out, ((0, 0), (early, 0), (0, 0)))[:, :length]


def decode(params, x, neighbors, mask, c):
  """RETRO on embedded tokens x [B, L, D] and neighbors [B, C, K, R, D]."""
  causal = jnp.tri(x.shape[1], dtype=bool)[None, None, :, None]
  for i in range(1, c.layers + 1):
    layer = params[f'layer_{i}_attn']
    y = norm(layer['norm'], x)[:, None]
    x = x + attention(layer, y, y, causal, c)[:, 0]
    if i in c.cca:
      if i == min(c.cca):  # once, beside the chunks as they are in this layer
        h = x[:, : neighbors.shape[1] * c.chunk]
        encoded = encode(params, neighbors, mask, h, c)
      layer = params[f'layer_{i}_cca']
      y = norm(layer['norm'], x)
      x = x + chunked_cross_attention(layer, y, encoded, mask, c)
    x = feed_forward(params[f'layer_{i}_ffw'], x)
  return norm(params['final_norm'], x)


@functools.partial(jax.jit, static_argnames='c')
def logits(params, row, c):
  """EMB, RETRO and READ [B, L, V], all with one table."""
  table, neighbors = params['embedding'], row['neighbors']
  x, mask = table[row['tokens']], neighbors > 0
  return decode(params, x, table[neighbors], mask, c) @ table.T


@functools.partial(jax.jit, static_argnames='c')
def nats(params, row, c):
  """-log p of each next token [B, L]; 0 after a document's end (eq. 1)."""
  out, targets = logits(params, row, c), row['targets']
  nats = optax.softmax_cross_entropy_with_integer_labels(out, targets)
  return jnp.where(targets > 0, nats, 0)


def loss(params, row, c):
  """Nats a token."""
  return nats(params, row, c).sum() / (row['targets'] > 0).sum()


def init(key, c, scale=0.07):
  """Normal matrices, small ones at the end of a branch; norms' scales 1; u, w 0."""
  d, number = c.width, itertools.count()
  attend = {'norm': (d,), 'u': (d,), 'w': (d,)} | dict.fromkeys('qkvro', (d, d))
  ffw = {'norm': (d,), 'w1': (d, 4 * d), 'w2': (4 * d, d)}
  encoder = {'conditioning_norm': (d,), 'final_norm': (d,), 'layer_1_ffw': ffw}
  encoder |= {'layer_1_attn': attend, 'layer_1_ca': attend}
  decoder = {'embedding': (c.vocab_size, d), 'final_norm': (d,)}
  decoder |= {f'layer_{i}_cca': attend for i in c.cca} | {'encoder': encoder}
  for i in range(1, c.layers + 1):
    decoder |= {f'layer_{i}_attn': attend, f'layer_{i}_ffw': ffw}

  def draw(path, shape):
    name = path[-1].key
    if len(shape) == 1:
      return jnp.full(shape, 0.0 if name in 'uw' else 1.0)
    seed = jax.random.fold_in(key, next(number))
    size = scale * (0.03 if name in ('o', 'w2') else 1)
    return size * jax.random.normal(seed, shape)

  params = jax.tree_util.tree_map_with_path(
    draw, decoder, is_leaf=lambda x: isinstance(x, tuple)
  )
  # CCA begins as a copier, which so few tokens as ours would not teach it (`copy_init`
  # of `retro_jax`). Head 0 of the encoder looks one token back and writes what is
  # there into another subspace. CCA looks up the decoder's last token there.
  key, k = jax.random.fold_in(key, next(number)), d // c.heads
  keys = [jax.random.fold_in(key, i) for i in range(2)]
  basis, v = (jax.random.orthogonal(x, d) for x in keys)
  read, written = basis[:, :k], basis[:, k : 2 * k]
  # The fastest sines and cosines; their sum is largest at distance 1.
  r = jnp.eye(d)[:, np.r_[: k // 2, d // 2 : (d + k) // 2]]
  w = positions(1, 1, d, c.position_base)[0] @ r * 40 / k**0.5
  p = params['encoder']['layer_1_attn']
  p['r'], p['w'] = p['r'].at[:, :k].set(r), p['w'].at[:k].set(w)
  p['v'] = p['v'].at[:, :k].set(read)
  p['o'] = p['o'].at[:k].set(6 * scale * written.T)
  share = 6 / (1 + 36 * k / d) ** 0.5  # what is written, of a normalized token
  size = (15 / (share * k**0.5)) ** 0.5  # the logit is 15 where both are equal
  q, k = (jnp.tile(size * x, c.heads) for x in (read, written))
  v = v - written @ (written.T @ v)
  for i in c.cca:
    params[f'layer_{i}_cca'] |= {'q': q, 'k': k, 'v': v, 'o': 0.1 * v.T}
  return params


def rows(chunks, first, neighbors, database, c):
  """Rows of C chunks from each of `first` on, with their neighbors' tokens."""
  at = first[:, None] + np.arange(c.row)
  span = first[:, None] * c.chunk + np.arange(c.row * c.chunk + 1)
  x = chunks.tokens.reshape(-1)[span]
  # The last chunk of a document has no next one that would read.
  ids = np.where(chunks.continues[at][..., None], neighbors[at], -1)
  neighbors = database.values[ids]
  return {'tokens': x[:, :-1], 'targets': x[:, 1:], 'neighbors': neighbors}


def train(params, chunks, neighbors, c):
  """Adam on random rows of the database with neighbors from other documents."""
  rate = optax.warmup_cosine_decay_schedule(
    0, c.learning_rate, c.steps // 10, c.steps, c.learning_rate / 20
  )
  optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate))

  @jax.jit
  def step(params, state, row):
    value, grads = jax.value_and_grad(loss)(params, row, c)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, value

  state, rng = optimizer.init(params), np.random.default_rng(0)
  for i in range(c.steps):
    first = rng.integers(0, len(chunks.tokens) - c.row, c.batch)
    row = rows(chunks, first, neighbors, chunks, c)
    params, state, value = step(params, state, row)
    if i % 50 == 0 or i == c.steps - 1:
      print(f'step {i} {value:.3f} nats, {time.process_time():.0f} s of CPU')
  return params


def bits_a_byte(params, chunks, neighbors, database, sizes, c):
  """Of all chunks, in rows that do not overlap; `sizes` are the tokens' bytes."""
  bits = length = 0
  starts = np.arange(0, len(chunks.tokens) - c.row, c.row)
  for first in np.split(starts, range(c.batch, len(starts), c.batch)):
    row = rows(chunks, first, neighbors, database, c)
    bits += float(nats(params, row, c).sum()) / np.log(2)
    length += sizes[row['targets']].sum()
  return bits / length


def sample(params, tokens, find, database, c, temperature=0.6):
  """Write a row, and find neighbors whenever a chunk is complete; both, by chunk."""
  row, rng = np.zeros((1, c.row * c.chunk), np.int32), np.random.default_rng(0)
  row[0, : len(tokens)] = tokens
  ids = np.full((1, c.row, c.neighbors), -1)
  for t in range(1, row.size):
    if t % c.chunk == 0:
      ids[0, t // c.chunk - 1] = find(row[:, t - c.chunk : t])
    if t >= len(tokens):
      batch = {'tokens': row, 'neighbors': database.values[ids]}
      out = np.array(logits(params, batch, c)[0, t - 1]) / temperature
      out[:4] = -np.inf  # tokens without text
      row[0, t] = (out + rng.gumbel(size=out.shape)).argmax()
  return zip(row.reshape(c.row, c.chunk), ids[0], strict=True)


def main():
  """Train and print the results."""
  c = Config()
  articles = json.loads(files.vital_file().read_bytes()).values()
  texts = [article['extract'] for article in articles]
  with tempfile.NamedTemporaryFile() as file:
    tokenizer = tokenization.train_sentencepiece(texts, file.name, c.vocab_size)
  documents = [x.ids for x in tokenizer.encode_batch(texts)]
  order = np.random.default_rng(0).permutation(len(documents))
  held_out = Chunks([documents[i] for i in order[:200]], c.chunk)
  database = Chunks([documents[i] for i in order[200:]], c.chunk)
  table = make_table(database.tokens, c.vocab_size)
  vectors = embed(table, database.tokens)
  find = functools.partial(search, table, vectors, k=c.neighbors)
  neighbors = find(database.tokens, document=database.document)
  params = train(init(jax.random.key(0), c), database, neighbors, c)
  nearest, sizes = find(held_out.tokens), tokenizer.token_num_bytes
  for name, ids in (
    ('with neighbors', nearest),
    ('without', np.full_like(nearest, -1)),
    ('with those of others', np.random.default_rng(0).permutation(nearest)),
  ):
    bits = bits_a_byte(params, held_out, ids, database, sizes, c)
    print(f'{bits:.4f} bits a byte of 200 held-out articles {name}')
  prompt = tokenizer.encode('The history of Berlin').ids
  for chunk, ids in sample(params, prompt, find, database, c):
    print(f'> {tokenizer.decode(chunk)!r}')
    for i in ids[ids >= 0]:
      print(f'    read {tokenizer.decode(database.values[i])!r}')


if __name__ == '__main__':
  main()
