# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Public decoders with their tokenizers, from GGUF files or folders of Hugging Face."""

from collections.abc import Callable, Mapping
import dataclasses
import importlib.util
import os
import pathlib
import re
from typing import Annotated, Any

from retrieval import settings as settings_lib, tokenization
from retrieval.formats import gguf_files, weights as weights_lib
from retrieval.store import hub, manifests
from retrieval.tokenization import byte_pairs, chat_templates
from retro_jax.nn import config as config_lib
from retro_jax.public import gguf_layouts, llama_layouts, public_decoders

_PIECES = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
  r'| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
)
_LLAMA = {
  'pattern': _PIECES.format(digits=r'\p{N}{1,3}'),
  'ignore_merges': True,
}
# Pre-tokenizer of a GGUF file -> how it cuts, for `byte_pairs.make_spec`.
_CUTS = {
  'smollm': {'split_digits': True},
  'gpt-2': {},
  'gpt2': {},
  'llama-bpe': _LLAMA,
  'llama3': _LLAMA,
  'qwen2': {'pattern': _PIECES.format(digits=r'\p{N}')},
}
_LATER = re.compile(r'-(?!00001)\d{5}-of-\d{5}\.gguf$')  # parts but the first
_TEMPLATE = 'tokenizer.chat_template'  # of a GGUF file
_FREQUENCIES = 'rope_freqs.weight'  # of Llama 3
# Types of its tokens; the others are controls.
_NORMAL, _USER_DEFINED = 1, 4


@dataclasses.dataclass(frozen=True)
class Source:
  """A public decoder."""

  path: pathlib.Path  # file of the weights
  fields: Mapping[str, Any]  # fields of RetroConfig except vocab_size
  params: Callable[[config_lib.RetroConfig], Any]  # config -> parameters
  tokenizer: tokenization.BytePairTokenizer


def package_folder(name: str) -> pathlib.Path | None:
  """Folder of an installed package, which is not imported; None without one."""
  spec = importlib.util.find_spec(name) if name.isidentifier() else None
  folders = spec and spec.submodule_search_locations
  return pathlib.Path(folders[0]) if folders else None


def find(source: str | os.PathLike) -> Source:
  """Open a decoder; its tensors are read later.

  Args:
    source: a file, a folder, a name on the Hub, or a package that carries one.

  Raises:
    FileNotFoundError: when `source` holds no decoder.
    ValueError: when it is damaged, or a decoder of another kind.
  """
  path = hub.local(source)
  if not path.exists():
    path = package_folder(os.fspath(source)) or path
  if (path / 'config.json').is_file():
    return _open_folder(path)
  files = sorted(path.glob('*.gguf')) if path.is_dir() else [path]
  files = [x for x in files if not _LATER.search(x.name)] or files
  if len(files) != 1 or not files[0].is_file():
    raise FileNotFoundError(
      f'--source {path}: expected a .gguf file, a folder with one (found '
      f'{len(files) if path.is_dir() else 0}), or a folder with config.json and '
      'model.safetensors.'
    )
  file = gguf_files.GgufFile(files[0])
  fields = gguf_layouts.fields(
    file.settings,
    'output.weight' not in file,
    file[_FREQUENCIES] if _FREQUENCIES in file else None,
  )
  tokenizer = _gguf_tokenizer(file)

  def params(config):
    arrays = gguf_layouts.arrays(file, config.head_dim)
    return llama_layouts.params(arrays, config, tokenizer.vocabulary)

  return Source(files[0], fields, params, tokenizer)


def _open_folder(folder: pathlib.Path) -> Source:
  """Open a folder in the form of Hugging Face."""
  settings = manifests.read_object(folder / 'config.json')
  kind = settings.get('model_type')
  if kind == 'gpt2':
    fields, params = public_decoders.gpt2_fields, public_decoders.gpt2_params
  elif kind in llama_layouts.MODEL_TYPES:
    fields, params = llama_layouts.fields, llama_layouts.params
  else:
    raise ValueError(
      f'model_type {kind!r}; expected one of '
      f'{("gpt2", *llama_layouts.MODEL_TYPES)}'
    )
  weights = weights_lib.find(folder)
  tokenizer = _folder_tokenizer(folder)

  def read(config):
    return params(weights_lib.read(weights), config, tokenizer.vocabulary)

  return Source(weights, fields(settings), read, tokenizer)


def _gguf_tokenizer(file) -> tokenization.BytePairTokenizer:
  def get(name, *kinds):
    """A setting, or a list of settings, of certain types."""
    value = file.settings.get(f'tokenizer.ggml.{name}')
    listed = value if isinstance(value, list) else [value]
    if not all(isinstance(x, kinds) for x in listed):
      raise ValueError(f'setting tokenizer.ggml.{name} is missing or damaged')
    return value

  kind, cut = get('model', str), get('pre', str, type(None)) or 'gpt-2'
  if kind != 'gpt2' or cut not in _CUTS:
    raise ValueError(
      f"tokenizer {kind!r} cut as {cut!r}; expected 'gpt2' cut as one of "
      f'{sorted(_CUTS)}'
    )
  tokens, kinds = get('tokens', str), get('token_type', int)
  if len({*tokens}) != len(tokens) or len(kinds) != len(tokens):
    raise ValueError(
      f'{len(tokens)} tokens, {len({*tokens})} of them different, with '
      f'{len(kinds)} types; expected each token once, with its type'
    )
  plain = [i for i, x in enumerate(kinds) if x == _USER_DEFINED]
  controls = [
    i for i, x in enumerate(kinds) if x not in (_NORMAL, _USER_DEFINED)
  ]
  spec = byte_pairs.make_spec(
    tokens,
    get('merges', str),
    controls,
    plain=plain,
    **_CUTS[cut],
  )
  of_tokens = Annotated[int, settings_lib.Range(0, len(tokens) - 1)]

  def special(name):
    i = public_decoders.checked(name, get(name, int), of_tokens)
    return tokens[i]

  bos = eos = byte_pairs.END_OF_TEXT
  if bos not in tokens:
    bos, eos = map(special, ('bos_token_id', 'eos_token_id'))
  specials, chat = {'bos': bos, 'eos': eos, 'pad': eos}, None
  if source := file.settings.get(_TEMPLATE):
    ids = (f'{x}_token_id' for x in ('bos', 'eos'))
    there = [x for x in ids if f'tokenizer.ggml.{x}' in file.settings]
    names = {x.removesuffix('_id'): special(x) for x in there}
    chat = chat_templates.ChatTemplate(str(source), names)
  return tokenization.BytePairTokenizer(file.path, spec, specials, chat)


def _folder_tokenizer(source: pathlib.Path) -> tokenization.BytePairTokenizer:
  """Open the tokenizer.json of a folder; its text is taken as it is."""
  path = source / byte_pairs.FILE
  spec = byte_pairs.read_spec(path) if path.is_file() else None
  if spec is None:
    raise ValueError(f'{path}: expected a byte pair encoding over bytes.')
  if (spec.get('normalizer') or {}).get('type') == 'NFC':
    spec |= {'normalizer': None}
  specials, chat = byte_pairs.read_settings(source)
  end = byte_pairs.END_OF_TEXT
  known = {*spec['model']['vocab']}
  known |= {token['content'] for token in spec.get('added_tokens') or ()}
  if end in known:
    specials = dict.fromkeys(specials, end)
  return tokenization.BytePairTokenizer(path, spec, specials, chat)
