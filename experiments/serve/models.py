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
from retrieval.text import corpus as corpus_lib
import retro_jax
from retro_jax.trained import (
  language_model,
  loading,
  packaged as retro_packaged,
)

PACKAGED = 'packaged'  # in place of a run's folder
_MANY = 8  # questions read at once on an accelerator


class Missing(ValueError):
  """No model that is served can do what is asked."""


@dataclasses.dataclass(frozen=True, eq=False)
class Models:
  """Trained models; a model that is not served is None.

  `check` of the answers is called at times, and ends them by an error.
  """

  retro: language_model.LanguageModel | None = None
  reader: realm_loading.TrainedReader | None = None
  realm: trained_realm.TrainedRealm | None = None
  retro_workdir: str = ''
  realm_workdir: str = ''  # of reader and REALM
  realm_data: str = ''  # their data, once changed
  realm_content: str = ''  # hash of the run's data, once changed
  embedder: str = 'minilm'  # of texts, or its folder

  def name(self, part: str) -> str:
    """Name of a model in requests: that of its run's folder."""
    workdir = self.retro_workdir if part == 'retro' else self.realm_workdir
    return f'{part}-{pathlib.Path(workdir).name or PACKAGED}'

  def names(self) -> list[str]:
    """Names of the models that are served."""
    return [x for x in ('retro', 'reader', 'realm') if getattr(self, x)]

  def get(self, part: str) -> Any:
    """Return a model; Missing where it is not served."""
    model = getattr(self, part)
    if model is None:
      raise Missing(
        f'No {part} is served here, only {self.names()}; start the server with '
        f'--workdir of one, or {PACKAGED}.'
      )
    return model

  @functools.cached_property
  def _answerer(self):
    size = 1 if backend.is_cpu() else _MANY  # a CPU reads block by block
    return self.get('reader').open_answerer(batch_size=size)

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
      model = self.get('retro')
      reads = bool(model.model.config.cca_layers)
      pages = model.score(texts, explain=reads, progress=check)
      return [page.to_json() for page in pages]
    explain = functools.partial(self.get('realm').explain, answer=answer)
    explained = []
    for text in texts:
      check()
      explained.append(dataclasses.asdict(explain(text, top=top)))
    return explained

  @functools.cached_property
  def _retriever(self):
    reader = self.get('reader')
    return beams.TextRetriever(reader, reader.open_retriever())

  def search(self, settings, texts: Sequence[str], unused) -> list[dict]:
    """Find passages: blocks of the reader, or chunks of RETRO.

    settings: 'reader', 'retro' or '' for the first there is, and k.
    """
    part, k = settings
    part = part or ('reader' if self.reader else 'retro')
    if part == 'retro':
      model = self.get(part)
      lookup = model.data.datastore.lookup(model.config)
      rows = lookup.retrieve(texts, k, questions=True)
      ids, scores = ([getattr(x, y) for x in rows] for y in ('ids', 'scores'))
      passages, unit = model.data.chunks('train'), lookup.retriever.unit
    else:
      passages, unit = self.get(part).data.blocks, self._retriever.unit
      k = min(k, passages.num_blocks)
      ids, scores = self._retriever.search(texts, k)
    return [
      {'unit': unit, 'passages': _passages(passages, *row)}
      for row in zip(ids, scores, strict=True)
    ]

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
    """Return the models over changed documents, and counts of changes.

    Args:
      root: a new folder for the data.
      documents: added, or in place of those of the same id.
      delete: ids.

    Raises:
      ValueError: for changes that `changed_documents.check` refuses.
    """
    counts, new = {}, {}
    try:
      if self.realm_workdir:
        data = str(root / 'realm')
        counts |= reader_update.update_run(
          self.realm_workdir, data, documents, delete, data_dir=self.realm_data
        )
        parts = [x for x in ('reader', 'realm') if getattr(self, x)]
        old = getattr(self, parts[0]).data
        first = self.realm_content or _content(old)
        # Calibrations are of the run's data, which changes may bring back.
        data = '' if _content(type(old)(root / 'realm')) == first else data
        new |= _of_realm(self.realm_workdir, parts, data)
        new['realm_content'] = first
      if self.retro_workdir:
        data, old = str(root / 'retro'), self.retro
        counts |= retro_update.change(
          old.config, old.data, data, documents, delete
        )
        new |= _of_retro(self.retro_workdir, data)
    except BaseException:
      shutil.rmtree(root, ignore_errors=True)
      raise
    return dataclasses.replace(self, **new), counts


def _content(data: realm_data.DataFolder) -> str:
  """Hash of the blocks and their documents' ids."""
  arrays = data.blocks.all_hashes(), data.blocks.tokens.id_hash[:]
  return checksums.of_bytes(b''.join(x.tobytes() for x in arrays))


def _passages(passages, ids, scores) -> list[dict[str, Any]]:
  ids, scores = ids[ids >= 0], scores[ids >= 0]
  numbers = passages.documents(ids)
  columns = (
    ids.tolist(),
    map(float, scores),
    passages.titles(ids),
    [passages.tokens.document_id(int(x)) for x in numbers],
    passages.texts(ids),
  )
  names = 'id', 'score', 'title', 'document', 'text'
  return [
    dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)
  ]


def open_models(workdirs: Sequence[str], embedder: str) -> Models:
  """Load the runs of RETRO, of a reader and of REALM.

  `packaged` gives what no other run gives.

  Raises:
    FileNotFoundError: where there is no model.
    ValueError: for another kind of model, or two of the same.
  """
  fields: dict[str, Any] = {'embedder': embedder}
  for workdir in sorted(workdirs, key=PACKAGED.__eq__):
    new = {}
    if workdir == PACKAGED:
      if 'retro_workdir' not in fields:
        new = _of_retro(str(retro_packaged.named(retro_packaged.DEFAULT)))
      if 'realm_workdir' not in fields:
        new |= _of_realm(str(realm_packaged.take()), ('reader', 'realm'))
    else:
      saved = checkpoints.find(workdir)
      parts = {*saved.params}
      if 'retrieval' in saved.config and 'embedding' in parts:
        new = _of_retro(workdir)
      elif parts & {'reader', 'encoder'}:
        kinds = {'reader': 'reader', 'realm': 'encoder'}
        served = [part for part, name in kinds.items() if name in parts]
        new = _of_realm(workdir, served)
      else:
        raise ValueError(
          f'--workdir={workdir}: a checkpoint with {sorted(parts)[:5]}; expected '
          'RETRO, its baseline, a reader or a REALM.'
        )
    if twice := {'retro_workdir', 'realm_workdir'} & {*fields} & {*new}:
      there = fields[min(twice)]
      raise ValueError(f'--workdir={workdir}: {there} is of the same kind.')
    fields |= new
  return Models(**fields)


def _of_retro(workdir: str, data: str = '') -> dict[str, Any]:
  kind = retro_config.Config  # what `update` needs; a packed run's data do not
  kind = loading.RunConfig if packed.is_packed(workdir) else kind
  model = retro_jax.load(workdir, data, config_type=kind)
  return {'retro': model, 'retro_workdir': workdir}


def _of_realm(
  workdir: str, parts: Sequence[str], data: str = ''
) -> dict[str, Any]:
  models = {part: realm_jax.load(workdir, data, part=part) for part in parts}
  return models | {'realm_workdir': workdir, 'realm_data': data}
