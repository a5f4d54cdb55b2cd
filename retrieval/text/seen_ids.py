# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Ids of earlier documents, on disk: memory does not grow with the corpus."""

from collections.abc import Sequence
import hashlib
import operator
import os
import sqlite3
import tempfile

from retrieval.readers import base

KEY_BYTES = 16
DUPLICATE = 'duplicate id'
_ADD = 'insert or ignore into seen values (?, ?)'


def key_of(document_id: str) -> bytes:
  """Hash an id to the bytes that stand for it."""
  data = document_id.encode()
  return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()


class SeenIds:
  """A table of ids and the places of their first documents."""

  def __enter__(self):
    opened, file = tempfile.mkstemp(prefix='ids-')
    os.close(opened)
    self._folder = os.path.dirname(file)
    self._db = sqlite3.connect(
      file, isolation_level=None, check_same_thread=False
    )
    for command in (
      'pragma journal_mode = off',
      'pragma synchronous = off',
      'pragma cache_size = -8192',
      'create table seen (id blob primary key, place text) without rowid',
      'begin',
    ):
      self._execute(command)
    os.unlink(file)  # nothing is left, however the process ends
    return self

  def __exit__(self, *exception):
    self._db.close()

  def add(self, key: bytes, where: str) -> str:
    """Return '' for a new id, else the place of its first document."""
    added = self._execute(_ADD, (key, where))
    return '' if added.rowcount else self._first(key)

  def add_all(self, rows: Sequence[tuple[bytes, str]]) -> dict[str, str]:
    """Add keys with their places; return the first places of used keys.

    Args:
      rows: (key, place); each place is new.

    Returns:
      Place of a row -> place of the first document with its id.
    """
    # Neighbors share pages of the table; of equal keys the first stays first.
    rows = sorted(rows, key=operator.itemgetter(0))
    added = self._db.executemany(_ADD, rows)
    if added.rowcount == len(rows):
      return {}
    firsts = ((where, self._first(key)) for key, where in rows)
    return {where: first for where, first in firsts if first != where}

  def check(self, document_id: str, where: str) -> None:
    """Add the id of a document, or raise BadRecord for one that is used."""
    if first := self.add(key_of(document_id), where):
      raise duplicate(document_id, where, first)

  def _first(self, key: bytes) -> str:
    query = self._execute('select place from seen where id = ?', (key,))
    return query.fetchone()[0]

  def _execute(self, *command) -> sqlite3.Cursor:
    return self._db.execute(*command)


def duplicate(document_id: str, where: str, first: str) -> base.BadRecord:
  """Return the fault of a document whose id is used at `first`."""
  return base.BadRecord(
    DUPLICATE, where, f'id {document_id!r} is already used at {first}.'
  )
