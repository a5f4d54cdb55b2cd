# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders of BEIR (Thakur et al. 2021): corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv."""

import dataclasses
import pathlib

from experiments.open_qa import config as config_lib, trained_reader
from experiments.realm import prepare
from realm_jax.trained import loading
from retrieval.questions import question_sets, trec_files
from retrieval.store import checkpoints
from retrieval.text import corpus as corpus_lib

# in place of `ranking.MEASURES`
MEASURES = ('nDCG@10', 'R@100', 'AP', 'RR', 'Success@1', 'Success@5')
_STAGES = prepare.Prepare(stages='tokenizer,tokens,blocks')


@dataclasses.dataclass(frozen=True)
class Folder:
  """Corpus, questions and judgments of one split of a folder."""

  corpus: corpus_lib.CorpusConfig
  questions: question_sets.QuestionSet  # the judged ones, or all
  qrels: trec_files.Qrels | None  # None without a folder qrels
  qrels_path: str


def read(spec: str, max_questions: int = 0) -> Folder:
  """Read FOLDER or FOLDER:SPLIT, by default the split test.

  Raises:
    FileNotFoundError: without the folder or one of its files.
    ValueError: for a malformed file, or judgments of no query here.
  """
  name, colon, split = spec.rpartition(':')
  if not colon or pathlib.Path(spec).is_dir():
    name, split = spec, 'test'
  root, judgments = pathlib.Path(name), pathlib.Path(name, 'qrels')
  corpus = corpus_lib.CorpusConfig(
    kind='jsonl', path=str(_file(root, 'corpus.jsonl')), title_as_text=True
  )
  queries = f'asked:{split}={_file(root, "queries.jsonl")}'
  questions, qrels, path = question_sets.load(queries), None, ''
  if judgments.is_dir():
    path = str(_file(judgments, f'{split}.tsv'))
    qrels = trec_files.read_qrels(path)
    judged = tuple(
      x for x in questions.questions if trec_files.identifier(x.id) in qrels
    )
    if not judged:
      raise ValueError(f'{path}: judges none of the queries of {root}.')
    questions = dataclasses.replace(questions, questions=judged)
  questions = dataclasses.replace(questions, dataset=root.resolve().name)
  return Folder(corpus, questions.first(max_questions), qrels, path)


def _file(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Return a file, perhaps packed."""
  files = sorted(folder.glob(f'{name}*'))
  if not files:
    there = sorted(x.name for x in folder.glob('*'))[:9]
    raise FileNotFoundError(
      f'{folder / name}: no such file (--beir); the folder has {there}.'
    )
  return files[0]


def open_model(
  folder: Folder, config: config_lib.Config, workdir: str
) -> loading.TrainedReader:
  """Open the reader of `workdir`, else the packaged one, over the documents.

  Those of a trained run are prepared in config.data_dir or <workdir>/beir/NAME.
  """
  config = dataclasses.replace(config, corpus=folder.corpus)
  if not checkpoints.folder_of(workdir).is_dir():
    trained_reader.take_packaged(config, workdir)
    return trained_reader.open_reader(workdir, config.data_dir)
  trained = trained_reader.open_reader(workdir)
  data_dir = config.data_dir or f'{workdir}/beir/{folder.questions.dataset}'
  path = str(trained.data.tokenizer_path)
  config = dataclasses.replace(
    config,
    data_dir=data_dir,
    tokenizer=dataclasses.replace(config.tokenizer, path=path),
    blocks=trained.config.blocks,
  )
  prepare.prepare(config, workdir, _STAGES)
  return trained_reader.open_reader(workdir, data_dir)
