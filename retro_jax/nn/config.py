# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sizes and choices of a RETRO, and what follows from them."""

import dataclasses
from typing import Annotated, Literal

import jax

from retrieval import settings
from retro_jax.nn import attention, positions as positions_lib

ACTIVATIONS = {
  'gelu_tanh': lambda x: jax.nn.gelu(x, approximate=True),
  'gelu': lambda x: jax.nn.gelu(x, approximate=False),
  'relu': jax.nn.relu,
  'silu': jax.nn.silu,
}
Activation = Literal['gelu_tanh', 'gelu', 'relu', 'silu']
Dtype = Literal['float32', 'bfloat16', 'float16', 'float64']
Remat = Literal['none', 'full', 'attention']
Loops = Literal['auto', 'scanned', 'unrolled']
# Self-attentions, the decoder's CCA, and the encoder's CA.
Attentions = Literal['decoder', 'cca', 'encoder', 'ca']
Width = Annotated[int, settings.Range(1, 2**20)]
Heads = Annotated[int, settings.Range(1, 2**12)]
Layers = Annotated[int, settings.Range(1, 2**12)]
Length = Annotated[int, settings.Range(1, 2**20)]  # in tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicDecoder:
  """Choices of public decoders that retrieval is added to (RETROfit).

  The defaults are the paper's decoder.
  """

  # Of self-attention: relative, rotary, or absolute (a learned table).
  positions: Literal['relative', 'rotary', 'absolute'] = 'relative'
  rotary_base: settings.Positive = 10000.0  # of the rotary frequencies
  rotary_scaling: positions_lib.RotaryScaling = positions_lib.RotaryScaling()
  # rows of the table: tokens of the longest document
  max_positions: settings.SizeOrZero = 0
  # of self-attention's keys; 0: one for each head
  num_kv_heads: Annotated[int, settings.Range(0, 2**16)] = 0
  gated: bool = False  # feed-forwards W2 (f(W1 x) W3 x); with 'silu': SwiGLU
  norm: Literal['rms', 'layer'] = 'rms'  # or LayerNorm, in encoder and decoder
  # RMSNorm of each head's queries and keys, as in Qwen3
  head_norms: bool = False

  def __post_init__(self):
    settings.check(self)
    if (self.positions == 'absolute') != (self.max_positions > 0):
      raise ValueError(
        f'positions={self.positions!r} with max_positions={self.max_positions}; '
        'expected rows for a table of absolute positions, and 0 without one.'
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ngrams:
  """Hashed n-grams that a baseline looks up, see ngram_memory.py."""

  # before which n-grams are added, from 1; (): none
  layers: tuple[Layers, ...] = ()
  heads: Annotated[int, settings.Range(1, 64)] = 4  # hashes of each length
  # of each hash's table, a power of two
  rows: Annotated[int, settings.Range(2, 2**24)] = 8192
  width: Width = 16  # of a row

  def __post_init__(self):
    settings.check(self)
    if self.rows & (self.rows - 1):
      raise settings.SettingsError('rows', self.rows, 'a power of two')


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetroConfig:
  """Sizes and choices of a RETRO; [open] marks what the paper does not say."""

  # Decoder.
  # V; 128,000 in the paper. 0 in the config of an experiment: the tokenizer's
  vocab_size: settings.SizeOrZero = 0
  d_model: Width = 896  # d
  d_ff: Width = 3584  # width of the feed-forward's hidden layer, 4 d
  num_heads: Heads = 16
  head_dim: Width = 64  # num_heads * head_dim need not be d_model
  num_layers: Layers = 12  # L
  # P, from 1; () is the no-retrieval baseline
  cca_layers: tuple[Layers, ...] = ()
  # Chunks and neighbors.
  chunk_length: Length = 64  # m
  neighbor_length: Length = 128  # r: a chunk and its continuation
  # Encoder of the neighbors; these sizes serve every decoder of the paper.
  encoder_d_model: Width = 896  # d'
  encoder_d_ff: Width = 3584
  encoder_num_heads: Heads = 16
  encoder_head_dim: Width = 64
  encoder_num_layers: Layers = 2  # L_enc
  share_embeddings: bool = False  # one table, needs encoder_d_model == d_model
  query_conditioning: bool = True  # False (an ablation): no encoder CA
  # False (an ablation): CCA and CA are eq. 4, without positions, u and w
  cca_positions: bool = True
  # Choices the paper leaves open.
  # logits from the embedding table; table 10 says so
  tie_readout: bool = True
  activation: Activation = 'gelu_tanh'  # [open] GPT-2's
  norm_epsilon: settings.Positive = 1e-6  # [open] of every norm
  # [open] biases of attention's matrices
  projection_biases: bool = False
  # [open] biases of the feed-forward's matrices
  ff_biases: bool = False
  # [open] attention logits / sqrt(head_dim)
  scale_logits: bool = True
  # of the cosine vector's frequencies
  position_base: settings.Positive = 10000.0
  # where the decoder is another
  decoder: PublicDecoder = PublicDecoder()
  # Initial values.
  init_scale: settings.Positive = 0.02  # [open] standard deviation, GPT-2's
  copy_init: bool = False  # [open] start by copying, see copy_init.py
  # size of what cross-attention then adds at first, in norms of its input
  copy_size: settings.Positive = 0.1
  # Not the paper's: the decoder's self-attention reads the neighbors, see joint.py.
  joint: bool = False
  # of the low-rank changes that it is trained with
  joint_rank: settings.SizeOrZero = 0
  # token before each neighbor: BOS of the tokenizer, whatever a config says
  begin_id: settings.Count = 0
  # Not the paper's: n-grams that a baseline looks up, see ngram_memory.py.
  ngrams: Ngrams = Ngrams()
  dropout_rate: settings.Rate = 0.0  # [open] decoder's embeddings and branches
  # How it runs.
  dtype: Dtype = 'float32'  # compute: bfloat16 on accelerators
  param_dtype: Dtype = 'float32'
  # What the backward pass recomputes:
  #   none       nothing
  #   full       all of each layer
  #   attention  all but the results of attention's kernels
  remat: Remat = 'none'
  # one loop over equal layers; auto: on accelerators
  layers: Loops = 'auto'

  def __post_init__(self):
    settings.check(self)
    layers = tuple(self.cca_layers)
    distinct = layers == tuple(sorted(set(layers)))
    if not distinct or max(layers, default=0) > self.num_layers:
      raise ValueError(
        f'cca_layers {layers}; expected distinct layers of 1..{self.num_layers}, '
        'in rising order.'
      )
    if not {*self.ngrams.layers} <= {*range(1, self.num_layers + 1)}:
      raise settings.SettingsError(
        'ngrams.layers', self.ngrams.layers, f'layers of 1..{self.num_layers}'
      )
    if self.ngrams.layers and (self.joint or self.layers == 'scanned'):
      raise ValueError(
        f'ngrams.layers={self.ngrams.layers}: expected neither joint nor '
        "layers='scanned'."
      )
    shared = self.decoder.num_kv_heads
    if shared and self.num_heads % shared:
      raise ValueError(
        f'num_kv_heads={shared}; expected 0 or a divisor of '
        f'num_heads={self.num_heads}.'
      )
    if self.decoder.positions == 'rotary' and self.head_dim % 2:
      raise ValueError(
        f'rotary positions turn pairs; got an odd head_dim={self.head_dim}.'
      )
    if self.joint and (
      tuple(self.cca_layers) not in ((), tuple(range(1, self.num_layers + 1)))
      or self.decoder.positions == 'relative'
    ):
      raise ValueError(
        f'joint reads in all layers, with rotary or learned positions; got '
        f'cca_layers={self.cca_layers} of {self.num_layers} and '
        f'{self.decoder.positions} positions.'
      )
    if self.joint and not self.joint_rank:
      raise ValueError('joint needs a joint_rank above 0.')
    if self.joint and self.layers == 'scanned':
      raise ValueError("joint has no loop over layers; got layers='scanned'.")
    if self.copy_init and not self.share_embeddings:
      raise ValueError('copy_init needs share_embeddings.')
    if self.share_embeddings and self.encoder_d_model != self.d_model:
      raise ValueError(
        'share_embeddings needs encoder_d_model == d_model; got '
        f'{self.encoder_d_model} and {self.d_model}.'
      )

  def output_scale(self, *, in_encoder: bool) -> float:
    """Initial standard deviation of a branch's last matrix, [open] as GPT-2's."""
    branches = 2 * self.num_layers + len(self.cca_layers)
    if in_encoder:
      branches = 2 * self.encoder_num_layers + 1
    return self.init_scale / branches**0.5

  def attention_of(self, kind: Attentions) -> attention.AttentionConfig:
    """Sizes and choices of one of the four attentions."""
    in_encoder = kind in ('encoder', 'ca')
    public = self.decoder
    fields = {'relative_positions': self.cca_positions or kind == 'encoder'}
    if kind == 'decoder':
      fields = {
        'num_kv_heads': public.num_kv_heads,
        'relative_positions': public.positions == 'relative',
        'rotary_base': public.rotary_base
        if public.positions == 'rotary'
        else 0.0,
        'rotary_scaling': public.rotary_scaling,
        'head_norms': public.head_norms,
      }
    return attention.AttentionConfig(
      num_heads=self.encoder_num_heads if in_encoder else self.num_heads,
      head_dim=self.encoder_head_dim if in_encoder else self.head_dim,
      norm_epsilon=self.norm_epsilon,
      projection_biases=self.projection_biases,
      scale_logits=self.scale_logits,
      position_base=self.position_base,
      init_scale=self.init_scale,
      output_init_scale=self.output_scale(in_encoder=in_encoder),
      dtype=self.dtype,
      param_dtype=self.param_dtype,
      **fields,
    )
