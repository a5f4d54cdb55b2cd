# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions with the blocks found for them, as arrays that train a reader elsewhere.

  python -m experiments.accelerators.reader_bundle --workdir=RUN \
    --questions=a.jsonl,webquestions:train=train.json --output=DIR

RUN holds prepared blocks (experiments.prepare). A question with a passage (fields
context and answer_start of JSON lines, title if there is one) has its answers there;
another has them wherever BM25's blocks hold them. Of the other blocks those without an
answer are kept as negatives. One in --dev_share passages is held out with its
questions, and so are all questions of --dev.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import hashlib
import itertools
import json
import pathlib

from absl import flags, logging
import numpy as np

from experiments.engine import command, configs
from experiments.open_qa import config as config_lib
from experiments.realm import prepare
from realm_jax.data import folder as data_folder, question_rows, reader_rows
from retrieval.index import text_index
from retrieval.questions import (
  answer_search,
  question_sets,
  questions as questions_lib,
)
from retrieval.readers import json_files

FILE = 'reader.npz'
_ROW, _QUESTION, _TITLE = 168, 30, 12  # most word pieces
_FOUND = 40  # blocks that BM25 finds
_RIGHT = 4  # most blocks with an answer
_WRONG = 4  # most blocks without, of each kind, beside a passage
_BATCH = 64


@dataclasses.dataclass(frozen=True)
class Asked:
  """A question, with its passage if it has one."""

  question: questions_lib.Question
  set: str
  context: str = ''
  title: str = ''
  starts: tuple[int, ...] = ()  # character of each answer in the passage
  held_out: bool = False

  @property
  def document(self) -> str:
    """Id of the passage."""
    text = f'{self.title}\n{self.context}'
    return hashlib.sha1(text.encode()).hexdigest()

  def share(self, parts: int) -> bool:
    """Whether the passage, or the question without one, is among 1 / parts."""
    text = self.document if self.context else self.question.question
    return int(hashlib.sha1(text.encode()).hexdigest()[-8:], 16) % parts == 0


def read(spec: str, held_out: bool = False) -> Iterator[Asked]:
  """Read a file or a named set; NAME#1000 is its first thousand questions."""
  spec, _, most = spec.replace('+', ',').partition('#')
  most = int(most or 0)
  if ':' in spec or '=' in spec:
    found = question_sets.load(spec, allow_other_counts=True)
    for question in found.first(most).questions:
      yield Asked(question, found.name, held_out=held_out)
    return
  path = pathlib.Path(spec)
  name = path.name.partition('.')[0]
  for where, row in itertools.islice(json_files.read(path), most or None):
    answers = tuple(row['answers'])
    yield Asked(
      questions_lib.Question(where, row['question'], answers),
      name,
      row.get('context') or '',
      row.get('title') or '',
      tuple(row.get('answer_start') or ()),
      held_out,
    )


class Pool:
  """Blocks of a folder, with their words and the answers in them."""

  def __init__(self, data: data_folder.DataFolder, layout):
    """Open the blocks and their BM25."""
    self.blocks = data.blocks
    self._words = text_index.TextIndices(data.root, self.blocks).words('bm25')
    self._answers = answer_search.QuestionSearch(self.blocks, 'dpr')
    self._layout = layout

  def find(
    self, source: question_rows.QuestionSource, at: np.ndarray, k: int
  ) -> list[tuple[list[tuple[int, list]], list[int]]]:
    """Return, for each question, blocks with their gold spans, and blocks without."""
    asked = [source.questions[i] for i in at]
    ids, _ = self._words.search([x.question for x in asked], k)
    holds = self._answers.find(ids, asked)
    found = []
    for i, row, there in zip(range(len(at)), ids, holds, strict=True):
      wrong = [int(x) for x in row[~there] if x >= 0]
      right = row[there][: 2 * _RIGHT]
      gold = self._gold(source, at[i : i + 1], right) if len(right) else {}
      found.append(([*gold.items()][:_RIGHT], wrong))
    return found

  def _gold(self, source, at, ids) -> dict[int, list[tuple[int, int]]]:
    """Return the spans, start and further word pieces, of blocks with an answer."""
    rows = reader_rows.reader_rows(
      self._layout, self.blocks, ids[None], source.tokens(at)
    )
    marked = source.gold_fields(at, self.blocks, ids[None], rows)
    gold: dict[int, list] = {}
    for _, j, width, start in np.argwhere(marked['reader_correct']).tolist():
      start -= int(rows['reader_starts'][0, j])
      gold.setdefault(int(ids[j]), []).append((start, width))
    return gold


