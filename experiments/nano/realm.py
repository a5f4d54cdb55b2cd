# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM in one file: train a small one, show and explain its predictions.

Guu et al. 2020 (arXiv 2002.08909): retriever, encoder, the likelihood of a masked word
over documents, an index that grows stale, explanations. Letters: B queries, K
candidates, Q, T, J tokens of query, document, both, M masked words, D width, V words.
"""

import collections
import dataclasses
import functools
import itertools
import json
import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from retrieval.readers import files

PAD, UNKNOWN, CLS, SEP, MASK = range(5)


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes; all are the paper's idea made small."""

  vocab_size: int = 12_000  # words
  query: int = 26  # Q
  block: int = 50  # T
  joint: int = 76  # J
  masks: int = 2  # M, at most
  candidates: int = 4  # K; 8 in the paper
  width: int = 128  # D; the rows of W, too
  heads: int = 4
  embedder_layers: int = 1
  encoder_layers: int = 2
  batch: int = 16
  warm_up: int = 150  # steps of 64 sentences, with the Inverse Cloze Task
  steps: int = 500
  refresh: int = 150  # steps of one index; about 500 in the paper
  learning_rate: float = 1e-3


def split(text):
  """Words and punctuation marks."""
  return re.findall(r'\[MASK\]|\w+|[^\w\s]', text)


def join(length, *parts):
  """[CLS] part [SEP] part [SEP], padded; the last part is cut to the room left."""
  row = [CLS]
  for part in parts:
    row += [*part[: length - len(row) - 1], SEP]
  return row + [PAD] * (length - len(row))


class Corpus:
  """Documents, the beginnings of articles, and sentences of them to ask about."""

  def __init__(self, c):
    articles = json.loads(files.vital_file().read_bytes()).values()
    texts = [split(x['extract']) for x in articles]
    counts = collections.Counter(w.lower() for text in texts for w in text)
    self.words = ['[pad]', '[unk]', '[cls]', '[sep]', '[mask]']  # of each id
    self.words += [w for w, _ in counts.most_common(c.vocab_size - 5)]
    self.ids = {w: i for i, w in enumerate(self.words)}
    # The last is the null document, which holds nothing.
    self.titles = [x['title'] for x in articles] + ['']
    self.bodies = [self.encode(text) for text in texts] + [[]]
    heads = [self.encode(split(title)) for title in self.titles]
    rows = map(functools.partial(join, c.block), heads, self.bodies)
    self.blocks = np.array(list(rows), np.int32)  # [documents, T]
    # Section 3.4: salient words; here rare ones with a capital letter or digit.
    self.sentences = []  # (document, tokens, places of salient words)
    for document, text in enumerate(texts):
      ends = [i + 1 for i, w in enumerate(text) if w in '.!?'] or [len(text)]
      for start, end in itertools.pairwise([0, *ends]):
        sentence = text[start:end][: c.query - 2]
        tokens, named = self.encode(sentence), re.compile(r'[A-Z]|\d')
        places = [i for i, w in enumerate(sentence) if i and named.match(w)]
        places = [i for i in places if tokens[i] > 500]
        self.sentences += [(document, tokens, places)] if places else []

  def encode(self, words):
    """Ids of words, in lower case."""
    return [self.ids.get(w.lower(), UNKNOWN) for w in words]


# Section 3.2: BERT (Devlin et al. 2018).
gelu = functools.partial(jax.nn.gelu, approximate=False)


def dense(p, x):
  """A linear layer."""
  return x @ p['kernel'] + p['bias']


def norm(p, x):
  """LayerNorm."""
  x = x - x.mean(-1, keepdims=True)
  x = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-12)
  return x * p['scale'] + p['bias']


