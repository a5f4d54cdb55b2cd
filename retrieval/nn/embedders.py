# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Embedding of texts: mean-pooled BERT over length-bucketed, sharded batches.

Sentence-BERT's pooling (Reimers and Gurevych 2019) averages all real tokens,
[CLS] and [SEP] included.
"""

from collections.abc import Iterator, Sequence
import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import pathlib
import shutil
from typing import Any

import jax
from jax import numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np
import tokenizers

from retrieval import arguments
from retrieval.nn import (
  batch_encoder,
  bert,
  bert_checkpoint,
)
from retrieval.store import drafts, store
from retrieval.tokenization import rust_tokenizers

Progress = batch_encoder.Progress

_WINDOW = 4096  # texts that the background tokenises at once


def encode(
  model: bert.Bert,
  normalize: bool,
  params: Any,
  ids: Int[Array, 'b l'],
  lengths: Int[Array, ' b'],
) -> Float[Array, 'b d']:
  """Return the float32 vectors of rows of WordPiece ids; to be jitted.

  Args:
    normalize: whether vectors are scaled to length 1.
    params: of the model.
    lengths: [b] ids of each row that count, the first ones.
  """
  mask = jnp.arange(ids.shape[1]) < lengths[:, None]
  hidden = model.apply({'params': params}, ids.astype(jnp.int32), mask).hidden
  vectors = bert.mean_pool(hidden, mask)
  if normalize:
    norms = jnp.linalg.norm(vectors, axis=1, keepdims=True)
    vectors /= jnp.maximum(norms, 1e-12)
  return vectors


def _fingerprint(config, params, tokenizer, max_length, normalize) -> str:
  settings = {
    'config': {k: str(v) for k, v in dataclasses.asdict(config).items()},
    'dtype': jnp.dtype(config.dtype).name,
    'max_length': max_length,
    'normalize': normalize,
    'tokenizer': json.loads(tokenizer.to_str())
    | {'padding': None, 'truncation': None},
  }
  digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    digest.update(f'{jax.tree_util.keystr(path)}{leaf.shape}'.encode())
    digest.update(np.ascontiguousarray(leaf, dtype=np.float32))
  return digest.hexdigest()


class Embedder:
  """A frozen BERT that embeds texts on all local devices."""

  def __init__(
    self,
    config: bert.BertConfig,
    params: dict,
    tokenizer: tokenizers.Tokenizer,
    *,
    max_length: int = 256,
    normalize: bool = True,
    batch_tokens: int = 0,
    devices: Sequence[jax.Device] | None = None,
  ):
    """Place the parameters on the devices.

    Args:
      config: sizes and compute dtype of the encoder.
      tokenizer: WordPiece tokenizer that adds [CLS] and [SEP].
      max_length: tokens kept of a text, [CLS] and [SEP] included.
      normalize: whether vectors are scaled to length 1.
      batch_tokens, devices: as of `batch_encoder.BatchEncoder`.
    """
    if not 2 < max_length <= config.max_length:
      raise ValueError(
        f'max_length {max_length} is not in 3 to {config.max_length}, the '
        'position embeddings.'
      )
    self.config = config
    self.max_length = max_length
    self.normalize = normalize
    self.fingerprint = _fingerprint(
      config, params, tokenizer, max_length, normalize
    )
    self._tokenizer = rust_tokenizers.without_specials(
      tokenizers.Tokenizer.from_str(tokenizer.to_str())
    )
    self._tokenizer.no_padding()
    self._tokenizer.enable_truncation(max_length)
    self._batch_tokens = batch_tokens
    # (params, ids [b, l], lengths [b]) -> vectors [b, d]; to be jitted
    self.encode = functools.partial(encode, bert.Bert(config), normalize)
    self._encoder = batch_encoder.BatchEncoder(
      self.encode,
      params,
      dimension=config.d_model,
      max_length=config.max_length,
      batch_tokens=batch_tokens,
      devices=devices,
    )

  def __reduce__(self):
    """Pickle what another process embeds with, on its own devices."""
    make = functools.partial(
      Embedder,
      max_length=self.max_length,
      normalize=self.normalize,
      batch_tokens=self._batch_tokens,
    )
    return make, (self.config, self.params, self._tokenizer)

  @classmethod
  def load(
    cls,
    path: str | pathlib.Path = 'minilm',
    *,
    dtype=None,
    **settings,
  ) -> 'Embedder':
    """Load an embedder from a folder in the Hugging Face layout.

    Args:
      path: folder with `config.json`, `model.safetensors` and `tokenizer.json`;
        'minilm' is the packaged all-MiniLM-L6-v2.
      dtype: compute dtype; None is float32 on a CPU and bfloat16 elsewhere.
      **settings: keyword arguments of `Embedder`.

    Raises:
      ValueError: if the folder or a tensor in it is missing or does not fit.
    """
    path = (
      bert_checkpoint.find_minilm() if path == 'minilm' else pathlib.Path(path)
    )
    if dtype is None:
      cpu = jax.default_backend() == 'cpu'
      dtype = jnp.float32 if cpu else jnp.bfloat16
    # The fingerprint spells the type: one spelling for each.
    dtype = jnp.dtype(dtype).name
    config, params = bert_checkpoint.load_bert(path, dtype=dtype)
    if not (path / 'tokenizer.json').is_file():
      raise ValueError(f'{path}: no tokenizer.json beside the checkpoint.')
    file = path / 'tokenizer.json'
    tokenizer = rust_tokenizers.make(rust_tokenizers.read_spec(file), file)
    return cls(config, params, tokenizer, **settings)

  @property
  def dimension(self) -> int:
    """Width of a vector."""
    return self.config.d_model

  @property
  def params(self) -> dict:
    """The parameters of `bert.Bert`, as host arrays."""
    return jax.tree.map(np.asarray, self._encoder.params)

  def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
    """Return the WordPiece ids of each text, cut to `max_length` of them."""
    texts = arguments.texts(texts, 'texts')
    return [x.ids for x in self._encode(texts)]

  def _encode(self, texts: Sequence[str]) -> list[tokenizers.Encoding]:
    with rust_tokenizers.refusing('tokenizer.json', 'cannot encode a text'):
      return self._tokenizer.encode_batch_fast(texts)

  def save(
    self, path: str | pathlib.Path, params: dict | None = None
  ) -> pathlib.Path:
    """Write a folder that `load` reads, under its name when it is whole.

    Args:
      params: other parameters of `bert.Bert`; None for the embedder's own.

    Raises:
      ValueError: if there is such a folder already.
    """
    path = pathlib.Path(path)
    draft = drafts.beside(path)
    draft.mkdir(parents=True)
    try:
      params = self.params if params is None else params
      bert_checkpoint.save(draft, self.config, params)
      tokenizer = tokenizers.Tokenizer.from_str(self._tokenizer.to_str())
      tokenizer.no_truncation()
      tokenizer.save(str(draft / 'tokenizer.json'))
      if not store.publish_folder(draft, path):
        raise ValueError(f'{path}: is there already; name another folder.')
    finally:
      shutil.rmtree(draft, ignore_errors=True)
    return path

  def embed_texts(
    self, texts: Sequence[str], progress: Progress | None = None
  ) -> np.ndarray:
    """Return vectors [len(texts), dimension] float32 in the order of the texts.

    Args:
      texts: texts, cut to `max_length` tokens.

    Raises:
      ValueError: if a vector is not finite.
    """
    texts = arguments.texts(texts, 'texts')
    with concurrent.futures.ThreadPoolExecutor(1) as background:
      return self._encoder(
        self._tokenize(background, texts), len(texts), progress
      )

  def _tokenize(
    self, background: concurrent.futures.Executor, texts: Sequence[str]
  ) -> Iterator[Sequence[int]]:
    """Yield the ids of each text; the background tokenises the next window."""

    def tokenize(start):
      return self._encode(texts[start : start + _WINDOW])

    pending = background.submit(tokenize, 0)
    for start in range(0, len(texts), _WINDOW):
      window = pending.result()
      pending = background.submit(tokenize, start + _WINDOW)
      for encoding in window:
        yield encoding.ids
