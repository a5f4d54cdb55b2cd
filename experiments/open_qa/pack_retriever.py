# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Pack the dense retriever of a reader, with its blocks' vectors, at 8 bits a value.

  python -m experiments.open_qa.ask --packaged --workdir=RUN --question='Who?'
  python -m experiments.open_qa.pack_retriever --workdir=RUN --output=realm_jax/packaged

Prints how many of the best blocks of 8-bit vectors are those of 32-bit vectors.
`realm_jax.packaged` reads the result.
"""

import os

from absl import flags
import numpy as np

from experiments.engine import command, progress, reports
from realm_jax.serving import index_builder, serving, trained as trained_lib
from realm_jax.serving.packages import packaged_retriever
from retrieval import searchers
from retrieval.store import locks

_KS = (1, 5, 20)
_QUERIES = 1000


def pack(
  workdir: str | os.PathLike, folder: str | os.PathLike
) -> dict[str, float]:
  """Write the dense retriever of a run's reader in the packaged form.

  Returns:
    agreement_at_K: share of the first K blocks that remain, of queries that are
    themselves blocks' vectors.
  """
  trained = trained_lib.load_reader(workdir).with_retriever('dense')
  params = index_builder.snapshot(trained.params)
  realm = trained.as_realm()
  ids = np.arange(trained.data.blocks.num_blocks)
  embed = serving.BlockEmbedder(
    realm.model.config, trained.layout, trained.data.blocks, params
  )
  whole = _embed(embed, ids, '32 bits')
  embed.load(packaged_retriever.rounded(params))
  vectors = _embed(embed, ids, '8 bits')
  packaged_retriever.save(folder, params, trained.data.blocks, vectors)
  rows = packaged_retriever.quantize_rows(vectors)
  return _agreement(whole, rows['levels'] * rows['scale'])


def _embed(embed: serving.BlockEmbedder, ids: np.ndarray, name: str):
  with progress.bar(f'embed, {name}', 'blocks') as update:
    return embed(ids, update)


def _agreement(whole: np.ndarray, rounded: np.ndarray) -> dict[str, float]:
  """Compare exact searches among vectors [n, d] and among their rounded form."""
  rows = np.linspace(0, len(whole) - 1, min(_QUERIES, len(whole))).astype(int)
  depth = min(max(_KS), len(whole))
  wanted, found = (
    searchers.ExactSearcher(x, 'dot_product').search(x[rows], depth)[0]
    for x in (whole, rounded)
  )
  return {
    f'agreement_at_{k}': float(
      np.mean(
        [
          len({*a[:k]} & {*b[:k]}) / k
          for a, b in zip(wanted, found, strict=True)
        ]
      )
    )
    for k in _KS
    if k <= depth
  }


def main(argv: list[str]) -> None:
  """Pack the retriever of --workdir."""
  del argv
  values = flags.FLAGS
  with locks.writer(values.output):
    found = pack(values.workdir, values.output)
  reports.print_table(
    ['measure', 'share'], [[k, f'{x:.4f}'] for k, x in found.items()]
  )


if __name__ == '__main__':
  flags.DEFINE_string('workdir', None, 'Folder of the run.')
  flags.DEFINE_string('output', None, 'Output folder.')
  flags.mark_flags_as_required(['workdir', 'output'])
  command.main_of_script(main)
