# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Drawing tokens: temperature, top-k and top-p.

Dimension key: B rows, V vocabulary.
"""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Annotated

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key
import numpy as np

from retrieval import settings

_LIKELIEST = 1024  # tokens that mostly hold `top_p` of the mass


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingConfig:
  """Settings of drawing tokens."""

  max_new_tokens: settings.Size = 128
  temperature: settings.NotNegative = 1.0  # 0: the likeliest token
  # smallest set of tokens with at least this mass; 1: all
  top_p: Annotated[float, settings.Range(0, 1, above=True)] = 1.0
  top_k: settings.SizeOrZero = 0  # likeliest tokens that are left; 0: all
  num_neighbors: Annotated[int, settings.Range(0, 2**16)] = 2  # k
  # longest buffer, in chunks
  context_chunks: Annotated[int, settings.Range(2, 2**20)] = 32
  align_prompt: bool = False  # pad on the left: prompts end where a chunk ends
  # tokens at the end of a prompt that find its neighbors; of a joint model alone
  prompt_query: settings.Size = 32
  # a sample ends with the first of these
  stop_ids: Sequence[settings.Count] = ()
  stop_strings: Sequence[str] = ()  # or before the first of these
  banned_ids: Sequence[settings.Count] = ()  # never drawn: padding and the like
  # drawn on the device before the host sees them, at most up to the end of a
  # chunk; 0: 1 on a CPU, elsewhere a chunk
  tokens_per_call: settings.SizeOrZero = 0

  def __post_init__(self):
    settings.check(self)
    if '' in self.stop_strings:
      raise ValueError(
        f'stop_strings {self.stop_strings!r}: expected texts, none empty.'
      )


def keep_mask(
  logits: Float[Array, 'B V'], top_k: int = 0, top_p: float = 1.0
) -> Bool[Array, 'B V']:
  """Mask of the tokens that may be drawn.

  Of equal tokens those of lower id go first.

  Args:
    logits: already divided by the temperature.
    top_k: keep the likeliest so many; 0 for all.
    top_p: then keep the smallest set of the likeliest whose mass, among what is
      left, is at least this; never less than one token.
  """

  def of_likeliest(count):
    """The mask if no token but the likeliest `count` may be drawn, and whether it is so."""
    likeliest, ids = jax.lax.top_k(logits, count)
    whole = likeliest if top_k else logits
    mass = jnp.exp(likeliest - jax.nn.logsumexp(whole, axis=-1, keepdims=True))
    upto = jnp.cumsum(mass, axis=-1)
    keep = (mass > 0) & ((upto - mass < top_p) | (top_p >= 1))
    keep = keep.at[:, 0].set(True)
    rows = jnp.arange(len(logits))[:, None]
    mask = jnp.zeros(logits.shape, bool).at[rows, ids].set(keep)
    return mask, (upto[:, -1] >= top_p).all()

  logits, size = logits.astype(jnp.float32), logits.shape[-1]
  if top_k or top_p >= 1 or size <= _LIKELIEST:
    return of_likeliest(min(top_k or size, size))[0]
  mask, enough = of_likeliest(_LIKELIEST)  # to sort all takes 25 times as long
  return jax.lax.cond(enough, lambda: mask, lambda: of_likeliest(size)[0])


def draw(
  keys: Key[Array, ' B'], logits: Float[Array, 'B V'], config: SamplingConfig
) -> Array:
  """Draw one token for each row: [B] int32."""
  logits = logits.astype(jnp.float32)
  if config.banned_ids:
    logits = logits.at[:, jnp.asarray(config.banned_ids)].set(-jnp.inf)
  if config.temperature == 0:
    return jnp.argmax(logits, axis=-1).astype(jnp.int32)
  logits = logits / config.temperature
  if config.top_k or config.top_p < 1:
    keep = keep_mask(logits, config.top_k, config.top_p)
    logits = jnp.where(keep, logits, -jnp.inf)
  return jax.vmap(jax.random.categorical)(keys, logits).astype(jnp.int32)


def of_draws(config: SamplingConfig) -> SamplingConfig:
  """Return the settings that the compilation of a draw depends on."""
  return SamplingConfig(
    temperature=config.temperature,
    top_k=config.top_k,
    top_p=config.top_p,
    banned_ids=tuple(config.banned_ids),
  )


@functools.partial(jax.jit, static_argnames='config')
def draw_rows(
  config: SamplingConfig,
  key: Key[Array, ''],
  step: Int[Array, ''] | int,
  numbers: Int[Array | np.ndarray, ' B'],
  logits: Float[Array, 'B V'],
) -> Int[Array, ' B']:
  """Draw one token for each row, independently of the other rows.

  Args:
    config: as of `of_draws`.
    step: of the tokens, which decides the draws with key and number.
    numbers: of the rows.
  """
  key = jax.random.fold_in(key, step)
  keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
  return draw(keys, logits, config)
