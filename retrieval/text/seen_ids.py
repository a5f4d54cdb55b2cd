# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Ids of earlier documents, on disk: memory does not grow with the corpus."""

import hashlib
import os
import sqlite3
import tempfile

from retrieval.readers import base


class SeenIds:
  """A table of ids and the places of their first documents."""

  def __enter__(self):
    opened, file = tempfile.mkstemp(prefix='ids-')
    os.close(opened)
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
      self._db.execute(command)
    os.unlink(file)  # nothing is left, however the process ends
    return self

  def __exit__(self, *exception):
    self._db.close()

  def check(self, document_id: str, where: str) -> None:
    """Add the id of a document, or raise BadRecord for one that is used."""
    data = document_id.encode()
    key = hashlib.blake2b(data, digest_size=16).digest()
    added = self._db.execute(
      'insert or ignore into seen values (?, ?)', (key, where)
    )
    if not added.rowcount:
      query = 'select place from seen where id = ?'
      [first] = self._db.execute(query, (key,)).fetchone()
      raise base.BadRecord(
        'duplicate id',
        where,
        f'id {document_id!r} is already used at {first}.',
      )
