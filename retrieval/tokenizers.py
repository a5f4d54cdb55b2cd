# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers behind one protocol, with byte offsets and a fingerprint.

WordPiece is BERT's, through the `tokenizers` library. SentencePiece is trained
with identity normalisation and byte fallback and is lossless here: the text of
a token is exactly its bytes, so decode(encode(text)) == text for every text.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import os
import pathlib
import shutil
import tempfile
from typing import NamedTuple
from typing import Protocol

from absl import logging
import numpy as np

from retrieval import store

MAX_VOCAB_SIZE = 128_000
_SPACE = '\u2581'  # SentencePiece's stand-in for a blank


class Encoding(NamedTuple):
  """Tokens of one text.

  Attributes:
    ids: [n] int32.
    offsets: [n, 2] int64 first and past-last byte of each token in the text's
      UTF-8 form.
  """

  ids: np.ndarray
  offsets: np.ndarray


class Tokenizer(Protocol):
  """Text to ids and back.

  Attributes:
    vocab_size: number of ids.
    fingerprint: hash of everything that decides the ids.
    pad_id: id that fills up rows.
    bos_id: id that begins a document.
    eos_id: id that ends one.
  """

  vocab_size: int
  fingerprint: str
  pad_id: int
  bos_id: int
  eos_id: int

  def encode(self, text: str) -> Encoding:
    """Encodes one text; adds no specials."""

  def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
    """Encodes texts."""

  def decode(self, ids: Sequence[int]) -> str:
    """The text of ids, specials dropped."""

  def save(self, path: str | os.PathLike) -> None:
    """Writes the tokenizer into the folder `path`."""


class WordPieceTokenizer:
  """BERT's WordPiece from vocab.txt, tokenizer.json or a folder with one."""

  def __init__(self, path: str | os.PathLike, lowercase: bool = True):
    """Loads the vocabulary.

    Args:
      path: vocab.txt, tokenizer.json, or a folder that holds either.
      lowercase: lower case and strip accents (vocab.txt only; tokenizer.json
        says it itself).

    Raises:
      FileNotFoundError: when there is no such file.
      ValueError: when BERT's special tokens are not in the vocabulary.
    """
    import tokenizers

    path = _find(pathlib.Path(path), ('tokenizer.json', 'vocab.txt'))
    self._path = path
    if path.suffix == '.json':
      self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
    else:
      self._tokenizer = tokenizers.Tokenizer.from_str(
        tokenizers.implementations.BertWordPieceTokenizer(
          str(path), lowercase=lowercase
        ).to_str()
      )
    self._tokenizer.no_padding()
    self._tokenizer.no_truncation()
    self.vocab_size = self._tokenizer.get_vocab_size()
    self.pad_id = self._special('[PAD]')
    self.unk_id = self._special('[UNK]')
    self.cls_id = self._special('[CLS]')
    self.sep_id = self._special('[SEP]')
    self.mask_id = self._special('[MASK]')
    self.bos_id, self.eos_id = self.cls_id, self.sep_id
    self.fingerprint = store.fingerprint(self._tokenizer.to_str())

  def _special(self, token: str) -> int:
    found = self._tokenizer.token_to_id(token)
    if found is None:
      raise ValueError(f'{self._path}: the vocabulary holds no {token}.')
    return found

  def encode(self, text: str) -> Encoding:
    """Encodes one text; adds no specials."""
    return self.encode_batch([text])[0]

  def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
    """Encodes texts on all cores; adds no specials."""
    encodings = self._tokenizer.encode_batch(
      list(texts), add_special_tokens=False
    )
    return [
      Encoding(
        np.asarray(encoding.ids, np.int32),
        _byte_offsets(text, encoding.offsets),
      )
      for text, encoding in zip(texts, encodings, strict=True)
    ]

  def encode_ids_batch(
    self, texts: Sequence[str], max_length: int
  ) -> list[list[int]]:
    """BERT's input: [CLS] text [SEP], the text cut to fit `max_length`."""
    encodings = self._tokenizer.encode_batch_fast(
      list(texts), add_special_tokens=False
    )
    keep = max_length - 2
    return [
      [self.cls_id, *encoding.ids[:keep], self.sep_id] for encoding in encodings
    ]

  def decode(self, ids: Sequence[int]) -> str:
    """The text of ids, specials dropped; blanks are WordPiece's guess."""
    ids = np.asarray(ids).tolist()
    return self._tokenizer.decode(ids, skip_special_tokens=True)

  def save(self, path: str | os.PathLike) -> None:
    """Writes tokenizer.json into the folder `path`."""
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    text = self._tokenizer.to_str().encode()
    store.write_atomically(path / 'tokenizer.json', text)