def _passage_spans(pool: Pool, asked: Asked, document: int, blocks: range):
  """Gold spans of a passage's blocks: {block: [(start, width - 1)]}."""
  tokens = pool.blocks.tokens
  text, bounds = tokens.text(document), tokens.token_bytes(document)
  spans: dict[int, list] = {}
  for answer, start in zip(asked.question.answers, asked.starts, strict=False):
    if not text.startswith(answer, start):
      continue
    low = len(text[:start].encode())
    limit = low + len(answer.encode())
    first = int(np.searchsorted(bounds[:, 1], low, 'right'))
    past = int(np.searchsorted(bounds[:, 0], limit, 'left'))
    for block in blocks:
      begin, end = pool.blocks.token_spans(np.asarray(block)).tolist()
      if begin <= first < past <= end and past - first <= 10:
        spans.setdefault(block, []).append((first - begin, past - first - 1))
  return spans


def make(
  corpus: data_folder.DataFolder,
  passages: data_folder.DataFolder,
  asked: Sequence[Asked],
  *,
  candidates: int,
  dev_share: int,
) -> dict[str, np.ndarray]:
  """Return the arrays of a bundle.

  Returns:
    block_tokens, block_end; title_tokens, title_end; question_tokens, question_end:
    runs of word pieces. block_title, block_document: of each block. layout: as
    `reader_batches.Layout`. candidates [n, C] int32 blocks of each
    question, -1 for none. gold [g, 4] int32: question, candidate, first word piece in
    the block, and number of further ones. set [n] int32 and set_names; dev [n] bool.
  """
  tokenizer = corpus.tokenizer
  layout = reader_rows.ReaderLayout(
    row_length=_ROW,
    question_length=_QUESTION + 2,
    title_length=_TITLE,
    cls_id=tokenizer.cls_id,
    sep_id=tokenizer.sep_id,
    pad_id=tokenizer.pad_id,
  )
  [mark] = tokenizer.encode('?').ids
  specials = layout.cls_id, layout.sep_id, tokenizer.mask_id, int(mark)
  pools = Pool(corpus, layout), Pool(passages, layout)
  mine = pools[1].blocks
  documents = mine.documents(np.arange(mine.num_blocks))
  first = np.searchsorted(documents, np.arange(mine.tokens.num_documents + 1))
  by_id = {
    mine.tokens.document_id(i): i for i in range(mine.tokens.num_documents)
  }
  source = question_rows.QuestionSource(
    [x.question for x in asked], tokenizer, layout
  )
  kept, rows, gold = [], [], []
  for low in range(0, len(asked), _BATCH):
    at = np.arange(low, min(low + _BATCH, len(asked)))
    found = pools[0].find(source, at, _FOUND)
    near = found
    if any(asked[i].context for i in at):
      near = pools[1].find(source, at, 12)
    for i, (right, wrong), (_, close) in zip(at, found, near, strict=True):
      one, row, spans = asked[i], [], []
      if one.context:
        document = by_id.get(one.document)
        if document is None:
          continue
        blocks = range(first[document], first[document + 1])
        marked = _passage_spans(pools[1], one, document, blocks)
        if one.question.answers and not marked:
          continue
        row += [(1, b) for b in [*marked, *blocks]]
        row = list(dict.fromkeys(row))
        spans += [
          (j, *s) for j, (_, b) in enumerate(row) for s in marked.get(b, ())
        ]
        row += [(1, b) for b in close if (1, b) not in row][:_WRONG]
        wrong = wrong[:_WRONG]
      elif right:
        row += [(0, b) for b, _ in right]
        spans += [(j, *s) for j, (_, x) in enumerate(right) for s in x]
      else:
        continue
      row += [(0, b) for b in wrong]
      spans = [s for s in spans if s[0] < candidates]
      gold += [(len(kept), *s) for s in spans]
      rows.append(row[:candidates])
      kept.append(int(i))
    if low % (100 * _BATCH) == 0:
      logging.info('%d of %d questions, %d kept.', low, len(asked), len(kept))
  sets = sorted({x.set for x in asked})
  used = sorted({x for row in rows for x in row})
  numbers = {x: i for i, x in enumerate(used)}
  table = np.full((len(kept), candidates), -1, np.int32)
  for line, row in zip(table, rows, strict=True):
    line[: len(row)] = [numbers[x] for x in row]
  questions = source.tokens(np.asarray(kept))
  held = [asked[i].held_out or asked[i].share(dev_share) for i in kept]
  return {
    **_block_arrays(pools, np.asarray(used)),
    **_runs('question', [x[:_QUESTION] for x in questions]),
    'layout': np.asarray([_ROW, _QUESTION, _TITLE, *specials], np.int32),
    'candidates': table,
    'gold': np.asarray(gold, np.int32).reshape(-1, 4),
    'set': np.asarray([sets.index(asked[i].set) for i in kept], np.int32),
    'set_names': np.asarray(sets),
    'dev': np.asarray(held),
  }