def layer(p, x, context, mask, c):
  """One transformer layer: x [b, q, D] reads context [b, l, D] where mask [b, l]."""

  def heads(name, x):
    return dense(p['attention'][name], x).reshape(*x.shape[:2], c.heads, -1)

  q, k, v = heads('query', x), heads('key', context), heads('value', context)
  logits = jnp.einsum('bqhk,blhk->bhql', q, k) / q.shape[-1] ** 0.5
  logits = jnp.where(mask[:, None, None], logits, -1e30)
  mixed = jnp.einsum('bhql,blhk->bqhk', jax.nn.softmax(logits), v)
  y = dense(p['attention']['output'], mixed.reshape(x.shape))
  x = norm(p['attention_norm'], x + y)
  y = dense(p['output'], gelu(dense(p['intermediate'], x)))
  return norm(p['output_norm'], x + y)


def bert(p, ids, c, at=None):
  """Hidden states of ids [b, l], at all places or at `at` [b, m]."""
  ends, mask = ids == SEP, ids != PAD
  second = (mask & (jnp.cumsum(ends, axis=1) > ends)).astype(int)
  x = p['word'][ids] + p['position'][: ids.shape[1]] + p['token_type'][second]
  x = norm(p['norm'], x)
  number = sum(name.startswith('layer_') for name in p)
  for i in range(number):
    context = x
    if at is not None and i == number - 1:
      x = jnp.take_along_axis(x, at[..., None], axis=1)
    x = layer(p[f'layer_{i}'], x, context, mask, c)
  return x


@functools.partial(jax.jit, static_argnames='c')
def embed(params, ids, c):
  """Embed(x) = W BERT(x), [b, D], here of the tokens' mean; the paper: of [CLS]."""
  p, mask = params['embedder'], (ids != PAD)[..., None]
  x = (bert(p['bert'], ids, c) * mask).sum(axis=1) / mask.sum(axis=1)
  return dense(p['projection'], x)


def log_prior(params, batch, c):
  """Knowledge retriever: log p(z | x), the softmax of f(x, z), [B, K]."""
  queries, z = embed(params, batch['query'], c), batch['candidates']
  blocks = embed(params, z.reshape(-1, z.shape[-1]), c)
  blocks = blocks.reshape(*z.shape[:2], -1)
  return jax.nn.log_softmax(jnp.einsum('bd,bkd->bk', queries, blocks))


def log_reader(params, batch, c):
  """Knowledge-augmented encoder: log p(word | x, z) at the masks, [B, K, M, V]."""
  p, joint = params['encoder'], batch['joint']
  b, k, j = joint.shape
  x = joint.reshape(b * k, j)
  x = bert(p['bert'], x, c, jnp.repeat(batch['at'], k, axis=0))
  head = p['mlm_head']
  x = norm(head['norm'], gelu(dense(head['transform'], x)))
  logits = x @ p['bert']['word'].T + head['bias']
  return jax.nn.log_softmax(logits).reshape(b, k, *logits.shape[1:])


# Sections 3.1 and 3.3: the likelihood is a sum over the documents.
@functools.partial(jax.jit, static_argnames='c')
def likelihoods(params, batch, c):
  """Log p(z | x) and log p(y | x, z), [B, K] each."""
  targets = batch['targets'][:, None, :, None]
  gold = jnp.take_along_axis(log_reader(params, batch, c), targets, axis=-1)
  gold = jnp.where(targets != PAD, gold, 0).sum((-1, -2))
  return log_prior(params, batch, c), gold


def loss(params, batch, c):
  """-log sum_z p(z | x) p(y | x, z) (eq. 1): z gains by making y likelier."""
  prior, gold = likelihoods(params, batch, c)
  return -jax.nn.logsumexp(prior + gold, axis=1).mean()


def cloze_loss(params, batch, c):
  """Section 3.4: -log p of each sentence's document among those of the batch."""
  scores = (
    embed(params, batch['query'], c) @ embed(params, batch['blocks'], c).T
  )
  return -jnp.diagonal(jax.nn.log_softmax(scores)).mean()


