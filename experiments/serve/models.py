# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The served models, their answers to requests, and changes of documents.

Changed documents go into data folders below a temporary one; the runs' data stay.
"""

from collections.abc import Sequence
import dataclasses
import functools
import pathlib
import shutil
from typing import Any

import numpy as np

from experiments.engine import command
from experiments.open_qa import update as reader_update
from experiments.retro import config as retro_config, update as retro_update
import realm_jax
from realm_jax.data import folder as realm_data
from realm_jax.trained import (
  beams,
  loading as realm_loading,
  packaged as realm_packaged,
  realm as trained_realm,
)
from retrieval.kernels import backend
from retrieval.nn import embedders
from retrieval.questions import question_files
from retrieval.store import checkpoints, checksums, packed
from retrieval.text import corpus as corpus_lib, joined, tokens as tokens_lib
import retro_jax
from retro_jax.trained import (
  language_model,
  loading,
  packaged as retro_packaged,
)

PACKAGED = 'packaged'  # in place of a run's folder
PARTS = ('retro', 'reader', 'realm')
_MANY = 8  # questions read at once on an accelerator


class Missing(ValueError):
  """No model that is served can do what is asked."""


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """Trained models of one folder; a model that it lacks is None.

  `check` of the answers is called at times, and ends them by an error.
  """

  name: str = PACKAGED  # in requests
  workdir: str = ''
  retro: language_model.LanguageModel | None = None
  reader: realm_loading.TrainedReader | None = None
  realm: trained_realm.TrainedRealm | None = None
  data: str = ''  # of reader and REALM, once changed
  content: str = ''  # hash of the run's data, once changed

  def parts(self) -> list[str]:
    """Kinds of its models."""
    return [x for x in PARTS if getattr(self, x)]

  @functools.cached_property
  def _answerer(self):
    size = 1 if backend.is_cpu() else _MANY  # a CPU reads block by block
    return self.reader.open_answerer(batch_size=size)

  def ask(self, count: int, questions: Sequence[str], check) -> list[dict]:
    """Answer questions, with `count` answers each."""
    asked = [question_files.Question('', x, ()) for x in questions]
    return [x.record(count) for x in self._answerer.ask(asked, check)]

  def explain(self, settings: Any, texts: Sequence[str], check) -> list[dict]:
    """Explain words for [MASK] by REALM, or any other text by RETRO.

    settings: whether there is a mask, the answer, and the number of likely words.
    """
    masked, answer, top = settings
    if not masked:
      reads = bool(self.retro.model.config.cca_layers)
      pages = self.retro.score(texts, explain=reads, progress=check)
      return [page.to_json() for page in pages]
    explain = functools.partial(self.realm.explain, answer=answer)
    explained = []
    for text in texts:
      check()
      explained.append(dataclasses.asdict(explain(text, top=top)))
    return explained

  @functools.cached_property
  def _retriever(self):
    return beams.TextRetriever(self.reader, self.reader.open_retriever())

  def search(self, settings, texts: Sequence[str], unused) -> list[dict]:
    """Find passages: blocks of the reader, or chunks of RETRO.

    settings: 'reader' or 'retro', and k.
    """
    part, k = settings
    if part == 'retro':
      model = self.retro
      lookup = model.data.datastore.lookup(model.config)
      rows = lookup.retrieve(texts, k, questions=True)
      ids, scores = ([getattr(x, y) for x in rows] for y in ('ids', 'scores'))
      passages, unit = model.data.chunks('train'), lookup.retriever.unit
    else:
      passages, unit = self.reader.data.blocks, self._retriever.unit
      k = min(k, passages.num_blocks)
      ids, scores = self._retriever.search(texts, k)
    return [
      {'unit': unit, 'passages': _passages(passages, *row)}
      for row in zip(ids, scores, strict=True)
    ]

  def document(self, name: str) -> dict[str, Any] | None:
    """Return a document by its id, as JSON values; None where there is no such one."""
    if self.retro:
      passages = self.retro.data.chunks('train')
    else:
      passages = (self.reader or self.realm).data.blocks
    tokens = passages.tokens
    # Of several folders, the hash is that of the id without the folder.
    hashes = tokens_lib.hash_ids([name, name.partition(':')[2]])
    for i in np.flatnonzero(np.isin(tokens.id_hash[:], hashes)).tolist():
      if tokens.document_id(i) == name:
        text = (
          tokens.text(i)
          if tokens.with_text
          else passages.tokenizer.decode(tokens.document(i))
        )
        [metadata] = tokens.metadata.rows([i])
        fields = {'document': name, 'title': tokens.title(i), 'text': text}
        return fields | {'metadata': metadata}
    return None

  def changed(
    self,
    folder: pathlib.Path,
    documents: Sequence[corpus_lib.Document],
    delete: Sequence[str],
  ) -> tuple['Run', dict[str, Any]]:
    """Return the models over changed documents in `folder`, and counts."""
    data, parts = str(folder), self.parts()
    if self.reader and self.reader.parts:
      raise ValueError(
        f'{self.workdir}: documents of several folders; expected a server of one of '
        'them, or experiments.update.'
      )
    if self.retro:
      counts = retro_update.change(
        self.retro.config, self.retro.data, data, documents, delete
      )
      return _open(self.name, self.workdir, parts, data), counts
    counts = reader_update.change(
      self.workdir, documents, delete, data, data_dir=self.data
    )
    old = getattr(self, parts[0]).data
    first = self.content or _content(old)
    # Calibrations are of the run's data, which changes may bring back.
    data = '' if _content(type(old)(folder)) == first else data
    new = _open(self.name, self.workdir, parts, data)
    return dataclasses.replace(new, data=data, content=first), counts


@dataclasses.dataclass(frozen=True, eq=False)
class Models:
  """The runs that are served, and an embedder."""

  runs: Sequence[Run] = ()
  embedder: str = 'minilm'  # of texts, or its folder

  def names(self) -> dict[str, str]:
    """Kinds of the models, by their names in requests."""
    return {f'{x}-{run.name}': x for run in self.runs for x in run.parts()}

  def get(self, part: str, name: Any = None) -> Run:
    """Return the run of a model; Missing where it is not served.

    Args:
      part: kind of the model.
      name: of several of the kind; without it, and for the kind's name, the first.
    """
    runs = {f'{part}-{x.name}': x for x in self.runs if getattr(x, part)}
    if not runs:
      raise Missing(
        f'No {part} is served here, only {[*self.names()]}; start the server with '
        f'--workdir of one, or {PACKAGED}.'
      )
    for key, run in runs.items():
      if len(runs) == 1 or name in (None, '', part, key, run.name):
        return run
    raise Missing(f'No model {name!r} is served here, only {[*runs]}.')

  @functools.cached_property
  def _embedder(self) -> embedders.Embedder:
    return embedders.Embedder.load(self.embedder)

  def embed(self, unused, items, check) -> list[tuple[np.ndarray, int]]:
    """Embed lists of texts: [n, d] float32 each, and the tokens that were read."""
    texts = [text for x in items for text in x]
    vectors = self._embedder.embed_texts(texts, check)
    parts = np.split(vectors, np.cumsum([len(x) for x in items])[:-1])
    sizes = [sum(map(len, self._embedder.token_ids(x))) for x in items]
    return list(zip(parts, sizes, strict=True))

  def changed(
    self,
    root: pathlib.Path,
    documents: Sequence[corpus_lib.Document],
    delete: Sequence[str],
  ) -> tuple['Models', dict[str, Any]]:
    """Return the models over changed documents, and counts of changes by model.

    Args:
      root: a new folder for the data.
      documents: added, or in place of those of the same id.
      delete: ids.

    Raises:
      ValueError: for changes that `changed_documents.check` refuses.
    """
    counts, runs = {}, []
    try:
      for i, run in enumerate(self.runs):
        new, changes = run.changed(root / f'{i}', documents, delete)
        runs.append(new)
        names = (f'{x}-{run.name}' for x in run.parts())
        counts |= dict.fromkeys(names, changes)
    except BaseException:
      shutil.rmtree(root, ignore_errors=True)
      raise
    return dataclasses.replace(self, runs=runs), counts


def _content(data: realm_data.DataFolder) -> str:
  """Hash of the blocks and their documents' ids."""
  arrays = data.blocks.all_hashes(), data.blocks.tokens.id_hash[:]
  return checksums.of_bytes(b''.join(x.tobytes() for x in arrays))


