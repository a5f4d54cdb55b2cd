# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders of sentence-transformers: pooling and layers after the encoder.

modules.json lists the modules: Transformer, Pooling, then Dense and Normalize, each
with a config.json. config_sentence_transformers.json has the prompts and the
similarity, sentence_bert_config.json the length of a text. A module, mode or value
that is not supported is refused.
"""

from collections.abc import Collection, Mapping, Sequence
import dataclasses
import json
import pathlib
from typing import Any

from jax import numpy as jnp
from jaxtyping import Array, Float

from retrieval.nn import bert, bert_checkpoint, bert_family, sentence_layers
from retrieval.store import manifests

MODULES = 'modules.json'
# Field of older files -> mode, in the order in which vectors are joined
_MODES = {
  'pooling_mode_cls_token': 'cls',
  'pooling_mode_max_tokens': 'max',
  'pooling_mode_mean_tokens': 'mean',
  'pooling_mode_mean_sqrt_len_tokens': 'mean_sqrt_len_tokens',
  'pooling_mode_weightedmean_tokens': 'weightedmean',
  'pooling_mode_lasttoken': 'lasttoken',
}
_NORMALIZE = sentence_layers.NORMALIZE
_METRICS = {
  'cosine': 'squared_l2',  # of vectors of length 1: the same order
  'dot': 'dot_product',
  'euclidean': 'squared_l2',
}
_QUERY, _PASSAGE = ('query',), ('document', 'passage', 'corpus')
PROMPTS = 'config_sentence_transformers.json'
FILES = MODULES, PROMPTS, 'sentence_bert_config.json'  # that a folder may have
# Field -> supported values, where it is there
_DENSE_FIELDS = {
  'module_input_name': ('sentence_embedding', None),
  'module_output_name': ('sentence_embedding', None),
}
_PROMPT_FIELDS = {
  'model_type': ('SentenceTransformer',),
  'similarity_fn_name': (*_METRICS, None),
}
_LENGTH_FIELDS = {
  'transformer_task': ('feature-extraction',),
  'module_output_name': ('token_embeddings',),
  'query_expansion': (None, False),
  'query_length': (None,),
  'document_length': (None,),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sentence:
  """How vectors of texts are made; the default is that of a plain BERT folder."""

  pooling: tuple[str, ...] = ('mean',)  # modes, whose vectors are joined
  include_prompt: bool = True  # whether tokens of a prompt are pooled
  # after pooling: 'Normalize', or the activation of a Dense layer
  layers: tuple[str, ...] = (_NORMALIZE,)
  query_prompt: str = ''  # before each query
  passage_prompt: str = ''  # before each passage
  similarity: str = 'cosine'

  @property
  def metric(self) -> str:
    """Metric of an index of the vectors, as of `searchers`."""
    return _METRICS[self.similarity]

  def dimension(self, width: int, params: Mapping[str, Any]) -> int:
    """Return the width of vectors; ValueError for layers that do not fit."""
    width *= len(self.pooling)
    return sentence_layers.width(self.layers, params, width)

  def apply(
    self,
    params: Mapping[str, Any],
    hidden: bert.Hidden,
    mask: bert.Mask,
    skipped: int = 0,
  ) -> Float[Array, 'b e']:
    """Return float32 vectors.

    Args:
      params: of the layers, as of `sentence_layers.read`.
      hidden: output of the encoder.
      mask: False at padding, which is on the right.
      skipped: first positions that are not pooled.
    """
    pooled = mask & (jnp.arange(mask.shape[1]) >= skipped)
    vectors = [_pool(x, hidden, mask, pooled) for x in self.pooling]
    x = jnp.concatenate(vectors, axis=1)
    return sentence_layers.apply(self.layers, params, x)


def _pool(mode, hidden, mask, pooled):
  """Pool the positions of `pooled`; `mask` marks the text with its prompt."""
  hidden = hidden.astype(jnp.float32)
  if mode in ('cls', 'lasttoken'):
    last = mask.shape[1] - 1 - pooled[:, ::-1].argmax(axis=1)
    at = pooled.argmax(axis=1) if mode == 'cls' else last
    return jnp.take_along_axis(hidden, at[:, None, None], axis=1)[:, 0]
  if mode == 'max':
    return jnp.where(pooled[..., None], hidden, -jnp.inf).max(axis=1)
  if mode == 'weightedmean':
    shares = pooled * jnp.arange(1.0, 1.0 + mask.shape[1])
    total = jnp.einsum('bld,bl->bd', hidden, shares, precision='highest')
    return total / jnp.maximum(shares.sum(axis=1, keepdims=True), 1e-9)
  mean = bert.mean_pool(hidden, pooled)
  if mode == 'mean':
    return mean
  return mean * jnp.sqrt(pooled.sum(axis=1, keepdims=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Folder:
  """Statements of a folder on pooling, layers, prompts and lengths."""

  encoder: str = ''  # folder of the encoder, relative
  sentence: Sentence = Sentence()
  dense: sentence_layers.Params = dataclasses.field(default_factory=dict)
  lengths: Mapping[str, Any] | None = None  # as read; None without modules.json


def read(path: pathlib.Path) -> Folder:
  """Read a folder; without modules.json it is a plain one, the default."""
  if not (path / MODULES).is_file():
    return Folder()
  kinds, places = read_modules(
    path / MODULES, (('Transformer',), ('Pooling',)), ('Dense', _NORMALIZE)
  )
  file = path / places[1] / 'config.json'
  fields = read_fields(file, include_prompt=(True, False))
  pooling = _pooling(file, fields)
  layers, dense = sentence_layers.read(
    path, kinds[2:], places[2:], **_DENSE_FIELDS
  )
  file = path / PROMPTS
  stated = read_fields(file, needed=False, **_PROMPT_FIELDS)
  similarity = stated.get('similarity_fn_name') or 'cosine'
  if similarity == 'cosine' and layers[-1:] != (_NORMALIZE,):
    layers += (_NORMALIZE,)
  sentence = Sentence(
    pooling=pooling,
    include_prompt=fields.get('include_prompt', True),
    layers=layers,
    similarity=similarity,
    **read_prompts(file, stated),
  )
  lengths = read_lengths(path / places[0], **_LENGTH_FIELDS)
  return Folder(
    encoder=places[0], sentence=sentence, dense=dense, lengths=lengths
  )


def read_fields(
  file: pathlib.Path, needed: bool = True, **supported: Any
) -> dict[str, Any]:
  """Read an object, {} for a missing file unless needed, and check its fields."""
  if not needed and not file.is_file():
    return {}
  fields = manifests.read_object(file)
  bert_checkpoint.check_fields(file, fields, supported)
  return fields


def read_lengths(encoder: pathlib.Path, **supported: Any) -> dict[str, Any]:
  """Read the settings of the Transformer module in the encoder's folder."""
  fields = {}
  for model in ('bert', *bert_family.ROBERTA):
    file = encoder / f'sentence_{model}_config.json'
    fields = fields or read_fields(file, needed=False, **supported)
  return fields


