# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A vocabulary of specials, all bytes and a few merges."""

import tokenizers

SPECIALS = ['<|endoftext|>', '<|other|>']
MERGES = ['t h', 'th e', 'Ġ the', '1 2', 'Ã ¼']
BYTES = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
TOKENS = [*SPECIALS, *BYTES, *(pair.replace(' ', '') for pair in MERGES)]
