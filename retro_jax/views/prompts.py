# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Prompts as text, and files of prompts.

A .txt file holds one prompt a line. A .jsonl file holds one object a line:

  {"prompt": "question: ...", "id": "q7", "neighbors": ["title: ...", ...]}

`id` and `neighbors` may be missing. A list of texts is read after every chunk
in place of what would be retrieved; a list of lists is read chunk by chunk, the
last one by all chunks that follow; an empty list turns retrieval off.
"""

from collections.abc import Sequence
import dataclasses
import os
from typing import Any

from retrieval import arguments, tokenization
from retrieval.readers import base, json_files, text_files
from retro_jax.data import samples

_FIELDS = ('prompt', 'id', 'neighbors')


@dataclasses.dataclass(frozen=True)
class TextPrompt:
  """A text to continue."""

  text: str  # '' begins a document
  id: str = ''  # its name in results
  # texts for each chunk; the last entry serves all later chunks. None retrieves
  # them.
  neighbors: Sequence[Sequence[str]] | None = None
  ids: Sequence[int] | None = None  # tokens of the text, where they are known
  # what retrieves in place of the text's end: a question within the text
  query: str | None = None

  def tokens(
    self, tokenizer: tokenization.Tokenizer, neighbor_length: int
  ) -> samples.Prompt:
    """The prompt after BOS; texts of neighbors are cut at `neighbor_length`."""
    ids = self.ids
    if ids is None:
      ids = tokenizer.encode(self.text).ids.tolist()
    if list(ids[:1]) != [tokenizer.bos_id] or self.ids is None:
      ids = [tokenizer.bos_id, *ids]
    if self.neighbors is None:
      query = None if self.query is None else tokenizer.encode(self.query).ids
      return samples.Prompt(ids, query=query)
    by_chunk = [
      samples.given_neighbors(
        [tokenizer.encode(text).ids for text in texts], neighbor_length
      )
      for texts in self.neighbors
    ]
    return samples.Prompt(ids, by_chunk)


def as_prompts(
  prompts: str | Sequence[str | TextPrompt],
  neighbors: Sequence[Any] | None = None,
) -> list[TextPrompt]:
  """Prompts of one or several texts.

  Args:
    neighbors: texts that all chunks of every prompt read, or a list of texts
      for each chunk; None retrieves them.

  Raises:
    ValueError: for neighbors that are not texts.
  """
  if isinstance(prompts, TextPrompt):
    prompts = [prompts]
  elif isinstance(prompts, list | tuple):
    made = [x.text if isinstance(x, TextPrompt) else x for x in prompts]
    arguments.texts(made, 'prompts')
  else:
    prompts = arguments.texts(prompts, 'prompts')
  made = [x if isinstance(x, TextPrompt) else TextPrompt(x) for x in prompts]
  if neighbors is None:
    return made
  by_chunk = _neighbors(neighbors, 'the call')
  return [dataclasses.replace(x, neighbors=by_chunk) for x in made]


def read(path: str | os.PathLike) -> list[TextPrompt]:
  """Read a file of prompts, which may be compressed; blank lines are skipped.

  File and line name a prompt without an id.

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: for another kind of file, a file without prompts, or a malformed
      line; the message names the line and the field.
  """
  return [
    _prompt(record, where)
    for where, record in json_files.read_prompts(path, 'prompt')
  ]


def _prompt(record: dict[str, Any], where: str) -> TextPrompt:
  unknown = sorted(set(record) - set(_FIELDS))
  if unknown:
    raise ValueError(
      f'{where}: unknown field {unknown[0]!r}; expected some of {_FIELDS}.'
    )
  text = base.string(record, 'prompt', where)
  by_chunk = record.get('neighbors')
  if by_chunk is not None:
    by_chunk = _neighbors(by_chunk, where)
  name = record.get('id', text_files.line_name(where))
  return TextPrompt(text, str(name), by_chunk)


def _neighbors(value: Any, where: str) -> Sequence[Sequence[str]]:
  """Check texts, or lists of texts."""
  where = f"{where}, field 'neighbors'"
  by_chunk = base.check_type(value, where, list)
  if all(isinstance(x, str) for x in by_chunk):
    by_chunk = [by_chunk] if by_chunk else []
  for texts in by_chunk:
    for text in base.check_type(texts, where, list):
      if not base.string({'neighbors': text}, 'neighbors', where):
        raise ValueError(f'{where}: {text!r}, expected a text.')
  return by_chunk