def text_length(
  encoder: pathlib.Path, lengths: Mapping[str, Any], most: int
) -> int:
  """Return the stated tokens of a text, specials included, but at most `most`."""
  tokenizer = read_fields(encoder / 'tokenizer_config.json', needed=False)
  length = lengths.get('max_seq_length') or tokenizer.get('model_max_length')
  whole = isinstance(length, int | float) and length >= 1
  return int(min(length, most)) if whole else most


def read_modules(
  file: pathlib.Path, first: Sequence[Collection[str]], others: Collection[str]
) -> tuple[list[str], list[str]]:
  """Return the last name of each module's type, and its folder.

  `first` are the types that the first modules may have, `others` those of the others.
  """
  try:
    modules = json.loads(file.read_text(encoding='utf-8-sig'))
    kinds = [x['type'].rpartition('.')[2] for x in modules]
    places = [str(pathlib.PurePosixPath(x['path'])) for x in modules]
  except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as e:
    raise ValueError(
      f'{file}: {type(e).__name__} {e}; expected a list of modules, each with '
      'type and path.'
    ) from None
  if any('..' in x or x.startswith('/') for x in places):
    raise ValueError(f'{file}: path {places}; expected folders below it.')
  expected = [*first] + [others] * (len(kinds) - len(first))
  for number, names in enumerate(expected):
    fields = {'type': kinds[number] if number < len(kinds) else None}
    where = f'{file}: module {number}'
    bert_checkpoint.check_fields(where, fields, {'type': names})
  return kinds, places


def _pooling(file: pathlib.Path, fields: dict[str, Any]) -> tuple[str, ...]:
  """Return the modes of pooling."""
  modes = fields.get('pooling_mode')
  if modes is None:
    modes = [mode for old, mode in _MODES.items() if fields.get(old)]
    on = [x for x in fields if x.startswith('pooling_mode_') and fields[x]]
    modes = modes if len(modes) == len(on) else on
  modes = (modes or ['mean']) if isinstance(modes, list) else [modes]
  for mode in modes:
    supported = {'pooling_mode': _MODES.values()}
    bert_checkpoint.check_fields(file, {'pooling_mode': mode}, supported)
  return tuple(modes)


def read_prompts(
  file: pathlib.Path, fields: Mapping[str, Any]
) -> dict[str, str]:
  """Return query_prompt and passage_prompt of PROMPTS."""
  prompts = fields.get('prompts') or {}
  default = fields.get('default_prompt_name')
  if not isinstance(prompts, dict) or default not in (None, *prompts):
    raise ValueError(
      f'{file}: default_prompt_name {default!r}; expected a name of prompts, '
      f'{prompts!r}.'
    )

  def prompt(side, others):
    """The prompt of these names; the default, unless it is the other side's."""
    names = [x for x in side if x in prompts]
    names += [default] if default not in (None, *others) else []
    text = prompts[names[0]] if names else ''
    if not isinstance(text, str | None):
      raise ValueError(f'{file}: prompts {prompts!r}; expected texts.')
    return text or ''

  return {
    'query_prompt': prompt(_QUERY, _PASSAGE),
    'passage_prompt': prompt(_PASSAGE, _QUERY),
  }
