# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Late interaction: a vector for each token of query and passage (ColBERT).

Khattab and Zaharia 2020, sections 3.2 and 3.3. The score of a passage is the sum,
over the query's tokens, of the largest cosine with a token of the passage.

  query     [CLS] [Q] text [SEP] [MASK] ... [MASK]   always of the same length
  passage   [CLS] [D] text [SEP]                     punctuation has no vector

Dimension key: A queries, Q query length; P passages, L passage length; D vector.
"""

from collections.abc import Sequence
import dataclasses
import string

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from retrieval import arguments, settings, tokenization
from retrieval.kernels import products
from retrieval.nn import bert, partitioning

_MIN_LENGTH = 4  # three specials and a wordpiece


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColbertConfig:
  """Vectors and rows; the defaults are the paper's, but for passage_length."""

  vector_size: bert.Width = 128  # D
  query_length: bert.Length = 32  # Q, specials included; longer ones are cut
  passage_length: bert.Length = 128  # L, specials included (paper: 180)
  # wordpieces that tell queries from passages: BERT leaves them unused
  query_marker: str = '[unused0]'
  passage_marker: str = '[unused1]'
  mask_punctuation: bool = True  # whether punctuation has no vector

  def __post_init__(self):
    settings.check(self)
    for name in ('query_length', 'passage_length'):
      if (value := getattr(self, name)) < _MIN_LENGTH:
        raise settings.SettingsError(name, value, f'at least {_MIN_LENGTH}')


class Colbert(nn.Module):
  """BERT and a linear layer without bias; vectors have length 1."""

  config: bert.BertConfig
  vector_size: int = 128

  @nn.compact
  def __call__(
    self,
    ids: Int[Array, 'b l'],
    mask: Bool[Array, 'b l'],
    *,
    train: bool = False,
  ) -> Float[Array, 'b l d']:
    """Return the vectors of all tokens, float32; arguments are those of `Bert`."""
    hidden = bert.Bert(self.config, name='bert')(ids, mask, train=train).hidden
    # Orthogonal columns keep the angles of a trained BERT's hidden states best.
    init = nn.initializers.orthogonal()
    vectors = nn.Dense(
      self.vector_size,
      use_bias=False,
      dtype=self.config.dtype,
      param_dtype=self.config.param_dtype,
      kernel_init=partitioning.partitioned(init, 'embed', None),
      dot_general=products.dot_general,
      name='linear',
    )(hidden).astype(jnp.float32)
    squares = jnp.sum(vectors * vectors, axis=-1, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(squares, 1e-12))


def max_sim(
  queries: Float[Array, 'A Q D'],
  passages: Float[Array, 'P L D'],
  mask: Bool[Array, 'P L'],
) -> Float[Array, 'A P']:
  """Return the scores of all passages for all queries (eq. 3).

  Args:
    mask: True where a token of a passage has a vector; one at least is True.
  """
  cosines = jnp.einsum(
    'aqd,pld->aqpl',
    queries,
    passages,
    preferred_element_type=jnp.float32,
    precision='highest',
  )
  return jnp.where(mask, cosines, -jnp.inf).max(axis=-1).sum(axis=1)


def titled(title: str, text: str) -> str:
  """Return a passage below its title, as it is encoded."""
  return f'{title}\n{text}'


class Rows:
  """Rows of wordpieces for queries and passages."""

  def __init__(
    self, config: ColbertConfig, tokenizer: tokenization.WordPieceTokenizer
  ):
    """Look the markers up."""
    self.config, self.tokenizer = config, tokenizer
    self._query = tokenizer.id_of(config.query_marker)
    self._passage = tokenizer.id_of(config.passage_marker)
    marks = tokenizer.encode_ids_batch(list(string.punctuation), 3)
    self._punctuation = np.unique(
      [row[1] for row in marks if len(row) == 3 and row[1] != tokenizer.unk_id]
    )

  def queries(self, texts: Sequence[str]) -> Int[np.ndarray, 'A Q']:
    """Return int32 rows, filled with [MASK], to which all tokens attend."""
    texts = arguments.texts(texts, 'texts')
    rows = self._marked(texts, self._query, self.config.query_length)
    ids = np.full(
      (len(rows), self.config.query_length), self.tokenizer.mask_id, np.int32
    )
    for i, row in enumerate(rows):
      ids[i, : len(row)] = row
    return ids

  def passages(self, texts: Sequence[str]) -> list[list[int]]:
    """Return rows of at most L ids, without padding."""
    texts = arguments.texts(texts, 'texts')
    return self._marked(texts, self._passage, self.config.passage_length)

  def has_vector(self, ids: Int[np.ndarray, '*n']) -> Bool[np.ndarray, '*n']:
    """Return False for the punctuation of a passage, where it is masked."""
    if not self.config.mask_punctuation:
      return np.ones(np.shape(ids), bool)
    return ~np.isin(ids, self._punctuation)

  def _marked(
    self, texts: Sequence[str], marker: int, length: int
  ) -> list[list[int]]:
    rows = self.tokenizer.encode_ids_batch(texts, length - 1)
    return [[row[0], marker, *row[1:]] for row in rows]