class SentencePieceTokenizer:
  """A lossless SentencePiece model.

  Attributes:
    token_num_bytes: [vocab_size] int32 UTF-8 bytes that each token stands for;
      0 for specials.
  """

  def __init__(self, path: str | os.PathLike):
    """Loads a model.

    Args:
      path: the model file, or a folder that holds it under the name `model`.

    Raises:
      FileNotFoundError: when there is no such file.
      ValueError: when it is no model, or one without byte fallback.
    """
    self._path = _find(pathlib.Path(path), ('model',))
    self._model = self._path.read_bytes()
    self._start()
    model = self._processor
    self.vocab_size = model.GetPieceSize()
    self.pad_id, self.unk_id = model.pad_id(), model.unk_id()
    self.bos_id, self.eos_id = model.bos_id(), model.eos_id()
    self.fingerprint = store.hash_files([self._path])
    self._bytes = [self._piece_bytes(i) for i in range(self.vocab_size)]
    self.token_num_bytes = np.asarray([len(b) for b in self._bytes], np.int32)
    self._byte_ids = [model.PieceToId(f'<0x{b:02X}>') for b in range(256)]
    if len(set(self._byte_ids)) != 256:
      raise ValueError(
        f'{self._path}: a model without byte fallback loses text; train one '
        'with experiments.train_tokenizer.'
      )

  def _start(self) -> None:
    import sentencepiece

    try:
      self._processor = sentencepiece.SentencePieceProcessor(
        model_proto=self._model
      )
    except RuntimeError:
      raise ValueError(
        f'{self._path}: not a SentencePiece model ({len(self._model)} bytes).'
      ) from None

  def __getstate__(self):
    return {k: v for k, v in self.__dict__.items() if k != '_processor'}

  def __setstate__(self, state):
    self.__dict__.update(state)
    self._start()

  def _piece_bytes(self, i: int) -> bytes:
    model = self._processor
    if model.IsControl(i) or model.IsUnknown(i):
      return b''
    piece = model.IdToPiece(i)
    if model.IsByte(i):
      return bytes([int(piece[3:5], 16)])
    return piece.replace(_SPACE, ' ').encode()

  def encode(self, text: str) -> Encoding:
    """Encodes one text; adds no specials."""
    return self.encode_batch([text])[0]

  def encode_batch(
    self, texts: Sequence[str], num_threads: int = 1
  ) -> list[Encoding]:
    """Encodes texts; adds no specials."""
    if not texts:
      return []
    rows = self._processor.EncodeAsIds(list(texts), num_threads=num_threads)
    return [
      self._checked(text, np.asarray(row, np.int32))
      for text, row in zip(texts, rows, strict=True)
    ]

  def _checked(self, text: str, ids: np.ndarray) -> Encoding:
    """Falls back to bytes where the model's pieces would lose something."""
    data = text.encode()
    lengths = self.token_num_bytes[ids]
    if lengths.sum() != len(data) or self._join(ids) != data:
      ids = self._encode_by_parts(text)
      lengths = self.token_num_bytes[ids]
    ends = np.cumsum(lengths, dtype=np.int64)
    return Encoding(ids, np.stack([ends - lengths, ends], axis=1))

  def _encode_by_parts(self, text: str) -> np.ndarray:
    """Encodes runs of ordinary characters, and the others byte by byte."""
    ids: list[int] = []
    run = ''
    for character in text:
      if character == _SPACE or not self._survives(character):
        ids += self._run(run)
        ids += [self._byte_ids[b] for b in character.encode()]
        run = ''
      else:
        run += character
    return np.asarray(ids + self._run(run), np.int32)

  def _survives(self, character: str) -> bool:
    ids = self._processor.EncodeAsIds(character)
    return self._join(ids) == character.encode()

  def _run(self, text: str) -> list[int]:
    ids = self._processor.EncodeAsIds(text) if text else []
    if self._join(ids) == text.encode():
      return ids
    return [self._byte_ids[b] for b in text.encode()]

  def _join(self, ids: Sequence[int]) -> bytes:
    return b''.join([self._bytes[i] for i in ids])

  def decode(self, ids: Sequence[int]) -> str:
    """The text of ids; a character cut in the middle becomes U+FFFD."""
    return self._join(np.asarray(ids).tolist()).decode(errors='replace')

  def save(self, path: str | os.PathLike) -> None:
    """Writes the model into the folder `path`."""
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    store.write_atomically(path / 'model', self._model)


