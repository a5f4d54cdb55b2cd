# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Embedding of texts: a pooled encoder over length-bucketed, sharded batches.

A folder of sentence-transformers says how (`sentence_folder`). For a plain folder it
is Sentence-BERT's pooling (Reimers and Gurevych 2019): the mean of all real tokens,
[CLS] and [SEP] included, scaled to length 1.
"""

from collections.abc import Mapping, Sequence
import concurrent.futures
import dataclasses
import functools
import json
import pathlib
from typing import Any

import jax
from jax import numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np
import tokenizers
from tokenizers import normalizers

from retrieval import arguments
from retrieval.formats import weights
from retrieval.nn import (
  batch_encoder,
  bert,
  bert_checkpoint,
  bert_family,
  sentence_folder,
)
from retrieval.store import hub
from retrieval.tokenization import rust_tokenizers

Progress = batch_encoder.Progress

_PLAIN = sentence_folder.Sentence()
_WINDOW = 4096  # texts that the background tokenises at once


def _encode(
  model: bert_family.Encoder,
  sentence: sentence_folder.Sentence,
  skipped: int,
  params: Any,
  ids: Int[Array, 'b l'],
  lengths: Int[Array, ' b'],
) -> Float[Array, 'b d']:
  """Return the float32 vectors of rows of ids; to be jitted.

  Args:
    skipped: first ids of each row that are not pooled.
    params: of the model, and of the layers after pooling.
    lengths: [b] ids of each row that count, the first ones.
  """
  mask = jnp.arange(ids.shape[1]) < lengths[:, None]
  hidden = model.apply({'params': params}, ids.astype(jnp.int32), mask).hidden
  return sentence.apply(params, hidden, mask, skipped)


def _fingerprint(config, params, tokenizer, max_length, sentence) -> str:
  settings = {
    'config': {k: str(v) for k, v in dataclasses.asdict(config).items()},
    'dtype': jnp.dtype(config.dtype).name,
    'max_length': max_length,
    'normalize': sentence.layers[-1:] == _PLAIN.layers,
    'tokenizer': json.loads(tokenizer.to_str())
    | {'padding': None, 'truncation': None},
  }
  if sentence != _PLAIN:
    settings['sentence'] = dataclasses.asdict(sentence)
  text = json.dumps(settings, sort_keys=True)
  return weights.hash_params(params, text.encode())


class Embedder:
  """A frozen encoder that embeds texts on all local devices.

  Attributes:
    config: sizes and compute dtype of the encoder.
    fingerprint: hash of everything that decides the vectors.
    dimension: width of a vector.
    sentence: how vectors are made of the encoder's output; prompts; similarity.
    metric: metric of an index of the vectors, as of `searchers`.
  """

  metric = _PLAIN.metric

  def __init__(
    self,
    config: bert.BertConfig,
    params: dict,
    tokenizer: tokenizers.Tokenizer,
    *,
    max_length: int = 256,
    folder: sentence_folder.Folder | None = None,
    devices: Sequence[jax.Device] | None = None,
  ):
    """Place the parameters on the devices.

    Args:
      params: of `bert_family.module(config)`, and of the folder's layers.
      tokenizer: tokenizer that adds the special tokens.
      max_length: tokens of a text, special ones included; more are cut.
      folder: what the checkpoint's folder says; None is a plain folder.
      devices: as of `batch_encoder.BatchEncoder`.

    Raises:
      ValueError: for a length beyond the position embeddings, a prompt that fills
        it, or layers that do not fit.
    """
    if not 2 < max_length <= config.max_length:
      raise ValueError(
        f'max_length {max_length} is not in 3 to {config.max_length}, the '
        'position embeddings.'
      )
    self._folder = folder or sentence_folder.Folder()
    self.config, self.sentence = config, self._folder.sentence
    self.max_length = max_length
    self.metric = self.sentence.metric
    self.fingerprint = _fingerprint(
      config, params, tokenizer, max_length, self.sentence
    )
    self.dimension = self.sentence.dimension(config.d_model, params)
    self._tokenizer = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    self._tokenizer.encode_special_tokens = True
    self._tokenizer.no_padding()
    self._tokenizer.enable_truncation(max_length)

    module = bert_family.module(config)

    @functools.cache
    def encoder(skipped):
      return batch_encoder.BatchEncoder(
        functools.partial(_encode, module, self.sentence, skipped),
        params,
        dimension=self.dimension,
        max_length=config.max_length,
        devices=devices,
      )

    self._encoder = encoder(self._skipped(self.sentence.passage_prompt))
    params = self._encoder.params
    self._query_encoder = encoder(self._skipped(self.sentence.query_prompt))

  def __reduce__(self):
    """Pickle config, parameters and tokenizer for another process."""
    make = functools.partial(
      Embedder, max_length=self.max_length, folder=self._folder
    )
    params = jax.tree.map(np.asarray, self._encoder.params)
    return make, (self.config, params, self._tokenizer)

  @classmethod
  def load(
    cls,
    path: str | pathlib.Path = 'minilm',
    *,
    dtype=None,
    max_length: int | None = None,
    **settings,
  ) -> 'Embedder':
    """Load an embedder from a folder of sentence-transformers or Hugging Face.

    Args:
      path: folder with the files that `sentence_folder.read` reads, `config.json`,
        weights and `tokenizer.json`, or its name on the Hub (`hub.local`);
        'minilm' is the packaged all-MiniLM-L6-v2.
      dtype: compute dtype; None is float32 on a CPU and bfloat16 elsewhere.
      max_length: longest text in tokens; longer ones are cut. The folder's
        limit is the most. None is that limit, or 256 for a plain folder.
      **settings: keyword arguments of `Embedder`.

    Raises:
      FileNotFoundError: if a file is missing.
      ValueError: if a file does not fit, or states what is not supported.
    """
    path = bert_checkpoint.find_minilm() if path == 'minilm' else path
    path = hub.complete(path, sentence_folder.FILES)
    usual = 'float32' if jax.default_backend() == 'cpu' else 'bfloat16'
    # The fingerprint spells the type: one spelling for each.
    dtype = jnp.dtype(usual if dtype is None else dtype).name
    folder = sentence_folder.read(path)
    path /= folder.encoder
    config, params, _ = bert_checkpoint.load_mlm(
      path, bert_checkpoint.MODELS, dtype=dtype
    )
    lengths = folder.lengths
    if lengths is not None:
      stated = sentence_folder.text_length(path, lengths, config.max_length)
      max_length = min(max_length or stated, stated)
    return cls(
      config,
      params | folder.dense,
      read_tokenizer(path, lengths or {}, config.vocab_size),
      max_length=max_length or 256,
      folder=folder,
      **settings,
    )

  def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of each passage, cut to `max_length` of them."""
    texts = arguments.texts(texts, 'texts')
    return [x.ids for x in self._encodings(texts, self.sentence.passage_prompt)]

  def _encodings(self, texts: Sequence[str], prompt: str) -> list:
    with rust_tokenizers.refusing('tokenizer.json', 'cannot encode a text'):
      return self._tokenizer.encode_batch_fast([prompt + x for x in texts])

  def _skipped(self, prompt: str) -> int:
    """Return the first ids of a row that are not pooled."""
    if not prompt:
      return 0
    encoding = self._encodings([''], prompt)[0]
    length = len(encoding.ids) - encoding.special_tokens_mask[-1]
    if encoding.overflowing or length + 2 > self.max_length:
      raise ValueError(
        f'prompts: {prompt!r} leaves no room for a text in max_length '
        f'{self.max_length}; expected a shorter one.'
      )
    return 0 if self.sentence.include_prompt else length

  def embed_texts(
    self, texts: Sequence[str], progress: Progress | None = None
  ) -> np.ndarray:
    """Return vectors [len(texts), dimension] float32 of passages, in their order.

    The prompt of passages and a text are cut to `max_length` tokens. ValueError if a
    vector is not finite.
    """
    texts = arguments.texts(texts, 'texts')
    prompt = self.sentence.passage_prompt
    return self._embed(self._encoder, prompt, texts, progress)

  def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
    """Return vectors of queries; see `embed_texts`."""
    texts = arguments.texts(texts, 'texts')
    prompt = self.sentence.query_prompt
    return self._embed(self._query_encoder, prompt, texts)

  def _embed(self, encoder, prompt, texts, progress=None):
    """Embed texts; the background tokenises the next window."""

    def tokenize(start):
      window = texts[start : start + _WINDOW]
      return [x.ids for x in self._encodings(window, prompt)]

    def rows():
      pending = background.submit(tokenize, 0)
      for start in range(0, len(texts), _WINDOW):
        window = pending.result()
        pending = background.submit(tokenize, start + _WINDOW)
        yield from window

    with concurrent.futures.ThreadPoolExecutor(1) as background:
      return encoder(rows(), len(texts), progress)


def read_tokenizer(
  folder: pathlib.Path, lengths: Mapping[str, Any], vocab_size: int
) -> tokenizers.Tokenizer:
  """Read a tokenizer, which lowers the case of texts where `lengths` say so.

  ValueError if it is missing or damaged, or has more than `vocab_size` tokens.
  """
  file = folder / 'tokenizer.json'
  if not file.is_file():
    raise ValueError(f'{folder}: no tokenizer.json beside the checkpoint.')
  tokenizer = rust_tokenizers.make(rust_tokenizers.read_spec(file), file)
  beyond = [x for x, i in tokenizer.get_vocab().items() if i >= vocab_size]
  if beyond:
    raise ValueError(
      f'{folder}: {vocab_size} word embeddings, none for the tokens {beyond[:5]}.'
    )
  normalizer = tokenizer.normalizer
  lowers = normalizer and normalizer.normalize_str('ABC') == 'abc'
  if lengths.get('do_lower_case') and not lowers:
    lower = [normalizers.Lowercase(), *([normalizer] if normalizer else [])]
    tokenizer.normalizer = normalizers.Sequence(lower)
  return tokenizer
