# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Print bits a byte of the documents in thirds, by how much they share with others.

  python overlap.py [DATA]

overlap.npz has the mean r(C) of each document of the split `test`, weighted by the
bytes of its chunks; with the data folder DATA of RETRO it is written first.
"""

import pathlib
import sys

import numpy as np

from configs import retro_pretrain_quickstart as quickstart
from experiments.engine import configs
from experiments.retro import config as config_lib
from experiments.tables import intervals
from retro_jax.data import folder, windows
from retro_jax.evaluation import leakage
from retro_jax.trained import loading

HERE = pathlib.Path(__file__).parent
FILE = HERE / 'overlap.npz'


def measure(path):
  """Write FILE."""
  data = folder.DataFolder(pathlib.Path(path))
  config = configs.build(config_lib.Config, quickstart.get_config())
  reader = loading.chunk_reader(config, data, 'test', 10)
  chunks = reader.stores.chunks
  ids, document = windows.chunk_ids(windows.find_documents(chunks, 0))
  size = leakage.count_bytes(chunks, ids, data.tokenizer)
  shared = leakage.overlaps(
    leakage.whole_neighbors(reader), ids, lambda *_: None
  )
  total = np.bincount(document, size)
  np.savez(FILE, overlap=np.bincount(document, shared * size) / total)


def table():
  """Print the thirds."""
  shared = np.load(FILE)['overlap']
  retro = np.load(HERE / 'retro_out_3.npz')
  rows = [retro['test/k2'], retro['test/off']]
  for name in ('baseline_copy', 'baseline_copy_wide', 'baseline_copy_time'):
    rows.append(np.load(HERE / f'{name}.npz')['test/off'])
  bits = retro['test/bytes'] * np.log(2)
  third = np.digitize(shared, np.quantile(shared, (1 / 3, 2 / 3)))
  for i in range(3):
    at = third == i
    print(f'{at.sum()} documents, mean r(C) {shared[at].mean():.2f}')
    means = [x[:, at].sum() / len(x) / bits[at].sum() for x in rows]
    print('  k = 2, off, baseline, equal parameters, time:', np.round(means, 4))
    for row in rows[1:]:
      less = intervals.of_values((rows[0] - row)[:, at].astype(float), bits[at])
      print(f'  k = 2 less it: {less.mean:.4f}', np.round(less.interval(), 4))


if __name__ == '__main__':
  for folder_of_data in sys.argv[1:]:
    measure(folder_of_data)
  table()