def _passages(passages, ids, scores) -> list[dict[str, Any]]:
  ids, scores = ids[ids >= 0], scores[ids >= 0]
  numbers = passages.documents(ids).tolist()
  documents = map(passages.tokens.document_id, numbers)
  texts = passages.titles(ids), documents, passages.texts(ids)
  columns = ids.tolist(), map(float, scores), *texts
  names = 'id', 'score', 'title', 'document', 'text'
  return [
    dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)
  ]


def check(workdirs: Sequence[str]) -> None:
  """Raise FileNotFoundError or ValueError, as `open_models`, and load nothing."""
  for _, folder in _named([x for x in workdirs if x != PACKAGED]):
    _parts(folder)


def open_models(
  workdirs: Sequence[str], embedder: str, writes: bool = True
) -> Models:
  """Load runs of RETRO, of a reader or of REALM.

  Args:
    workdirs: DIR or NAME=DIR; `packaged` gives what no other run gives. DIR,DIR are
      readers as one (`realm_jax.load`), of which one may be `packaged`.
    writes: whether `packaged` gives a RETRO, too.

  Raises:
    FileNotFoundError: where there is no model.
    ValueError: for another kind of model, or two of one name.
  """
  named = _named([x for x in workdirs if x != PACKAGED])
  runs = [_open(name, folder, _parts(folder)) for name, folder in named]
  served = Models(runs, embedder)
  if PACKAGED in workdirs:
    there = {*served.names().values()}
    if 'retro' not in there and writes:
      folder = retro_packaged.named(retro_packaged.DEFAULT)
      runs.append(_open(PACKAGED, str(folder), ['retro']))
    if not {'reader', 'realm'} & there:
      folder = realm_packaged.take()
      runs.append(_open(PACKAGED, str(folder), ['reader', 'realm']))
  if len(served.names()) < sum(len(x.parts()) for x in runs):
    raise ValueError(
      f'--workdir: two models of one name among {[*served.names()]}; expected '
      'NAME=DIR with other names.'
    )
  return served


