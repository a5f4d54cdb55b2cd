# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The paper's four sizes, and closed forms for FLOPs and memory.

Borgeaud et al. 2022, tables 2 and 10. Table 2 counts weight matrices without
embeddings, and fits CCA in every third layer from the 6th; table 10's label has
it from the 9th in the two large models, which contradicts table 2 and the text.
"""

from retrieval import settings
from retro_jax.nn import ngram_memory
from retro_jax.nn.config import RetroConfig

_NAMES = ('d_model', 'd_ff', 'num_heads', 'head_dim', 'num_layers')
_SIZES = {
  '172m': (896, 3584, 16, 64, 12),
  '425m': (1536, 6144, 12, 128, 12),
  '1.5b': (2048, 8192, 16, 128, 24),
  '7.5b': (4096, 16384, 32, 128, 32),
}
PRESETS = tuple(_SIZES)


def preset(name: str, *, baseline: bool = False, **overrides) -> RetroConfig:
  """One of the paper's models, with its vocabulary of 128,000.

  Args:
    baseline: True for the same decoder without retrieval.
    **overrides: other fields of RetroConfig.

  Raises:
    ValueError: for another name or for fields that do not fit.
  """
  if name not in _SIZES:
    raise ValueError(f'No preset {name!r}; expected one of {PRESETS}.')
  fields = dict(zip(_NAMES, _SIZES[name], strict=True))
  layers = () if baseline else tuple(range(6, fields['num_layers'] + 1, 3))
  fields |= {'vocab_size': 128_000, 'cca_layers': layers}
  return settings.build(RetroConfig, fields | overrides, f'preset {name}')


def flops_per_token(
  config: RetroConfig, num_tokens: int, num_neighbors: int = 0
) -> float:
  """Model FLOPs of a forward pass for each token of a sequence; training takes 3 x.

  2 for each element of a matrix and each vector it multiplies, the readout
  included; 2 K H for each pair of query and key in content logits and again in
  the weighted sum, and for each pair of query and distance in position logits.
  Causal attention counts all pairs, as is usual; recomputation, softmax and norms do
  not count.

  Args:
    num_tokens: of a sequence.
    num_neighbors: of each chunk; 0 turns retrieval off.
  """
  c = config
  d, e, m, r = c.d_model, c.encoder_d_model, c.chunk_length, c.neighbor_length

  def attention(kind, widths, lengths, distances, copies=1):
    # r maps the distances once for every row of the batch: not counted.
    cfg, (queries, keys) = c.attention_of(kind), lengths
    inner = cfg.num_heads * cfg.head_dim
    on_queries = 2 * inner * widths[0]
    on_keys = 2 * cfg.heads['k'] * cfg.head_dim * widths[1]
    pairs = queries * keys * 2
    if cfg.relative_positions:
      pairs += queries * distances
    rows = queries * on_queries + keys * on_keys
    return 2 * copies * (rows + pairs * inner)

  length = num_tokens
  total = c.num_layers * attention('decoder', (d, d), (length, length), length)
  ff = 6 if c.decoder.gated else 4  # for 3 or 2 matrices
  total += c.num_layers * ff * length * d * c.d_ff
  total += 2 * length * d * c.vocab_size
  of_ngrams = ngram_memory.num_tables(c.ngrams) * c.ngrams.width
  total += len(c.ngrams.layers) * 4 * length * d * of_ngrams
  chunks = length // m
  if c.joint and c.cca_layers and num_neighbors:
    rows, keys = chunks * num_neighbors, num_neighbors * r
    total += c.num_layers * (
      attention('decoder', (d, d), (r, r), r, rows)
      + ff * rows * r * d * c.d_ff
      + 4 * length * keys * c.num_heads * c.head_dim
    )
  elif c.cca_layers and num_neighbors and chunks:
    rows = chunks * num_neighbors * r
    keys = num_neighbors * r
    total += c.encoder_num_layers * (
      attention('encoder', (e, e), (r, r), 2 * r - 1, chunks * num_neighbors)
      + ff * rows * e * c.encoder_d_ff
    )
    if c.query_conditioning:
      total += attention('ca', (e, d), (keys, m), m + r - 1, chunks)
    total += len(c.cca_layers) * attention(
      'cca', (d, e), (m, keys), m + r - 1, chunks
    )
  return total / length
