# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Corpora: any source of text as a stream of documents.

Sources: the packaged vital articles, JSON, TSV, CSV, Parquet, Arrow, folders of .txt files, SQuAD's
paragraphs, WikiExtractor's output, TFDS data sets, and the record files of ORQA
and REALM. Documents stream in a fixed order, and memory does not grow with the
corpus. Texts keep their characters, but for a byte order mark, and CRLF becomes LF.
"""

import collections
from collections.abc import Iterator
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import sqlite3
from typing import Annotated, Any, Literal

from absl import logging

from retrieval import settings
from retrieval.readers import base, text_files
from retrieval.store import manifests
from retrieval.text import corpus_files

Document = base.Document

Kind = Literal['auto', *corpus_files.KINDS]
_ENDS_BYTES = 1 << 20
# Settings that matter to records and tables only.
_OF_RECORDS = ('split', 'id_field', 'title_field', 'text_field')


@dataclasses.dataclass(frozen=True)
class CorpusConfig:
  """Source of documents."""

  # auto: as the names of the files tell, or vital without a path. orqa_blocks:
  # blocks.tfr with titles.tfr; orqa_corpus and realm_pretraining: REALM's shards to
  # retrieve from and to train on.
  kind: Kind = 'auto'
  path: str = ''  # a file, a folder or a glob; TFDS: `name` or `name/config`
  split: str = 'train'
  data_dir: str = ''  # data folder of TFDS; '' for its default
  # fields of JSON, TSV and TFDS; '' makes an id of file and line, or no titles
  id_field: str = 'id'
  title_field: str = 'title'
  text_field: str = 'text'
  # further fields that documents keep, joined by commas: 'year,url'
  metadata: str = ''
  # WikiExtractor: whether &amp; and &lt; become & and <
  unescape: bool = True
  # whether JSON, TSV or TFDS hold pages of Wikipedia, as other kinds do; blocks
  # leave out its lists then (`blocks.drop_titles`)
  wikipedia: bool = False
  # whether a document without text has its title as text; else it is skipped
  title_as_text: bool = False
  # 'skip' counts bad records and skips them; empty texts are always skipped
  on_error: Literal['raise', 'skip'] = 'raise'
  max_documents: settings.Count = 0  # largest number of documents; 0 for all
  # most bytes of a record of text or JSON; a longer one is a bad record
  max_record_bytes: Annotated[int, settings.Range(1, 2**31)] = (
    text_files.RECORD_BYTES
  )

  __post_init__ = settings.check

  @property
  def of_wikipedia(self) -> bool:
    """Whether the documents are pages of Wikipedia."""
    return self.wikipedia or corpus_files.KINDS[self.resolved().kind].wikipedia

  def resolved(self) -> 'CorpusConfig':
    """Return the same with the kind that 'auto' stands for.

    Raises:
      ValueError: for names that do not tell the kind.
      FileNotFoundError: when there is no such file.
    """
    if self.kind != 'auto':
      return self
    kind = corpus_files.kind_of(self.path) if self.path else 'vital'
    return dataclasses.replace(self, kind=kind)


class Corpus:
  """Documents of one source, in a fixed order.

  Attributes:
    files: in the order of their documents; none for TFDS.
    fields: names of the fields of JSON, TSV and TFDS.
    skipped: reason -> records skipped by the latest iteration.
  """

  def __init__(self, config: CorpusConfig):
    """Find the files; FileNotFoundError for a path without files."""
    config = config.resolved()
    if not config.path and config.kind != 'vital':
      raise ValueError(f"corpus.path '': expected one for {config.kind!r}.")
    if not config.text_field:
      raise ValueError("corpus.text_field '': expected a field.")
    names = [x.strip() for x in config.metadata.split(',') if x.strip()]
    if names and not corpus_files.KINDS[config.kind].further:
      kinds = [name for name, x in corpus_files.KINDS.items() if x.further]
      raise ValueError(
        f'corpus.metadata {config.metadata!r}: {config.kind} has no further '
        f'fields; expected a corpus.kind of {kinds}.'
      )
    self.config = config
    self.skipped: collections.Counter[str] = collections.Counter()
    self.files = corpus_files.find(config.kind, config.path, config.split)
    for file in self.files:
      if file.name.encode(errors='replace').decode() != file.name:
        raise ValueError(f'corpus.path: {file.name!r} is no name in UTF-8.')
    self.fields = base.Fields(
      config.id_field,
      config.title_field,
      config.text_field,
      tuple(dict.fromkeys(names)),
    )

  def __iter__(self) -> Iterator[Document]:
    """Yield documents.

    Raises:
      ValueError: for a bad record, by file and line, unless the config skips
        these; and when no document is left.
    """
    self.skipped = collections.Counter()
    count = titled = 0
    without = {*(self.fields.metadata or ())}
    with contextlib.closing(_SeenIds()) as seen:
      for where, record in self._records():
        try:
          if isinstance(record, base.BadRecord):
            raise record
          if self.config.title_as_text and not record.text.strip():
            record = dataclasses.replace(record, title='', text=record.title)
          if not record.text or record.text.isspace():
            self.skipped['empty text'] += 1
            continue
          seen.check(record.id, where)
        except base.BadRecord as error:
          if self.config.on_error == 'raise':
            raise ValueError(
              f'{error} (corpus.on_error=skip skips bad records.)'
            ) from None
          self.skipped[error.reason] += 1
          continue
        yield record
        count += 1
        titled += bool(record.title)
        if without:
          without -= {x for x, y in record.metadata.items() if y is not None}
        if count == self.config.max_documents:
          break
    if self.skipped:
      logging.warning('Skipped records: %s.', dict(self.skipped))
    if not count:
      raise ValueError(
        f'No document in {self.config.path or self.config.kind!r} '
        f'({len(self.files)} files; skipped: {dict(self.skipped)}).'
      )
    if self.fields.title and not titled:
      logging.warning('No document has a title (%r).', self.fields.title)
    if without:
      logging.warning('No document has the metadata %s.', sorted(without))

  def _records(self) -> base.Records:
    config, kind = self.config, corpus_files.KINDS[self.config.kind]
    settings = dataclasses.asdict(config) | {
      'fields': self.fields,
      'limit': config.max_record_bytes,
    }
    read = getattr(corpus_files.reader(kind.module), kind.function)
    whole = {'orqa_blocks': [self.files], 'tfds': [config.path]}
    for source in whole.get(config.kind, self.files):
      yield from read(source, *(settings.get(x, x) for x in kind.arguments))

  def annotations(self) -> Iterator[Any]:
    """Yield the sentences and salient spans of all documents, in their order.

    ValueError for a kind of corpus without annotations, and for bad records.
    """
    if self.config.kind != 'realm_pretraining':
      raise ValueError(
        f'corpus.kind {self.config.kind!r} has no sentences and spans; '
        "expected 'realm_pretraining'."
      )
    return corpus_files.reader('orqa').read_annotations(
      self.files, self.config.on_error
    )

  def fingerprint(self) -> str:
    """Hash the settings that matter to the kind, and the files."""
    config = self.config
    fields = dataclasses.asdict(config)
    for name in ('unescape', 'wikipedia', 'metadata'):
      del fields[name]
    if not config.title_as_text:
      del fields['title_as_text']
    if self.fields.metadata:
      fields['metadata'] = self.fields.metadata
    if config.max_record_bytes == CorpusConfig.max_record_bytes:
      del fields['max_record_bytes']
    if config.kind in ('text', 'wikiextractor'):
      fields['marks'] = 'removed'  # byte order mark and CRLF
    if config.kind == 'wikiextractor':
      fields['unescape'] = config.unescape
    ignored = dict.fromkeys(('csv', 'jsonl', 'parquet', 'tsv'), ('split',))
    ignored |= {'arrow': (), 'tfds': (), 'vital': (*_OF_RECORDS, 'path')}
    for name in ignored.get(config.kind, _OF_RECORDS):
      fields[name] = getattr(CorpusConfig, name)
    if config.kind == 'tfds':
      tfds = corpus_files.reader('tfds')
      builder = tfds.load_builder(config.path, config.data_dir)
      builder.download_and_prepare()
      paths = tfds.data_files(builder)
      files = [[path.name, _hash_file(path, whole=False)] for path in paths]
      files.append([builder.info.full_name])
    else:
      # The packaged file has a version; files of users are read whole.
      whole = config.kind != 'vital'
      files = [
        [file.name, _hash_file(file.path, whole=whole)] for file in self.files
      ]
      path = pathlib.Path(config.path)
      fields['path'] = path.name if path.is_file() else ''
    fields['data_dir'] = ''
    return manifests.fingerprint([fields, files])


def open_corpus(path: str | os.PathLike = '', **fields: Any) -> Corpus:
  """Open a corpus: `open_corpus('docs.jsonl')`, `open_corpus(kind='vital')`.

  Args:
    path: a file, a folder or a glob; the name of a data set for kind='tfds'.
    **fields: of `CorpusConfig`.

  Raises:
    ValueError: for names that do not tell the kind.
    FileNotFoundError: when there is no such file.
  """
  return Corpus(CorpusConfig(path=os.fspath(path), **fields))


class _SeenIds:
  """Ids and places of earlier documents, on disk."""

  def __init__(self):
    # '' is a temporary file of SQLite, which nothing leaves behind.
    self._db = sqlite3.connect(
      '', isolation_level=None, check_same_thread=False
    )
    self._db.executescript(
      'pragma cache_size = -8192; begin;'
      'create table seen (id blob primary key, place text) without rowid;'
    )
    self.close = self._db.close

  def check(self, document_id: str, where: str) -> None:
    """Add the id of a document, or raise BadRecord for one that is used."""
    key = hashlib.blake2b(document_id.encode(), digest_size=16).digest()
    added = self._db.execute(
      'insert or ignore into seen values (?, ?)', (key, where)
    )
    if not added.rowcount:
      query = 'select place from seen where id = ?'
      [first] = self._db.execute(query, (key,)).fetchone()
      message = f'id {document_id!r} is already used at {first}.'
      raise base.BadRecord('duplicate id', where, message)


def _hash_file(path: pathlib.Path, whole: bool) -> str:
  """Hash a file's size and bytes, or only its first and last MiB."""
  size = path.stat().st_size
  digest = hashlib.sha256(str(size).encode())
  with open(path, 'rb') as f:
    if not whole:
      digest.update(f.read(_ENDS_BYTES))
      f.seek(max(f.tell(), size - _ENDS_BYTES))
    return hashlib.file_digest(f, lambda: digest).hexdigest()