def init(key, c):
  """Random words, and matrices that begin by passing words on.

  Frequent words (small ids) are short, so that vectors of texts weigh rare words. The
  encoder begins by making the words likely that it reads.
  """
  d, number = c.width, itertools.count()
  size = jnp.clip(jnp.arange(c.vocab_size) / 500, 0.1, 1)[:, None]

  def normal(rows, columns=d, size=0.02):
    seed = jax.random.fold_in(key, next(number))
    return size * jax.random.normal(seed, (rows, columns))

  def linear(rows, columns, identity=0.0):
    kernel = normal(rows, columns) + identity * jnp.eye(rows, columns)
    return {'kernel': kernel, 'bias': jnp.zeros(columns)}

  def scale():
    return {'scale': jnp.ones(d), 'bias': jnp.zeros(d)}

  def make_layer():
    of = {'query': 0.0, 'key': 0.0, 'value': 1.0, 'output': 2.0}
    p = {'attention': {name: linear(d, d, x) for name, x in of.items()}}
    p |= {'intermediate': linear(d, 4 * d), 'output': linear(4 * d, d)}
    return p | {'attention_norm': scale(), 'output_norm': scale()}

  def make_bert(layers, length):
    p = {f'layer_{i}': make_layer() for i in range(layers)}
    p |= {'word': normal(c.vocab_size, size=0.1 * size), 'norm': scale()}
    return p | {'position': normal(length), 'token_type': normal(2)}

  head = {'transform': linear(d, d, 1.0), 'norm': scale()}
  head |= {'bias': jnp.zeros(c.vocab_size)}
  embedder = {'bert': make_bert(c.embedder_layers, c.block)}
  embedder['projection'] = linear(d, d, 0.3)
  encoder = {'bert': make_bert(c.encoder_layers, c.joint), 'mlm_head': head}
  return {'embedder': embedder, 'encoder': encoder}


# Section 3.3, training: search in a stale index, score by fresh parameters.
def build_index(params, corpus, c):
  """Vectors of all documents by the parameters of now."""
  size = len(corpus.blocks) - 1
  rows = np.pad(corpus.blocks, ((0, 512), (0, 0)))
  parts = [rows[i : i + 512] for i in range(0, size, 512)]
  return np.concatenate([embed(params, part, c) for part in parts])[:size]


def ask(params, index, corpus, examples, c):
  """Retrieved documents and the batch of sentences (document, tokens, places to mask)."""
  masked, at, targets = [], [], []
  for _, tokens, places in examples:
    missing = [0] * (c.masks - len(places))
    at.append([i + 1 for i in places] + missing)  # [CLS] is 0
    targets.append([tokens[i] for i in places] + missing)
    masked.append([MASK if i in places else w for i, w in enumerate(tokens)])
  query = np.array([join(c.query, x) for x in masked])
  scores = np.array(embed(params, query, c) @ index.T)
  for row, (source, _, _) in zip(scores, examples, strict=True):
    row[source] = -np.inf  # it holds the answer, word for word
  ids = np.argsort(-scores, axis=1)[:, : c.candidates - 1]
  ids = np.pad(ids, ((0, 0), (1, 0)), constant_values=-1)  # null is first
  joint = [
    [join(c.joint, x, corpus.bodies[z]) for z in row]
    for x, row in zip(masked, ids, strict=True)
  ]
  batch = {'query': query, 'candidates': corpus.blocks[ids], 'joint': joint}
  batch |= {'at': at, 'targets': targets}
  return ids, {name: np.array(x, np.int32) for name, x in batch.items()}


def choose(examples, rng, c):
  """Choose up to M of the salient words of each sentence."""
  drawn = [(z, x, rng.permutation(at)[: c.masks]) for z, x, at in examples]
  return [(z, x, sorted(at.tolist())) for z, x, at in drawn]


