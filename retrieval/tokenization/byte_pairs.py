# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Byte pair encoding over bytes, as GPT-2's, through the `tokenizers` library.

Radford et al. 2019: the text of a token is exactly its bytes. If every byte is
a token, decode(encode(text)) == text for every text. A special token in a text
is read as text; an added token that is not special stands for its text.
"""

from collections.abc import Mapping, Sequence
import contextlib
import functools
import json
import os
import pathlib
import re
from typing import Any
import uuid

import numpy as np

from retrieval import arguments
from retrieval.store import manifests, output_files
from retrieval.tokenization import base, chat_templates, rust_tokenizers

FILE = 'tokenizer.json'
_SETTINGS = 'tokenizer_config.json'
END_OF_TEXT = '<|endoftext|>'
_SPECIALS = ('bos', 'eos', 'pad')
# A tokenizer that normalizes text changes this text.
_PROBE = 'xX  \ufb01\t e\u0301\r\n 12 <|endoftext|>'
# GPT-2 writes these bytes into vocabularies as themselves, others as other letters.
_SHOWN = [*range(33, 127), *range(161, 173), *range(174, 256)]
_HIDDEN = [b for b in range(256) if b not in _SHOWN]
_BYTES = {chr(b): b for b in _SHOWN}
_BYTES |= {chr(256 + i): b for i, b in enumerate(_HIDDEN)}


def make_spec(
  tokens: Sequence[str],
  merges: Sequence[str],
  specials: Sequence[int] = (),
  *,
  plain: Sequence[int] = (),
  split_digits: bool = False,
  pattern: str = '',
  ignore_merges: bool = False,
) -> dict[str, Any]:
  """Make the content of a tokenizer.json.

  Args:
    tokens: the vocabulary, by id, in letters that represent bytes.
    merges: pairs of tokens to merge, 'left right', in order of priority.
    specials: ids of tokens that `encode` never gives.
    plain: ids of tokens that are texts, not letters for bytes, wherever they stand.
    pattern: regular expression of the pieces that are merged; '' is GPT-2's.
    ignore_merges: whether a piece that is a token stays one without merges.
  """
  cut = [{'type': 'Digits', 'individual_digits': True}] if split_digits else []
  if pattern:
    cut.append(
      {
        'type': 'Split',
        'pattern': {'Regex': pattern},
        'behavior': 'Isolated',
        'invert': False,
      }
    )
  by_bytes = {
    'type': 'ByteLevel',
    'add_prefix_space': False,
    'trim_offsets': False,
    'use_regex': not pattern,
  }
  flags = ('single_word', 'lstrip', 'rstrip', 'normalized')
  return {
    'version': '1.0',
    'added_tokens': [
      {'id': int(i), 'content': tokens[i], 'special': special}
      | dict.fromkeys(flags, False)
      for ids, special in ((specials, True), (plain, False))
      for i in ids
    ],
    'normalizer': None,
    'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [*cut, by_bytes]},
    'post_processor': None,
    'decoder': by_bytes,
    'model': {
      'type': 'BPE',
      'vocab': {token: i for i, token in enumerate(tokens)},
      'merges': list(merges),
      **({'ignore_merges': True} if ignore_merges else {}),
    },
  }


def read_spec(path: pathlib.Path) -> dict[str, Any] | None:
  """Read a tokenizer.json of byte pairs over bytes; None for another kind."""
  spec = rust_tokenizers.read_spec(path)
  with rust_tokenizers.refusing(path):
    cutter = json.dumps(spec.get('pre_tokenizer'))
  kind, vocab = (spec['model'].get(x) for x in ('type', 'vocab'))
  is_known = kind == 'BPE' and isinstance(vocab, dict)
  return spec if is_known and 'ByteLevel' in cutter else None


def write(
  path: str | os.PathLike,
  spec: Mapping[str, Any],
  specials: Mapping[str, str],
  chat: chat_templates.ChatTemplate | None = None,
) -> None:
  """Write a tokenizer.json, the tokens for 'bos', 'eos' and 'pad', and a template."""
  path = pathlib.Path(path)
  settings = {f'{name}_token': specials[name] for name in _SPECIALS}
  settings |= chat.fields() if chat else {}
  # The vocabulary comes last: it makes the tokenizer complete.
  for name, content in ((_SETTINGS, settings), (FILE, spec)):
    text = json.dumps(content, ensure_ascii=False, indent=1) + '\n'
    output_files.write(path / name, text)


def read_settings(
  folder: pathlib.Path,
) -> tuple[dict[str, str], chat_templates.ChatTemplate | None]:
  """Read tokens for 'bos', 'eos' and 'pad', and the chat template, if there is one."""
  path = folder / _SETTINGS
  settings = manifests.read_object(path) if path.is_file() else {}
  names: dict[str, str] = {}
  for name in _SPECIALS:
    token = settings.get(f'{name}_token')
    token = token.get('content') if isinstance(token, dict) else token
    names[name] = token or names.get('eos') or END_OF_TEXT
    if not isinstance(names[name], str):
      raise ValueError(f'{path}: {name}_token {token!r}; expected a text.')
  return names, chat_templates.read(folder, settings)


class BytePairTokenizer(base.Tokenizer):
  """A byte pair encoding of all bytes.

  Attributes, beside those of every tokenizer:
    token_bytes: [vocab_size] bytes of each token; none for specials.
    token_num_bytes: [vocab_size] int32, how many.
    chat: the template of conversations, or None. It decides no ids of a text, so it
      is no part of the fingerprint.
  """

  def __init__(
    self,
    path: str | os.PathLike,
    spec: Mapping[str, Any] | None = None,
    specials: Mapping[str, str] | None = None,
    chat: chat_templates.ChatTemplate | None = None,
  ):
    """Load a tokenizer.

    Args:
      path: tokenizer.json, or its folder; tokenizer_config.json beside it names
        the special tokens, by default <|endoftext|>.
      spec, specials, chat: contents of both files, if they are not those at `path`.
    """
    if spec is None:
      path = base.find(path, (FILE,))
      spec = read_spec(path)
      specials, chat = read_settings(path.parent)
    if spec is None:
      raise ValueError(f'{path}: not a byte pair encoding over bytes.')
    self._path, self._spec, self._specials = str(path), spec, specials
    self.chat = chat
    added = {x['content']: x for x in spec.get('added_tokens') or ()}
    self.vocabulary = {
      **spec['model']['vocab'],
      **{token: x['id'] for token, x in added.items()},
    }
    missing = {*specials.values()} - {*self.vocabulary}
    if missing:
      raise ValueError(f'{path}: the vocabulary lacks {sorted(missing)}.')
    self.vocab_size = max(self.vocabulary.values()) + 1
    self.bos_id, self.eos_id, self.pad_id = (
      self.vocabulary[specials[name]] for name in _SPECIALS
    )
    self.fingerprint = manifests.fingerprint([spec, specials])
    controls = {x for x in added if added[x].get('special')}
    controls |= {*specials.values()}
    plain = [x for token, x in added.items() if token not in controls]
    self._controls = _pattern([added.get(x, {'content': x}) for x in controls])
    self._tokenizer = _make(spec, self.vocabulary, plain, path)
    self.token_bytes = [b''] * self.vocab_size
    for token, i in self.vocabulary.items():
      if token in added and token not in controls:
        self.token_bytes[i] = token.encode()
      elif token not in controls and _BYTES.keys() >= {*token}:
        self.token_bytes[i] = bytes(_BYTES[letter] for letter in token)
    self.token_num_bytes = np.asarray(
      [len(b) for b in self.token_bytes], np.int32
    )
    if self.decode(self.encode(_PROBE).ids) != _PROBE:
      raise ValueError(f'{path}: this tokenizer changes text.')

  def encode_batch(self, texts: Sequence[str]) -> list[base.Encoding]:
    """Encode texts on all cores; add no specials.

    Bytes that the vocabulary lacks (control characters, in some) are skipped.
    """
    texts = list(arguments.texts(texts, 'texts'))
    with rust_tokenizers.refusing(self._path, 'cannot encode a text'):
      encodings = self._tokenizer.encode_batch_fast(
        texts, add_special_tokens=False
      )
    return [
      self._encoding(text, encoding.ids)
      for text, encoding in zip(texts, encodings, strict=True)
    ]

  def _encoding(self, text: str, row: list[int]) -> base.Encoding:
    ids = np.fromiter(row, np.int32, len(row))
    lengths = self.token_num_bytes[ids].astype(np.int64)
    ends = np.cumsum(lengths)
    if len(text.encode()) == (ends[-1] if row else 0):
      return base.Encoding(ids, np.stack([ends - lengths, ends], axis=1))
    slow = self._tokenizer.encode(text, add_special_tokens=False)
    return base.Encoding(ids, base.byte_offsets(text, slow.offsets))

  def decode(self, ids: Sequence[int | np.integer] | np.ndarray) -> str:
    """Decode ids; a character cut in the middle becomes U+FFFD."""
    row = np.asarray(ids, np.int64).tolist()
    return b''.join([self.token_bytes[i] for i in row]).decode(errors='replace')

  def encode_chat(
    self, messages: Sequence[chat_templates.Message]
  ) -> list[int]:
    """Encode messages by the chat template, up to where the answer begins.

    Special tokens of the template are tokens; those in a message are text, so that no
    message ends its turn. ValueError without a template, or where it refuses them.
    """
    if self.chat is None:
      raise ValueError(f'{self._path}: no chat template.')
    mark = uuid.uuid4().hex

    def hide(text):
      return self._controls.sub(lambda x: f'{mark}{x[0].encode().hex()}.', text)

    hidden = [{**x, 'content': hide(x['content'])} for x in messages]
    text, ids, start = self.chat.render(hidden), [], 0
    for match in [*self._controls.finditer(text), None]:
      part = text[start : match.start() if match else None]
      part = re.sub(
        rf'{mark}(\w+)\.', lambda x: bytes.fromhex(x[1]).decode(), part
      )
      ids += self.encode(part).ids.tolist()
      if match:
        ids.append(self.vocabulary[match[0].strip()])
        start = match.end()
    return ids

  @functools.cached_property
  def chat_ends(self) -> tuple[int, ...]:
    """Ids that end an answer: of the template's turn, and of a document."""
    ends = {self.eos_id}
    if self.chat is not None:
      mark, tokens = uuid.uuid4().hex, [self.chat.tokens.get('eos_token')]
      roles = ('user', 'x'), ('assistant', mark)
      turns = [{'role': role, 'content': text} for role, text in roles]
      with contextlib.suppress(ValueError):
        text = self.chat.render(turns, answer=False).partition(mark)[2]
        tokens += [x[0].strip() for x in self._controls.finditer(text)][:1]
      ends |= {self.vocabulary[x] for x in tokens if x in self.vocabulary}
    return tuple(sorted(ends))

  def save(self, path: str | os.PathLike) -> None:
    """Write the tokenizer into the folder `path`."""
    write(path, self._spec, self._specials, self.chat)


def _pattern(controls: Sequence[Mapping[str, Any]]) -> re.Pattern[str]:
  """Return the expression of control tokens, with blanks that they take."""
  longest = sorted(controls, key=lambda x: -len(x['content']))
  return re.compile(
    '|'.join(
      # from the first blank alone: a long row of blanks is read once
      (r'(?<!\s)\s*' if x.get('lstrip') else '')
      + re.escape(x['content'])
      + (r'\s*' if x.get('rstrip') else '')
      for x in longest
    )
  )


def _make(
  spec: Mapping[str, Any],
  vocabulary: Mapping[str, int],
  plain: Sequence[Mapping[str, Any]],
  path: str | os.PathLike,
) -> Any:
  """Make the library's tokenizer; it reads special tokens as text."""
  model = {**spec['model'], 'vocab': vocabulary, 'unk_token': None}
  # A token that took the blanks around it would lose them.
  added = [{**x, 'lstrip': False, 'rstrip': False} for x in plain]
  parts = {'version': '1.0', 'post_processor': None, 'added_tokens': added}
  return rust_tokenizers.make({**spec, **parts, 'model': model}, path)
