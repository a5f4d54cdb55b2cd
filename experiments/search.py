# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search passages of the packaged articles, or of your data.

  python -m experiments.search 'the highest mountain'
  python -m experiments.search 'the highest mountain' --data_dir=runs/quickstart/data

Without --data_dir the blocks of the packaged reader are searched by its retriever.
--data_dir is what experiments.prepare wrote, or an index; several, with commas between,
are searched as one. --embedder=DIR (or DIR,DIR, one for each folder) made the vectors,
where it is not all-MiniLM-L6-v2.
Several texts, each in quotes, are looked up in turn; --query=TEXT, which may repeat,
does the same.
--where="{'year': (2010, 2020)}" searches documents with such metadata alone.
"""

from collections.abc import Sequence

from absl import flags

from experiments.engine import command
import realm_jax
from realm_jax.trained import beams
import retrieval
from retrieval.index import text_index
from retrieval.search import where as where_lib


def _packaged(queries: Sequence[str], k: int) -> text_index.SearchResult:
  reader = realm_jax.packaged()
  retriever = beams.TextRetriever(reader, reader.open_retriever())
  blocks = reader.data.blocks
  ids, scores = retriever.search(queries, min(k, blocks.num_blocks))
  texts, titles = (
    [read(row[row >= 0]) for row in ids]
    for read in (blocks.texts, blocks.titles)
  )
  return text_index.SearchResult(
    ids, scores, texts, titles, list(queries), retriever.unit
  )


def main(unused_argv: list[str]) -> None:
  """Print a table of passages for each query, best first."""
  values = flags.FLAGS
  if not values.query:
    raise ValueError('No text: expected one in quotes, or --query=TEXT.')
  if values.data_dir:
    folders, models = map(command.folders, (values.data_dir, values.embedder))
    path = folders if folders[1:] else folders[0]
    each = [x or None for x in models]
    index = retrieval.open_index(path, embedder=each if each[1:] else each[0])
    where = where_lib.parse(values.where)
    print(index.search(values.query, values.k, where))
  elif values.where:
    raise ValueError('--where: expected --data_dir of documents with metadata.')
  else:
    print(_packaged(values.query, values.k))


if __name__ == '__main__':
  flags.DEFINE_multi_string(
    'query', [], 'Text to look up; may repeat, and stand without the flag.'
  )
  flags.DEFINE_string('data_dir', '', 'Folder of data or of an index.')
  flags.DEFINE_string('embedder', '', 'Folder of the embedder of its vectors.')
  flags.DEFINE_string('where', '', "Filter such as {'year': (2010, 2020)}.")
  flags.DEFINE_integer('k', 5, 'Passages of each query.', 1)
  command.main_of_script(main, text='query')
