# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Passages with answers, as prompts for questions that a decoder makes elsewhere.

  python -m experiments.accelerators.question_prompts --decoder=RUN --output=DIR \
    --questions=squad.jsonl,nq.jsonl --corpora=vital,simplewiki.jsonl.xz

Probably-asked questions (Lewis et al. 2021, arXiv 2102.07033): a decoder learns
(passage, answer) -> question from the JSON lines of --questions, fields question,
answers, answer_start, context and title. Names, dates and numbers of the beginnings of
--corpora are the answers that it is asked about; of each corpus after the first only
the --documents longest are read. Writes DIR/prompts.npz, DIR/passages.jsonl and the
decoder, a baseline as of experiments.import_decoder, at 8 bits.
experiments.accelerators.make_questions writes DIR/made.npz from these; then

  python -m experiments.accelerators.question_prompts --decoder=RUN --output=DIR \
    --made=made.jsonl --without=webquestions:test=test.json

writes the questions in the form of --questions, those of test sets left out.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import heapq
import itertools
import json
import pathlib
import random
import re
from typing import Any

from absl import flags, logging
import numpy as np

from experiments.accelerators import (
  make_questions,
  reader_bundle,
  weight_files,
)
from experiments.engine import command, reports
from retrieval import tokenization
from retrieval.questions import qa_metrics
from retrieval.readers import json_files
from retrieval.store import checkpoints
from retrieval.text import corpus as corpus_lib, taggers
from retro_jax.data import folder as retro_data
from retro_jax.trained import loading

PASSAGES = 'passages.jsonl'
_LENGTH = 256  # most tokens of a passage with answer and question
_CHARACTERS = 600  # of a passage, to the end of its sentence
_PIECES = 2  # passages of a document
_ANSWERS = 3  # most of a passage
_LABELS = (*taggers.ENTITY_LABELS, 'CARDINAL', 'MONEY', 'ORDINAL', 'QUANTITY')
_SENTENCE = re.compile(r'(?<=[.!?])\s')


def prompt(title: str, context: str, answer: str) -> str:
  """Return the text that the decoder reads before a question."""
  return f'{title}\n{context.strip()}\nAnswer: {answer}\nQuestion:'


def passages(text: str) -> list[str]:
  """Cut the beginning of a text into passages of whole sentences."""
  found, start = [], 0
  while len(found) < _PIECES and start < len(text):
    ends = [m.start() for m in _SENTENCE.finditer(text, start)]
    ends = [x for x in [*ends, len(text)] if x <= start + _CHARACTERS]
    if not ends:
      break
    found.append(text[start : ends[-1]].strip())
    start = ends[-1] + 1
  return [x for x in found if len(x) > 80]


def answers(
  title: str, text: str, spans: Sequence[taggers.Span], draw: random.Random
) -> list[tuple[str, int]]:
  """Choose answers of a passage, and where each begins."""
  found: dict[str, int] = {}
  places = [(x.start, x.limit) for x in spans]
  places += [x.span() for x in re.finditer(re.escape(title), text) if title]
  for start, limit in places:
    found.setdefault(text[start:limit], start)
  rows = [x for x in found.items() if len(x[0].split()) <= 6]
  return draw.sample(rows, min(_ANSWERS, len(rows)))


def documents(path: str, most: int) -> Iterator[corpus_lib.Document]:
  """Read the `most` longest documents of a corpus; 0 reads all."""
  path = '' if path == 'vital' else path
  corpus = corpus_lib.Corpus(corpus_lib.CorpusConfig(path=path))
  if not most:
    return iter(corpus)
  return iter(heapq.nlargest(most, corpus, key=lambda x: len(x.text)))


def ask(
  found: Iterator[corpus_lib.Document], tagger: taggers.Tagger
) -> Iterator[dict[str, Any]]:
  """Yield rows without a question: context, title, answers and answer_start."""
  draw = random.Random(0)
  pieces = (
    dataclasses.replace(x, text=text)
    for x in found
    for text in passages(x.text)
  )
  while some := [*itertools.islice(pieces, 256)]:
    for piece, spans in zip(some, tagger.tag(some), strict=True):
      for answer, start in answers(piece.title, piece.text, spans, draw):
        yield {
          'answers': [answer],
          'answer_start': [start],
          'context': piece.text,
          'title': piece.title,
        }


