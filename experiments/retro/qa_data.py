# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions for a RETRO, and the passages that it reads for each."""

from collections.abc import Sequence
import pathlib

from absl import logging
import jax
import ml_collections

from experiments.engine import progress
from experiments.retro import task as retro_task
from retrieval.questions import answers as answers_lib
from retrieval.questions import dpr_json
from retrieval.questions import questions as questions_lib
from retrieval.store import store
from retro_jax.data import qa_pipeline
from retro_jax.data import qa_rows

_AT_ONCE = 64  # questions that are looked up together
_MATCHED = 20  # passages that answer a pattern where the model reads none


def layout(config: ml_collections.ConfigDict) -> qa_rows.QaLayout:
  """Lengths of rows, as a config has them; the baseline reads no passage."""
  return qa_rows.QaLayout(
    chunk_length=config.model.chunk_length,
    prompt_chunks=config.qa.prompt_chunks,
    answer_length=config.qa.answer_length,
    num_neighbors=config.qa.num_passages if config.retrieval else 0,
    neighbor_length=config.model.neighbor_length,
  )


def _passages_of(result: dpr_json.Result) -> tuple[qa_rows.Passage, ...]:
  return tuple(
    qa_rows.Passage(title=x.title, text=x.text) for x in result.contexts
  )


def read_passages(
  paths: Sequence[str], questions: Sequence[questions_lib.Question]
) -> list[tuple[qa_rows.Passage, ...]]:
  """The passages of questions, from DPR's results of retrieval.

  Args:
    paths: files of them, see `dpr_json`.
    questions: found by their text.

  Returns:
    For each question its passages, best first; none where no file has it.

  Raises:
    FileNotFoundError: for a file that is not there.
    ValueError: for a file of another form, or of none of the questions.
  """
  found: dict[str, tuple[qa_rows.Passage, ...]] = {}
  for path in paths:
    for result in dpr_json.read_results(path):
      found[result.question] = _passages_of(result)
  missing = [q.question for q in questions if q.question not in found]
  if missing and len(missing) == len(questions):
    raise ValueError(
      f'{", ".join(paths)}: none of the {len(questions):,} questions is there, '
      f'such as {missing[0]!r}; expected results of their retrieval.'
    )
  if missing:
    logging.warning(
      '%d of %d questions have no passages, such as %r.',
      *(len(missing), len(questions), missing[0]),
    )
  return [found.get(q.question, ()) for q in questions]


def find_passages(
  trained: retro_task.Trained,
  questions: Sequence[questions_lib.Question],
  count: int,
  folder: pathlib.Path,
) -> list[tuple[qa_rows.Passage, ...]]:
  """The nearest chunks of each question, with their continuations.

  What was found is kept in FOLDER in DPR's form, which experiments.open_qa.score reads.

  Args:
    trained: whose datastore is searched, by the frozen embedder.
    questions: are looked up by their text.
    count: passages of each.
    folder: where the files of passages lie.

  Returns:
    For each question its passages, best first.
  """
  texts = [q.question for q in questions]
  data, config = trained.data, trained.config
  key = store.fingerprint(
    [texts, count, data.index.fingerprint, config.model.neighbor_length]
  )
  path = folder / f'passages-{key}.json'
  if not path.is_file():
    retriever = data.retriever(config)
    results = []
    with progress.bar('find passages', 'questions') as update:
      for i in range(0, len(questions), _AT_ONCE):
        part = questions[i : i + _AT_ONCE]
        results += _look_up(retriever, part, count)
        update(i + len(part), len(questions))
    if jax.process_index():  # The first process writes for all.
      return [_passages_of(result) for result in results]
    folder.mkdir(parents=True, exist_ok=True)
    dpr_json.write_results(path, results)
  return read_passages([str(path)], questions)


def _look_up(retriever, questions, count) -> list[dpr_json.Result]:
  found = retriever.retrieve([q.question for q in questions], count)
  results = []
  for i, question in enumerate(questions):
    contexts = [
      dpr_json.Context(
        id=str(found.ids[i, n]),
        title=found.titles[i][n],
        text=retriever.tokenizer.decode(found.tokens[i, n][found.mask[i, n]]),
        score=float(found.scores[i, n]),
      )
      for n in range(count)
      if found.ids[i, n] >= 0
    ]
    results.append(
      dpr_json.Result(
        question=question.question,
        answers=question.answers,
        contexts=tuple(contexts),
      )
    )
  return results


def reads_passages(config: ml_collections.ConfigDict) -> bool:
  """Whether the model reads any; the baseline does not."""
  return bool(config.retrieval and config.qa.num_passages)


def passages(
  trained: retro_task.Trained,
  config: ml_collections.ConfigDict,
  questions: Sequence[questions_lib.Question],
  folder: pathlib.Path,
) -> list[tuple[qa_rows.Passage, ...]]:
  """The passages of questions, from where a config wants them."""
  if config.qa.passages:
    return read_passages(tuple(config.qa.passages), questions)
  count = config.qa.num_passages or _MATCHED
  return find_passages(trained, questions, count, folder)


def examples(
  trained: retro_task.Trained,
  config: ml_collections.ConfigDict,
  questions: Sequence[questions_lib.Question],
  folder: pathlib.Path,
) -> list[qa_pipeline.Example]:
  """What can be trained on: questions with an answer that can be written.

  A regular expression is no text: its first match in the passages is the answer,
  and a question without one is left out. A baseline, which reads no passage, learns
  the same answers to the same questions.

  Args:
    trained: whose datastore may be searched.
    config: of fine-tuning.
    questions: with their answers.
    folder: where passages that are looked up are kept.

  Returns:
    Examples, in order.
  """
  read, kept = reads_passages(config), []
  found = [()] * len(questions)
  if read or any(q.kind == 'regex' for q in questions):
    found = passages(trained, config, questions, folder)
  for question, texts in zip(questions, found, strict=True):
    answers = question.answers
    if question.kind == 'regex':
      answers = _matches(answers, texts)
    if answers:
      kept.append(
        qa_pipeline.Example(
          question=question.question,
          answers=answers,
          passages=texts if read else (),
        )
      )
  if len(kept) < len(questions):
    logging.warning(
      'Left out %d of %d questions: no passage matches their pattern.',
      *(len(questions) - len(kept), len(questions)),
    )
  return kept


def _matches(patterns, read) -> tuple[str, ...]:
  for pattern in filter(None, map(answers_lib.compile_regex, patterns)):
    for passage in read:
      match = pattern.search(passage.text)
      if match and match.group().strip():
        return (match.group().strip(),)
  return ()
