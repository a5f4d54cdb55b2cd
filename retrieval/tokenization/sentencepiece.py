# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Lossless SentencePiece: the text of a token is exactly its bytes.

Unigram pieces (Kudo 2018) with identity normalization and byte fallback.
SentencePiece replaces blanks with U+2581; this module encodes that character
itself by its bytes, so that decode(encode(text)) == text for every text.
"""

from collections.abc import Iterable, Iterator, Sequence
import io
import os
import pathlib
import re

from absl import logging
import numpy as np

from retrieval import arguments
from retrieval.store import checksums, output_files
from retrieval.tokenization import base

SPACE = '\u2581'
# A model that normalizes text changes this text.
_PROBE = 'x  \ufb01\t e\u0301\r\n '
# No piece holds these: a line break is one piece, the others are bytes.
_BREAKS = re.compile(f'[\n\0{SPACE}]')
_MAX_LINES = 1_000_000
_MAX_LINE_BYTES = 1 << 20
_TRAINING_THREADS = 2  # part of the result
_MAX_LINE_LENGTH = _MAX_LINE_BYTES // 4  # characters of up to 4 bytes


class SentencePieceTokenizer(base.Tokenizer):
  """A lossless SentencePiece model.

  Attributes, beside those of every tokenizer:
    unk_id: has no text; `encode` never gives it.
    token_num_bytes: [vocab_size] int32 UTF-8 bytes of each token; 0 for
      specials.
  """

  def __init__(self, path: str | os.PathLike):
    """Load a model: its file, or a folder that holds it under the name `model`."""
    import sentencepiece

    path = base.find(path, ('model',))
    self._model = path.read_bytes()
    try:
      if not self._model:
        raise RuntimeError('an empty file, which the library would load')
      self._processor = model = sentencepiece.SentencePieceProcessor(
        model_proto=self._model
      )
    except RuntimeError:
      raise ValueError(
        f'{path}: not a SentencePiece model ({len(self._model)} bytes).'
      ) from None
    self.vocab_size = model.GetPieceSize()
    self.pad_id, self.unk_id = model.pad_id(), model.unk_id()
    self.bos_id, self.eos_id = model.bos_id(), model.eos_id()
    self.fingerprint = checksums.hash_files([path])
    self._bytes = [self._piece_bytes(i) for i in range(self.vocab_size)]
    self.token_num_bytes = np.asarray([len(b) for b in self._bytes], np.int32)
    self._byte_ids = [model.PieceToId(f'<0x{b:02X}>') for b in range(256)]
    ids = model.EncodeAsIds(_PROBE)
    if self._join(ids) != _PROBE.encode() or len(set(self._byte_ids)) != 256:
      raise ValueError(
        f'{path}: this model normalizes text or has no byte fallback, and so '
        'loses text; train one with experiments.prepare, stage tokenizer.'
      )
    if min(self.pad_id, self.bos_id, self.eos_id) < 0:
      raise ValueError(f'{path}: the model lacks a pad, bos or eos id.')

  def _piece_bytes(self, i: int) -> bytes:
    model = self._processor
    if model.IsControl(i) or model.IsUnknown(i):
      return b''
    piece = model.IdToPiece(i)
    if model.IsByte(i):
      return bytes([int(piece[3:5], 16)])
    return piece.replace(SPACE, ' ').encode()

  def encode_batch(self, texts: Sequence[str]) -> list[base.Encoding]:
    """Encode texts; add no specials."""
    texts = list(arguments.texts(texts, 'texts'))
    rows = self._processor.EncodeAsIds(texts, num_threads=1)
    return [
      self._encoding(text, row) for text, row in zip(texts, rows, strict=True)
    ]

  def _encoding(self, text: str, row: list[int]) -> base.Encoding:
    if self._join(row) != text.encode():
      row = self._encode_by_parts(text)
    ids = np.fromiter(row, np.int32, len(row))
    lengths = self.token_num_bytes[ids].astype(np.int64)
    ends = np.cumsum(lengths)
    return base.Encoding(ids, np.stack([ends - lengths, ends], axis=1))

  def _encode_by_parts(self, text: str) -> list[int]:
    """Encode the text between U+2581 characters, and these by their bytes."""
    row = []
    for i, part in enumerate(text.split(SPACE)):
      ids = self._processor.EncodeAsIds(part)
      if self._join(ids) != part.encode():
        ids = self._as_bytes(part)
      row += (self._as_bytes(SPACE) if i else []) + ids
    return row

  def _as_bytes(self, text: str) -> list[int]:
    return [self._byte_ids[b] for b in text.encode()]

  def _join(self, row: Sequence[int]) -> bytes:
    return b''.join([self._bytes[i] for i in row])

  def decode(self, ids: Sequence[int | np.integer] | np.ndarray) -> str:
    """Decode ids; a character cut in the middle becomes U+FFFD."""
    row = np.asarray(ids, np.int64).tolist()
    return self._join(row).decode(errors='replace')

  def save(self, path: str | os.PathLike) -> None:
    """Write the model into the folder `path`."""
    output_files.write(pathlib.Path(path) / 'model', self._model)


def train_sentencepiece(
  texts: Iterable[str], model_path: str | os.PathLike, vocab_size: int
) -> SentencePieceTokenizer:
  """Train a lossless unigram model on texts and write it to `model_path`.

  Equal texts and arguments give an equal file. Texts are streamed; of their lines a
  million are sampled and held in memory. The vocabulary includes the 256 bytes and 4
  specials.

  Raises:
    ValueError: when the size is out of range, or too large or too small for the
      texts. Errors of the texts' iterator pass through.
  """
  import sentencepiece

  texts = arguments.texts(texts, 'texts')
  count, fault, model = 0, None, io.BytesIO()

  def lines():
    nonlocal count, fault
    try:
      for text in texts:
        for line in _lines(text):
          count += 1
          yield line
    except Exception as e:  # which the trainer would hide
      fault = e
      raise

  try:
    sentencepiece.SentencePieceTrainer.Train(
      sentence_iterator=lines(),
      model_writer=model,
      vocab_size=vocab_size,
      model_type='unigram',
      normalization_rule_name='identity',
      byte_fallback=True,
      add_dummy_prefix=False,
      remove_extra_whitespaces=False,
      split_digits=True,
      user_defined_symbols=['\n'],
      character_coverage=0.9995,
      input_sentence_size=_MAX_LINES,
      max_sentence_length=_MAX_LINE_BYTES,
      num_threads=_TRAINING_THREADS,
      pad_id=0,
      unk_id=1,
      bos_id=2,
      eos_id=3,
      minloglevel=2,
    )
  except RuntimeError as e:
    if fault:
      raise fault from None
    raise ValueError(_explained(str(e), vocab_size, count)) from None
  output_files.write(model_path, model.getvalue())
  logging.info('Trained %s on %d lines.', model_path, count)
  return SentencePieceTokenizer(model_path)


def _lines(text: str) -> Iterator[str]:
  """Cut a text into lines that are short enough for the trainer."""
  for line in _BREAKS.split(text):
    while len(line) > _MAX_LINE_LENGTH:
      cut = line.rfind(' ', 1, _MAX_LINE_LENGTH)
      cut = cut if cut > 0 else _MAX_LINE_LENGTH
      yield line[:cut]
      line = line[cut:]
    if line:
      yield line


def _explained(message: str, vocab_size: int, num_lines: int) -> str:
  """Explain the trainer's error in terms of the config."""
  what = f'tokenizer.vocab_size {vocab_size:,}: '
  if not num_lines:
    return f'{what}no text to train a tokenizer on.'
  if match := re.search(r'too high.*<= (\d+)', message):
    return (
      f'{what}too large for this text ({num_lines:,} lines), which allows '
      f'{int(match[1]):,} at most; lower it or bring more text.'
    )
  if match := re.search(r'required_chars. \d+ vs (\d+)', message):
    return (
      f"{what}too small for this text's characters; they and the bytes take "
      f'{int(match[1]):,}.'
    )
  return f'{what}the tokenizer could not be trained: {message}'