def encode(
  tokenizer: tokenization.Tokenizer, rows: Sequence[dict[str, Any]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Return tokens [n, _LENGTH], [n] lengths of prompts, and [n] of all; 0 if too long."""
  tokens = np.zeros((len(rows), _LENGTH), np.uint16)
  lengths = np.zeros((2, len(rows)), np.int32)
  for i, row in enumerate(rows):
    ids = tokenizer.encode(
      prompt(row.get('title') or '', row['context'], row['answers'][0])
    ).ids.tolist()
    first = len(ids)
    if question := row.get('question'):
      ids += tokenizer.encode(f' {question}\n').ids.tolist()
    if len(ids) <= _LENGTH - (0 if question else make_questions.QUESTION):
      tokens[i, : len(ids)], lengths[:, i] = ids, (first, len(ids))
  return tokens, *lengths


def write_prompts(
  decoder: pathlib.Path,
  output: pathlib.Path,
  learned: Sequence[dict[str, Any]],
  asked: Sequence[dict[str, Any]],
) -> None:
  """Write what `make_questions` reads; rows that are too long are left out."""
  saved, config = loading.find_run(decoder)
  tokenizer = retro_data.DataFolder.of(config, str(decoder)).tokenizer
  model = loading.model_config(config, tokenizer.vocab_size)
  output.mkdir(parents=True, exist_ok=True)
  arrays: dict[str, np.ndarray] = {}
  for name, rows in (('learned', learned), ('asked', asked)):
    tokens, prompts, all_of = encode(tokenizer, rows)
    kept = np.flatnonzero(all_of)
    arrays |= {
      f'{name}_tokens': tokens[kept],
      f'{name}_prompt': prompts[kept],
      f'{name}_length': all_of[kept],
    }
    logging.info('%s: %d of %d rows.', name, len(kept), len(rows))
  with (output / PASSAGES).open('w') as file:
    file.writelines(json.dumps(asked[i]) + '\n' for i in kept)
  np.savez_compressed(output / make_questions.PROMPTS, **arrays)
  reports.write_json(output / make_questions.MODEL, dataclasses.asdict(model))
  params, _ = checkpoints.load_params(str(decoder))
  weight_files.write(output, make_questions.DECODER, params)


def finish(
  tokenizer: tokenization.Tokenizer, row: dict[str, Any], ids: Sequence[int]
) -> dict[str, Any] | None:
  """Add the question to a row; None without one, or where it has its answer."""
  question, end, _ = tokenizer.decode([*ids]).partition('\n')
  question = question.strip()
  if not end or not question.endswith('?') or len(question.split()) < 3:
    return None
  if row['answers'][0].casefold() in question.casefold():
    return None
  return {'question': question, **row}


def prepare(decoder: pathlib.Path, output: pathlib.Path, values: Any) -> None:
  """Write the prompts of the questions and corpora that the flags name."""
  learned = [
    {**row, 'question': row['question'].rstrip(' ?') + '?'}
    for path in values.questions
    for _, row in json_files.read(pathlib.Path(path))
    if all(row.get(x) for x in ('question', 'answers', 'context'))
  ]
  if not learned:
    raise ValueError(
      f'--questions={",".join(values.questions)}: no question with an answer and '
      'its passage; expected JSON lines {question, answers, context}.'
    )
  tagger = taggers.make_tagger(taggers.TaggerConfig(labels=_LABELS))
  asked = [
    row
    for i, path in enumerate(values.corpora)
    for row in ask(documents(path, values.documents if i else 0), tagger)
  ]
  write_prompts(decoder, output, learned, asked)


def write_made(
  decoder: pathlib.Path, output: pathlib.Path, values: Any
) -> None:
  """Write what was made of the prompts, without questions of other sets."""
  _, config = loading.find_run(decoder)
  tokenizer = retro_data.DataFolder.of(config, str(decoder)).tokenizer
  rows = [row for _, row in json_files.read(output / PASSAGES)]
  made = np.load(output / make_questions.MADE)['tokens'].tolist()
  without = {
    qa_metrics.normalize_answer(x.question.question)
    for spec in values.without
    for x in reader_bundle.read(spec)
  }
  if len(rows) != len(made):
    raise ValueError(
      f'{output}: {len(made)} rows in {make_questions.MADE}, {len(rows)} in '
      f'{PASSAGES}; expected as many: run make_questions again.'
    )
  kept = {}
  for row, ids in zip(rows, made, strict=True):
    found = finish(tokenizer, row, ids)
    if found and qa_metrics.normalize_answer(found['question']) not in without:
      kept[found['question'], found['context']] = found
  with open(values.made, 'w') as file:
    file.writelines(json.dumps(x) + '\n' for x in kept.values())
  logging.info('%d questions of %d prompts.', len(kept), len(rows))


def main(argv: Sequence[str]) -> None:
  """Write prompts, or what was made of them."""
  del argv
  values = flags.FLAGS
  write = write_made if values.made else prepare
  write(pathlib.Path(values.decoder), pathlib.Path(values.output), values)


if __name__ == '__main__':
  flags.DEFINE_string('decoder', None, 'Run of a baseline.', required=True)
  flags.DEFINE_string('output', None, 'Folder of the prompts.', required=True)
  flags.DEFINE_list('questions', [], 'JSON lines that the decoder learns.')
  flags.DEFINE_list('corpora', ['vital'], 'To ask about: vital, or files.')
  flags.DEFINE_integer('documents', 20_000, 'Of a further corpus.', 1)
  flags.DEFINE_list('without', [], 'Sets whose questions are left out.')
  flags.DEFINE_string('made', '', 'File that takes the questions made.')
  command.main_of_script(main)
