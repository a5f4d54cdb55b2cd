# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A cross-encoder: BERT reads query and passage together and scores the pair.

Nogueira and Cho 2019 (arXiv 1901.04085), section 3, with one score in place of
two classes: a linear map of the tanh layer over the first token. A folder is that of
a CrossEncoder of sentence-transformers, or of Hugging Face's
`...ForSequenceClassification`.
"""

from collections.abc import Sequence
import dataclasses
import functools
import os
from typing import Any

from jax import numpy as jnp
from jaxtyping import Array, Float32, Int
import numpy as np
import tokenizers

from retrieval import arguments
from retrieval.formats import weights
from retrieval.nn import (
  batch_encoder,
  bert,
  bert_checkpoint,
  bert_family,
  embedders,
  sentence_folder,
)
from retrieval.store import hub, manifests
from retrieval.tokenization import rust_tokenizers

# Field -> supported values, where it is there
_PROMPT_FIELDS = {
  'model_type': ('CrossEncoder',),
  'default_prompt_name': (None,),
}
_TASKS = ('sequence-classification',)
_HEAD = 'classifier'
# The head's layers in RoBERTa, MPNet and ModernBERT -> their names here
_BERT_NAMES = {
  'classifier.dense': 'pooler.dense',
  'classifier.out_proj': _HEAD,
  'head.dense': 'pooler.dense',
  'head.norm': 'pooler.norm',
}


def _encode(
  config: bert.BertConfig,
  sep_id: int,
  params: Any,
  ids: Int[Array, 'b l'],
  lengths: Int[Array, ' b'],
) -> Float32[Array, 'b 1']:
  """Return the scores of padded pairs; to be jitted."""
  mask, types = bert.segments(ids, lengths, sep_id)
  if isinstance(config, bert_family.FamilyConfig):
    types = None
  # The last layer is computed at [CLS] alone, but in MPNet, which cannot.
  first = jnp.zeros((len(ids), 1), jnp.int32)
  first = None if bert_family.is_mpnet(config) else first
  model = bert_family.module(config)
  pooled = model.apply({'params': params}, ids, mask, types, first).pooled
  head = params[_HEAD]
  scores = jnp.matmul(
    pooled.astype(jnp.float32), head['kernel'], precision='highest'
  )
  return scores + head['bias']


class CrossReranker:
  """A cross-encoder on all local devices; see `rerank.TextScorer`."""

  unit = 'logit of relevance'

  def __init__(
    self,
    config: bert.BertConfig,
    params: Any,
    tokenizer: tokenizers.Tokenizer,
    max_length: int,
  ):
    """Place the parameters on all local devices.

    Args:
      config: sizes of the encoder, with a pooler.
      params: of `bert_family.module(config)`, and kernel and bias of `classifier`.
      tokenizer: makes a row of ids of a pair of texts.
      max_length: of a row in tokens; the longer text of a pair is cut first.
    """
    self._tokenizer = tokenizer
    sizes = {k: str(v) for k, v in dataclasses.asdict(config).items()}
    self.fingerprint = manifests.fingerprint(
      [sizes, max_length, tokenizer.to_str(), weights.hash_params(params)]
    )
    self._tokenizer.enable_truncation(max_length)
    [empty] = self._pairs([('', '')])
    self._encoder = batch_encoder.BatchEncoder(
      functools.partial(_encode, config, empty[-1]),
      params,
      dimension=1,
      max_length=max_length,
    )

  def _pairs(self, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
    """Return the ids of each pair."""
    with rust_tokenizers.refusing('tokenizer.json', 'cannot encode a pair'):
      return [x.ids for x in self._tokenizer.encode_batch_fast(pairs)]

  def score(
    self, queries: Sequence[str], passages: Sequence[Sequence[str]]
  ) -> list[np.ndarray]:
    """See `rerank.TextScorer`."""
    queries = arguments.texts(queries, 'queries')
    passages = arguments.lists(passages, 'passages')
    pairs = zip(queries, passages, strict=True)
    rows = self._pairs([(query, x) for query, texts in pairs for x in texts])
    scores = self._encoder(rows, len(rows))[:, 0]
    ends = np.cumsum([len(texts) for texts in passages])
    return np.split(scores, ends)[:-1]


def load(path: str | os.PathLike) -> CrossReranker:
  """Load a folder of a cross-encoder, or its name on the Hub (`hub.local`).

  Scores are logits: the folder's activation, which keeps their order, is left out.

  Raises:
    FileNotFoundError: if a file is missing.
    ValueError: for a damaged file, and for all that is not supported.
  """
  folder = hub.complete(path, sentence_folder.FILES)
  config = bert_checkpoint.read_config(
    folder / 'config.json', bert_checkpoint.MODELS
  )
  modules = folder / sentence_folder.MODULES
  if modules.is_file():
    sentence_folder.read_modules(modules, (('Transformer',),), ())
  file = folder / sentence_folder.PROMPTS
  sentence_folder.read_fields(file, needed=False, **_PROMPT_FIELDS)
  lengths = sentence_folder.read_lengths(folder, transformer_task=_TASKS)
  max_length = sentence_folder.text_length(folder, lengths, config.max_length)
  source = weights.find(folder)
  tensors = {_renamed(k): x for k, x in weights.read(source).items()}
  shapes = [(1, config.d_model), (1,)]
  head = [tensors.pop(f'{_HEAD}.{x}', None) for x in ('weight', 'bias')]
  if [np.shape(x) for x in head] != shapes:
    raise ValueError(
      f'{source}: weight and bias of {_HEAD} {[np.shape(x) for x in head]}; '
      f'expected those of one score, {shapes}.'
    )
  config, params, _ = bert_checkpoint.convert(tensors, config, str(source))
  if not config.pooler:
    raise ValueError(f'{source}: no pooler.dense; expected it below {_HEAD}.')
  kernel, bias = (np.array(x.T, np.float32) for x in head)
  tokenizer = embedders.read_tokenizer(folder, lengths, config.vocab_size)
  params[_HEAD] = {'kernel': kernel, 'bias': bias}
  return CrossReranker(config, params, tokenizer, max_length)


def _renamed(name: str) -> str:
  layer, _, kind = name.rpartition('.')
  return f'{_BERT_NAMES.get(layer, layer)}.{kind}'
