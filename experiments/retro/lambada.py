# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Accuracy of the last word, by greedy continuation: LAMBADA.

  python -m experiments.retro.lambada --config=configs/<name>.py --workdir=DIR \
    --config.examples.path=lambada_test.jsonl

Each line of the file is {"text": ...}. The model continues all but the last word,
always with the likeliest token, and the first word of that is compared with the
last one of the text; what punctuation surrounds them does not count (Paperno et al.
2016; Borgeaud et al. 2021, section 3). RETRO with retrieval on and off, and the baseline
of --config.evaluate.baseline_workdir. Prints a table and writes DIR/lambada.json, with
the words.
"""

import pathlib
import string

from absl import logging
import jax
import ml_collections
import numpy as np

from experiments.engine import command
from experiments.engine import progress
from experiments.retro import examples as retro_examples
from experiments.retro import task as retro_task
from retro_jax.decoding import decode

FILE = 'lambada.json'
WORD_TOKENS = 16  # drawn for each text; only a longer last word gets more
_AROUND = string.punctuation + '\u2018\u2019\u201c\u201d\u2014\u2026'


def split(text: str) -> tuple[str, str]:
  """All but the last word, and that.

  Raises:
    ValueError: for a text of fewer than two words.
  """
  parts = text.rstrip().rsplit(None, 1)
  if len(parts) < 2:
    raise ValueError(f'LAMBADA: {text!r} has no word before its last one.')
  return parts[0], parts[1]


def first_word(text: str) -> str:
  """The first word, '' if there is none; without punctuation around it."""
  words = text.split()
  return words[0].strip(_AROUND) if words else ''


def answer(
  mode: retro_examples.Mode,
  examples: list[tuple[str, str]],
  config: ml_collections.ConfigDict,
) -> list[str]:
  """The word with which a model goes on after each context."""
  trained = mode.trained
  data, tokenizer = trained.data, trained.data.tokenizer
  data.check_tokenizer()
  prompts = [
    [tokenizer.bos_id, *tokenizer.encode(given).ids.tolist()]
    for given, _ in examples
  ]
  # One bound for all texts, or a word would depend on the others' targets. One
  # token after the longest word's shows whether it has ended.
  longest = max(len(tokenizer.encode(f' {word}').ids) for _, word in examples)
  sampling = decode.SamplingConfig(
    max_new_tokens=max(WORD_TOKENS, longest + 1),
    temperature=0.0,
    num_neighbors=mode.num_neighbors,
    context_chunks=max(2, trained.config.sequence_chunks),
    **retro_task.special_ids(tokenizer),
  )
  # Equal lengths together, so that few programs are compiled.
  order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
  words, size = [''] * len(prompts), config.examples.batch_size
  params = jax.device_put(trained.params)
  with progress.bar(f'last words, {mode.name}', 'texts') as update:
    for low in range(0, len(order), size):
      chosen = order[low : low + size]
      filled = chosen + chosen[-1:] * (size - len(chosen))
      samples = decode.sample(
        trained.model,
        params,
        [prompts[i] for i in filled],
        sampling,
        retrieve=mode.retrieve,
      )
      for i, sample in zip(chosen, samples, strict=False):
        words[i] = first_word(tokenizer.decode(sample.new_tokens))
      update(low + len(chosen), len(order))
  return words


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Asks for the last words, prints the table and writes the file."""
  if jax.process_count() > 1:
    raise ValueError('retro_lambada runs in one process.')
  if config.examples.batch_size < 1:
    raise ValueError(
      f'examples.batch_size {config.examples.batch_size}: expected >= 1.'
    )
  texts = retro_examples.read(config.examples, [('text',)])
  examples = [split(text) for (text,) in texts]
  logging.info('%d texts of %s.', len(examples), config.examples.path)
  rows = []
  for mode in retro_examples.modes(config, workdir):
    words = answer(mode, examples, config)
    right = [
      bool(word) and word == target.strip(_AROUND)
      for word, (_, target) in zip(words, examples, strict=True)
    ]
    row = retro_examples.row(mode, 'accuracy', np.asarray(right, np.float64))
    rows.append(row | {'words': words})
  path = pathlib.Path(workdir) / FILE
  retro_examples.report(rows, 'accuracy', path, config.examples)


if __name__ == '__main__':
  command.main(run, computes=True)