def _find(path: pathlib.Path, names: Sequence[str]) -> pathlib.Path:
  candidates = [path / name for name in names] if path.is_dir() else [path]
  for candidate in candidates:
    if candidate.is_file():
      return candidate
  expected = ' or '.join(str(c) for c in candidates)
  raise FileNotFoundError(f'No tokenizer: expected {expected}.')


def _byte_offsets(text: str, offsets: Sequence[tuple[int, int]]) -> np.ndarray:
  """Character offsets to offsets in the text's UTF-8 form."""
  points = np.frombuffer(text.encode('utf-32-le'), np.uint32)
  width = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
  ends = np.concatenate([[0], np.cumsum(width, dtype=np.int64)])
  return ends[np.asarray(offsets, np.int64).reshape(-1, 2)]


def load_tokenizer(path: str | os.PathLike) -> Tokenizer:
  """Loads whichever tokenizer stands at `path`.

  Args:
    path: a SentencePiece model, vocab.txt, tokenizer.json, or a folder with one
      of these.

  Returns:
    The tokenizer.

  Raises:
    FileNotFoundError: when there is none.
  """
  found = _find(pathlib.Path(path), ('model', 'tokenizer.json', 'vocab.txt'))
  if found.suffix in ('.json', '.txt'):
    return WordPieceTokenizer(found)
  return SentencePieceTokenizer(found)


def train_sentencepiece(
  texts: Iterable[str],
  model_path: str | os.PathLike,
  vocab_size: int,
  *,
  max_sentences: int = 1_000_000,
  num_threads: int = 2,
) -> SentencePieceTokenizer:
  """Trains a lossless unigram model on texts.

  Args:
    texts: documents; their lines are what is learned from.
    model_path: file to write.
    vocab_size: 270 to 128,000; byte pieces and specials included.
    max_sentences: lines that are sampled from all of them.
    num_threads: of the trainer.

  Returns:
    The trained tokenizer.

  Raises:
    ValueError: when the size is out of range or the text too little for it.
  """
  import sentencepiece

  if not 270 <= vocab_size <= MAX_VOCAB_SIZE:
    raise ValueError(
      f'vocab_size {vocab_size}: expected 270 to {MAX_VOCAB_SIZE:,}.'
    )
  model_path = pathlib.Path(model_path)
  model_path.parent.mkdir(parents=True, exist_ok=True)
  lines = (line for text in texts for line in _lines(text))
  with tempfile.TemporaryDirectory(dir=model_path.parent) as folder:
    prefix = str(pathlib.Path(folder) / 'trained')
    try:
      sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=lines,
        model_prefix=prefix,
        vocab_size=vocab_size,
        model_type='unigram',
        normalization_rule_name='identity',
        byte_fallback=True,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        split_digits=True,
        user_defined_symbols=['\n'],
        character_coverage=0.9995,
        input_sentence_size=max_sentences,
        max_sentence_length=1 << 20,
        num_threads=num_threads,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        minloglevel=2,
      )
    except RuntimeError as e:
      raise ValueError(
        f'A vocabulary of {vocab_size:,} could not be trained on this text: '
        f'{e}. Lower tokenizer.vocab_size or bring more text.'
      ) from None
    shutil.move(f'{prefix}.model', model_path)
  logging.info('Trained %s, %d pieces.', model_path, vocab_size)
  return SentencePieceTokenizer(model_path)


def _lines(text: str) -> Iterable[str]:
  for line in text.split('\n'):
    if line and '\0' not in line:
      yield line
