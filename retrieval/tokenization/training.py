# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Training of a lossless SentencePiece model."""

from collections.abc import Iterable, Iterator
import io
import os
import re

from absl import logging

from retrieval.store import store
from retrieval.tokenization import sentencepiece as sentencepiece_lib

# No piece holds these: a line break is its own piece, the others are bytes.
_BREAKS = re.compile(f'[\n\0{sentencepiece_lib.SPACE}]')
_MAX_LINE_BYTES = 1 << 20
_MAX_LINE_LENGTH = _MAX_LINE_BYTES // 4  # characters of up to 4 bytes


def train_sentencepiece(
  texts: Iterable[str],
  model_path: str | os.PathLike,
  vocab_size: int,
  *,
  max_sentences: int = 1_000_000,
  num_threads: int = 2,
) -> sentencepiece_lib.SentencePieceTokenizer:
  """Train a lossless unigram model on texts and write it to `model_path`.

  Equal texts and arguments, `num_threads` included, give an equal file. Texts
  are streamed; of their lines `max_sentences` are sampled and held in memory.
  The vocabulary includes the 256 bytes and 4 specials.
  """
  import sentencepiece

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
      input_sentence_size=max_sentences,
      max_sentence_length=_MAX_LINE_BYTES,
      num_threads=num_threads,
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
  store.write_atomically(model_path, model.getvalue())
  logging.info('Trained %s on %d lines.', model_path, count)
  return sentencepiece_lib.SentencePieceTokenizer(model_path)


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
  if found := re.search(r'too high.*<= (\d+)', message):
    return (
      f'{what}too large for this text ({num_lines:,} lines), which allows '
      f'{int(found[1]):,} at most; lower it or bring more text.'
    )
  if found := re.search(r'required_chars. \d+ vs (\d+)', message):
    return (
      f"{what}too small for this text's characters; they and the bytes take "
      f'{int(found[1]):,}.'
    )
  return f'{what}the tokenizer could not be trained: {message}'