def train(params, corpus, examples, held_out, c):
  """Maximize the likelihood; refresh the index every few steps."""
  rate = optax.warmup_cosine_decay_schedule(
    0, c.learning_rate, 50, c.steps, c.learning_rate / 20
  )
  optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))

  @functools.partial(jax.jit, static_argnames='loss')
  def step(params, state, batch, loss):
    grads = jax.grad(loss)(params, batch, c)
    updates, state = optimizer.update(grads, state)
    if loss is not cloze_loss:  # it forgets at the full rate
      updates['embedder'] = optax.tree.scale(0.05, updates['embedder'])
    return optax.apply_updates(params, updates), state

  state, rng = optimizer.init(params), np.random.default_rng(0)
  for _ in range(c.warm_up):
    drawn = [examples[j] for j in rng.integers(0, len(examples), 64)]
    batch = {'blocks': corpus.blocks[[z for z, _, _ in drawn]]}
    batch['query'] = np.array([join(c.query, x) for _, x, _ in drawn])
    params, state = step(params, state, batch, cloze_loss)
  state = optimizer.init(params)
  for i in range(c.steps):
    if i % c.refresh == 0:
      index = build_index(params, corpus, c)
      report(f'step {i}', params, index, corpus, held_out, c)
    chosen = [examples[j] for j in rng.integers(0, len(examples), c.batch)]
    _, batch = ask(params, index, corpus, choose(chosen, rng, c), c)
    params, state = step(params, state, batch, loss)
  return params


def report(title, params, index, corpus, examples, c):
  """Print the loss with and without documents, and the words retrieved."""
  total = np.zeros(5)
  for start in range(0, len(examples), c.batch):
    part = examples[start : start + c.batch]
    ids, batch = ask(params, index, corpus, part, c)
    prior, gold = map(np.array, likelihoods(params, batch, c))
    together = np.logaddexp.reduce(prior + gold, axis=1)
    for row, (_, tokens, places) in enumerate(part):
      read = {w for z in ids[row] for w in corpus.bodies[z]}
      held = sum(tokens[i] in read for i in places)
      null = np.exp(prior[row, 0]) * len(places)
      total += (-together[row], -gold[row, 0], null, held, len(places))
  names = (
    'nats a word',
    'by null alone',
    'p(null | x)',
    'of the words retrieved',
  )
  pairs = zip(total[:-1] / total[-1], names, strict=True)
  line = ', '.join(f'{value:.3f} {name}' for value, name in pairs)
  print(f'{title}, {time.process_time():.0f} s of CPU: {line}')


# Section 4.4: which documents made a word likely.
def explain(params, index, corpus, text, c):
  """Print p(z | x) of each document, and the likeliest words by it and by all."""
  tokens = corpus.encode(split(text))
  examples = [([], tokens, [tokens.index(MASK)])]
  (ids,), batch = ask(params, index, corpus, examples, c)
  weights = np.exp(log_prior(params, batch, c)[0])
  likelihoods = np.exp(log_reader(params, batch, c)[0, :, 0])
  names = [corpus.titles[z] or 'no document' for z in ids]
  table = [
    (text, 1, weights @ likelihoods),
    *zip(names, weights, likelihoods, strict=True),
  ]
  for name, weight, p in table:
    best = [f'{corpus.words[i]} {p[i]:.3f}' for i in np.argsort(-p)[:5]]
    print(f'  {weight:.3f} {name}: {", ".join(best)}')


def main():
  """Train and print the results."""
  c, rng = Config(), np.random.default_rng(0)
  corpus = Corpus(c)
  tested = set(rng.permutation(len(corpus.titles))[:500].tolist())
  examples = [x for x in corpus.sentences if x[0] not in tested]
  held_out = [x for x in corpus.sentences if x[0] in tested]
  held_out = choose(held_out, rng, c)[:480]
  params = train(init(jax.random.key(0), c), corpus, examples, held_out, c)
  index = build_index(params, corpus, c)
  report('trained', params, index, corpus, held_out, c)
  explain(params, index, corpus, 'Ulaanbaatar is the capital of [MASK].', c)
  explain(params, index, corpus, 'The Eiffel Tower is a tower in [MASK].', c)


if __name__ == '__main__':
  main()
