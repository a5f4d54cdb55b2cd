# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The paper's four sizes, and closed forms for parameters and FLOPs.

Borgeaud et al. 2022, tables 2 and 10. Table 2 counts weight matrices without
embeddings, and fits CCA in every third layer from the 6th; table 10's label has
it from the 9th in the two large models, which contradicts table 2 and the text.
"""

import dataclasses

from retro_jax.nn import retro as model

# d, d_ffw, heads, head width, layers.
_SIZES = {
  '172m': (896, 3584, 16, 64, 12),
  '425m': (1536, 6144, 12, 128, 12),
  '1.5b': (2048, 8192, 16, 128, 24),
  '7.5b': (4096, 16384, 32, 128, 32),
}
PRESETS = tuple(_SIZES)


def cca_layers(name: str, *, table: int = 2) -> tuple[int, ...]:
  """P of a size: every third layer from 6, or as table 10 prints it.

  Args:
    table: 2 (default; also the paper's text) or 10.

  Returns:
    Layers, from 1.

  Raises:
    ValueError: for another name or table.
  """
  num_layers = _size(name)[-1]
  if table not in (2, 10):
    raise ValueError(f'Table {table} lists no layers; expected 2 or 10.')
  first = 9 if table == 10 and num_layers > 12 else 6
  return tuple(range(first, num_layers + 1, 3))


def preset(
  name: str, *, baseline: bool = False, **overrides
) -> model.RetroConfig:
  """One of the paper's models.

  Args:
    baseline: True for the same decoder without retrieval.

  Returns:
    The configuration, with the paper's vocabulary of 128,000.

  Raises:
    ValueError: for another name or for fields that do not fit.
  """
  d_model, d_ff, num_heads, head_dim, num_layers = _size(name)
  fields = {
    'vocab_size': 128_000,
    'd_model': d_model,
    'd_ff': d_ff,
    'num_heads': num_heads,
    'head_dim': head_dim,
    'num_layers': num_layers,
    'cca_layers': () if baseline else cca_layers(name),
  }
  known = {field.name for field in dataclasses.fields(model.RetroConfig)}
  unknown = sorted(set(overrides) - known)
  if unknown:
    raise ValueError(f'RetroConfig has no fields {unknown}.')
  return model.RetroConfig(**(fields | overrides))


def _size(name: str) -> tuple[int, ...]:
  if name not in _SIZES:
    raise ValueError(f'No preset {name!r}; expected one of {PRESETS}.')
  return _SIZES[name]


def _attention_matrices(config, query_width, key_width):
  """Elements of (q and o), of (k and v) and of r."""
  inner = config.num_heads * config.head_dim
  on_keys = 2 * config.heads['k'] * config.head_dim * key_width
  positions = inner * query_width if config.relative_positions else 0
  return 2 * inner * query_width, on_keys, positions


def _ff_matrices(config: model.RetroConfig) -> int:
  """Matrices of a feed-forward."""
  return 3 if config.decoder.gated else 2


def count_matrix_parameters(config: model.RetroConfig) -> int:
  """Elements of all weight matrices but embeddings and an untied readout."""
  c = config
  decoder = c.decoder_attention()
  encoder = c.encoder_attention()
  d, e = c.d_model, c.encoder_d_model
  ff = _ff_matrices(c)
  total = c.num_layers * (
    sum(_attention_matrices(decoder, d, d)) + ff * d * c.d_ff
  )
  if not c.cca_layers:
    return total
  cross = c.decoder_attention(cross=True)
  total += len(c.cca_layers) * sum(_attention_matrices(cross, d, e))
  total += c.encoder_num_layers * (
    sum(_attention_matrices(encoder, e, e)) + ff * e * c.encoder_d_ff
  )
  if c.query_conditioning:
    cross = c.encoder_attention(cross=True)
    conditioning = sum(_attention_matrices(cross, e, d))
    total += len(c.encoder_ca_layers) * conditioning
  return total


def flops_per_token(
  config: model.RetroConfig, num_tokens: int, num_neighbors: int = 0
) -> float:
  """Model FLOPs of a forward pass for each token of a sequence.

  2 for each element of a matrix and each vector it multiplies, the readout
  included; 2 K H for each pair of query and key in content logits and again in
  the weighted sum, and for each pair of query and distance in position logits.
  Causal attention counts all L^2 pairs, as is usual for model FLOPs; what
  recomputation, softmax and norms cost is not counted. Training counts three
  times as much.

  Args:
    num_tokens: L, tokens of a sequence.
    num_neighbors: N, neighbors of each chunk; 0 turns retrieval off.
  """
  c = config
  d, e, m, r = c.d_model, c.encoder_d_model, c.chunk_length, c.neighbor_length

  def attention(cfg, widths, lengths, distances, copies=1):
    # r maps the distances once for every row of the batch: not counted.
    on_queries, on_keys, _ = _attention_matrices(cfg, *widths)
    queries, keys = lengths
    inner = cfg.num_heads * cfg.head_dim
    pairs = queries * keys * 2
    if cfg.relative_positions:
      pairs += queries * distances
    rows = queries * on_queries + keys * on_keys
    return 2 * copies * (rows + pairs * inner)

  length = num_tokens
  total = c.num_layers * attention(
    c.decoder_attention(), (d, d), (length, length), length
  )
  ff = 2 * _ff_matrices(c)
  total += c.num_layers * ff * length * d * c.d_ff
  total += 2 * length * d * c.vocab_size
  chunks = length // m
  if c.cca_layers and num_neighbors and chunks:
    rows = chunks * num_neighbors * r
    keys = num_neighbors * r
    total += c.encoder_num_layers * (
      attention(
        c.encoder_attention(), (e, e), (r, r), 2 * r - 1, chunks * num_neighbors
      )
      + ff * rows * e * c.encoder_d_ff
    )
    if c.query_conditioning:
      total += len(c.encoder_ca_layers) * attention(
        c.encoder_attention(cross=True), (e, d), (keys, m), m + r - 1, chunks
      )
    total += len(c.cca_layers) * attention(
      c.decoder_attention(cross=True), (d, e), (m, keys), m + r - 1, chunks
    )
  return total / length