def _named(workdirs: Sequence[str]) -> list[tuple[str, str]]:
  """Return names and folders: the last parts of a folder that no other has."""
  pairs = []
  for workdir in workdirs:
    name, equals, folder = workdir.partition('=')
    if not equals or '/' in name or pathlib.Path(workdir).exists():
      name, folder = '', workdir
    parts = pathlib.Path(folder).absolute().parts
    if len(several := command.folders(folder)) > 1:
      parts = ('+'.join(joined.names_of(several)),)
    pairs.append((name, folder, parts))
  ends = joined.unique_ends([parts for *_, parts in pairs])
  return [
    (name or end or parts[-1], folder)
    for (name, folder, parts), end in zip(pairs, ends, strict=True)
  ]


def _parts(workdir: str) -> list[str]:
  """Return the kinds of the models in a run's folder."""
  if len(several := command.folders(workdir)) > 1:
    for one in several:
      if one != PACKAGED and 'reader' not in _parts(one):
        raise ValueError(f'--workdir={workdir}: no reader in {one}.')
    return ['reader']
  saved = checkpoints.find(workdir)
  names = {*saved.params}
  if 'retrieval' in saved.config and 'embedding' in names:
    return ['retro']
  kinds = {'reader': 'reader', 'realm': 'encoder'}
  parts = [part for part, name in kinds.items() if name in names]
  if not parts:
    raise ValueError(
      f'--workdir={workdir}: a checkpoint with {sorted(names)[:5]}; expected '
      'RETRO, its baseline, a reader or a REALM.'
    )
  return parts


def _open(name: str, workdir: str, parts: Sequence[str], data: str = '') -> Run:
  """Load models of a run, over other data where `data` names them."""
  if 'retro' in parts:
    # An update of documents needs all fields; a packed run has fewer.
    is_packed = packed.is_packed(workdir)
    kind = loading.RunConfig if is_packed else retro_config.Config
    models = {'retro': retro_jax.load(workdir, data, config_type=kind)}
  elif len(several := command.folders(workdir)) > 1:
    places = [realm_packaged.take() if x == PACKAGED else x for x in several]
    readers = [realm_jax.load(x, part='reader') for x in places]
    names = joined.names_of(several)
    models = {'reader': realm_loading.join(readers, names)}
  else:
    models = {part: realm_jax.load(workdir, data, part=part) for part in parts}
  return Run(name, workdir, **models)
