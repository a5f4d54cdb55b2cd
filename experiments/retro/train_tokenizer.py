# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Train a lossless SentencePiece tokenizer on a corpus.

  python -m experiments.retro.train_tokenizer --config=configs/<name>.py --workdir=DIR

reads config.corpus and config.tokenizer and writes <data folder>/tokenizer/model,
where experiments.retro.prepare finds it. An existing tokenizer is kept. Prints how
well and how fast the tokenizer encodes the first documents.
"""

import itertools
import time

from absl import logging
import ml_collections

from experiments.engine import command, reports
from experiments.retro import prepare as retro_prepare, settings as settings_lib
from retrieval import tokenization
from retrieval.store import locks
from retrieval.text import data_folder, tokens as tokens_lib
from retro_jax.data import folder as retro_data

_MEASURED_DOCUMENTS = 2000


def _measure(
  config: ml_collections.ConfigDict, tokenizer: tokenization.Tokenizer
) -> list[tuple[str, str]]:
  """Encode the first documents; rows of the table."""
  documents = itertools.islice(
    data_folder.corpus(config.corpus), _MEASURED_DOCUMENTS
  )
  texts = [
    tokens_lib.document_text(document, config.tokens.with_title)
    for document in documents
  ]
  start = time.perf_counter()
  encodings = tokenizer.encode_batch(texts)
  sec = time.perf_counter() - start
  num_tokens = sum(len(encoding.ids) for encoding in encodings)
  num_bytes = sum(len(text.encode()) for text in texts)
  kept = sum(
    tokenizer.decode(encoding.ids) == text
    for text, encoding in zip(texts, encodings, strict=True)
  )
  return [
    ('documents measured', f'{len(texts):,}'),
    ('of these, equal after decoding', f'{kept:,}'),
    ('bytes a token', f'{num_bytes / num_tokens:.3f}'),
    ('tokens a second', f'{num_tokens / sec:,.0f}'),
  ]


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Train a tokenizer unless there is one, then measure it."""
  data = retro_data.DataFolder.of(config, workdir)
  logging.info('The tokenizer is written to %s.', data.tokenizer_path)
  start = time.monotonic()
  with locks.writer(data.root, locks.DATA):
    retro_prepare.train_tokenizer(config, data)
  sec = time.monotonic() - start
  rows = [
    ('pieces', f'{data.tokenizer.vocab_size:,}'),
    ('seconds to train', f'{sec:.1f}'),
    *_measure(config, data.tokenizer),
    ('fingerprint', data.tokenizer.fingerprint),
  ]
  reports.print_table(('tokenizer', 'value'), rows)


if __name__ == '__main__':
  command.main(run, settings_lib.Settings)
