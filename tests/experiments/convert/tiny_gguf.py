# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tiny decoders as GGUF files."""

import gguf

from tests.retrieval.tokenization import tiny_byte_pairs
from tests.retro_jax.nn import public_reference


def write(path, tensors, **settings):
  """SmolLM2's settings and tokenizer, tiny; embeddings in 8 bits."""
  s = public_reference.LLAMA
  writer = gguf.GGUFWriter(path, settings.pop('architecture', 'llama'))
  writer.add_block_count(s['layers'])
  writer.add_embedding_length(s['d'])
  writer.add_feed_forward_length(s['d_ff'])
  writer.add_head_count(s['heads'])
  writer.add_head_count_kv(s['shared'])
  writer.add_layer_norm_rms_eps(s['epsilon'])
  writer.add_rope_freq_base(s['base'])
  writer.add_rope_dimension_count(s['head_dim'])
  writer.add_tokenizer_model('gpt2')
  writer.add_tokenizer_pre(settings.pop('cut', 'smollm'))
  added = settings.pop('added', [])  # user-defined tokens
  kinds = {float: 'float32', str: 'string', int: 'uint32'}
  for name, value in settings.pop('more', {}).items():
    getattr(writer, f'add_{kinds[type(value)]}')(name, value)
  number, parts = settings.pop('part', (0, 0))
  writer.add_uint16('split.no', number)
  writer.add_uint16('split.count', parts)
  writer.add_token_list([*tiny_byte_pairs.TOKENS, *added])
  writer.add_token_types(
    [3, 3] + [1] * (len(tiny_byte_pairs.TOKENS) - 2) + [4] * len(added)
  )
  writer.add_token_merges(tiny_byte_pairs.MERGES)
  assert not settings
  kind = gguf.GGMLQuantizationType.Q8_0
  for name, array in tensors.items():
    if name == 'token_embd.weight':
      writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    else:
      writer.add_tensor(name, array)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