def _block_arrays(pools, used: np.ndarray) -> dict[str, np.ndarray]:
  """Read blocks, given as [n, 2] pool and number: those of a document in a row."""
  bodies: list[np.ndarray] = []
  titles: dict[bytes, int] = {}
  title, document = [], []
  for i, pool in enumerate(pools):
    blocks, ids = pool.blocks, used[used[:, 0] == i, 1]
    document.append(2 * blocks.documents(ids).astype(np.int32) + i)
    for part in np.array_split(ids, -(-len(ids) // 4096)) if len(ids) else ():
      bodies += _cut(*blocks.gather(part, _ROW))
      for run in _cut(*blocks.gather_titles(part, _TITLE)):
        key = run.astype(np.uint16).tobytes()
        title.append(titles.setdefault(key, len(titles)))
  return {
    **_runs('block', bodies),
    **_runs('title', [np.frombuffer(x, np.uint16) for x in titles]),
    'block_title': np.asarray(title, np.int32),
    'block_document': np.concatenate(document),
  }


def _cut(tokens: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
  return [row[:n] for row, n in zip(tokens, counts, strict=True)]


def _runs(name: str, runs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
  ends = np.cumsum([len(x) for x in runs], dtype=np.int64).astype(np.int32)
  flat = np.concatenate([*runs, np.zeros(0, np.int64)]).astype(np.uint16)
  return {f'{name}_tokens': flat, f'{name}_end': ends}


def prepare_passages(
  asked, workdir: pathlib.Path, vocabulary: pathlib.Path, max_length: int
) -> data_folder.DataFolder:
  """Cut the passages into blocks, as those of the corpus."""
  workdir.mkdir(parents=True, exist_ok=True)
  documents = {x.document: x for x in asked if x.context}
  path = workdir / 'passages.jsonl'
  with path.open('w') as file:
    for name, x in documents.items():
      row = {'id': name, 'title': x.title, 'text': x.context}
      file.write(json.dumps(row) + '\n')
  config = configs.of(config_lib.Config, eval_batches=0)
  for name in ('batch_size', 'num_steps', 'eval_every', 'checkpoint_every'):
    config[name] = 1  # nothing is trained
  config.blocks.max_length = max_length
  config.corpus.kind, config.corpus.path = 'jsonl', str(path)
  config.tokenizer.path = str(vocabulary)
  config = configs.build(config_lib.Config, config)
  prepare.prepare(config, str(workdir))
  return data_folder.DataFolder.of(config, str(workdir))


def main(argv: Sequence[str]) -> None:
  """Find the blocks of all questions, and write them."""
  del argv
  values = flags.FLAGS
  output = pathlib.Path(values.output)
  output.mkdir(parents=True, exist_ok=True)
  corpus = data_folder.DataFolder(pathlib.Path(values.workdir) / 'data')
  asked = [x for spec in values.questions for x in read(spec)]
  asked += [x for spec in values.dev for x in read(spec, held_out=True)]
  passages = prepare_passages(
    asked,
    output / 'passages',
    corpus.tokenizer_path,
    corpus.blocks.max_length,
  )
  arrays = make(
    corpus, passages, asked, candidates=12, dev_share=values.dev_share
  )
  np.savez_compressed(output / FILE, **arrays)
  counts = np.bincount(arrays['set'], minlength=len(arrays['set_names']))
  for name, count in zip(arrays['set_names'], counts, strict=True):
    logging.info('%s: %d questions.', name, count)
  logging.info('%d blocks, %s.', len(arrays['block_end']), output / FILE)


if __name__ == '__main__':
  flags.DEFINE_string(
    'workdir', None, 'Run with prepared blocks.', required=True
  )
  flags.DEFINE_string('output', None, 'Folder of the bundle.', required=True)
  flags.DEFINE_list(
    'questions', [], 'Files and sets; NAME#1000 takes the first.'
  )
  flags.DEFINE_list('dev', [], 'Files and sets that are held out.')
  flags.DEFINE_integer('dev_share', 20, 'One in so many is held out.', 2)
  command.main_of_script(main)
