# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions of data sets of TFDS."""

from collections.abc import Iterator, Sequence
import contextlib
import logging

from retrieval.questions import questions as questions_lib
from retrieval.readers import tfds as tfds_reader


def read(
  dataset: str,
  split: str,
  tfds: Sequence[str],
  answer_path: Sequence[str],
  data_dir: str,
) -> list[questions_lib.Question]:
  """Read the questions of TFDS that hold a split.

  Args:
    tfds: data set of TFDS, and its splits for 'train' and 'test'.
    answer_path: path of fields to the answers in a record.
    data_dir: folder of TFDS; '' is its default folder.

  Raises:
    ValueError: when the set is neither prepared nor can be downloaded, or for
      the first question without answers.
  """
  name, train, test = tfds
  source_split = test if split == 'test' else train
  try:
    with _quiet_retries():
      builder = tfds_reader.load_builder(name, data_dir)
      builder.download_and_prepare()
    source = builder.as_data_source(split=source_split)
  except (OSError, ValueError, KeyError, NotImplementedError) as e:
    reason = ' '.join(str(e).split())
    raise ValueError(
      f'{dataset}:{split} needs files, {dataset}:{split}=PATH,PATH: '
      f'the set cannot be downloaded, nor is it prepared, as {name} of TFDS '
      f'({reason}).'
    ) from None
  found = []
  for i in range(len(source)):
    where, record = f'{name}[{source_split}]:{i}', source[i]
    answers = record
    for field in answer_path:
      answers = answers[field]
    texts = dict.fromkeys(_text(a) for a in answers if _text(a).strip())
    if not texts:
      raise ValueError(f'{where}: no answers.')
    found.append(
      questions_lib.Question(where, _text(record['question']), tuple(texts))
    )
  return found


@contextlib.contextmanager
def _quiet_retries() -> Iterator[None]:
  """Hide the warnings of each failed connection, which the error repeats.

  They stay hidden after an error, while TFDS retries its other downloads.
  """
  logger = logging.getLogger('urllib3.connectionpool')
  level = logger.level
  logger.setLevel(logging.ERROR)
  yield
  logger.setLevel(level)


def _text(value: bytes | str) -> str:
  return value.decode() if isinstance(value, bytes) else str(value)
