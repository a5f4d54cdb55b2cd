# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Reader of TFDS data sets prepared as array_record; needs no TensorFlow."""

import importlib
import itertools
import pathlib

from retrieval.readers import base, files

_BATCH = 256


def load_builder(name: str, data_dir: str):
  """Return the builder of `name` or `name/config`; ValueError for an unknown one."""
  import tensorflow_datasets as tfds

  _register(name.split('/')[0].split(':')[0], pathlib.Path(tfds.__file__))
  try:
    return tfds.builder(
      name, data_dir=data_dir or None, file_format='array_record'
    )
  except tfds.core.DatasetNotFoundError:
    raise ValueError(
      f'corpus.path {name!r}: TFDS {tfds.__version__} knows no such data set, '
      f'and {data_dir or "its default folder"} has no prepared one.'
    ) from None


def _register(name: str, package: pathlib.Path) -> None:
  """Import the module of a data set that is missing from TFDS's list."""
  for path in sorted(package.parent.glob(f'*/{name}.py')):
    importlib.import_module(f'tensorflow_datasets.{path.parent.name}.{name}')


def data_files(builder) -> list[pathlib.Path]:
  """Return a prepared data set's files, sorted."""
  return sorted(pathlib.Path(builder.data_path).glob('*array_record*'))


def load_source(name: str, split: str, data_dir: str = ''):
  """Return the records of one split; prepare the data set first if needed.

  ValueError for an unknown data set or split.
  """
  builder = load_builder(name, data_dir)
  builder.download_and_prepare()
  try:
    return builder.as_data_source(split=split)
  except (KeyError, NotImplementedError, ValueError) as e:
    raise ValueError(
      f'corpus.path {name!r}, corpus.split {split!r}: {e} '
      f'(splits: {sorted(builder.info.splits)}).'
    ) from None


def read(
  name: str, split: str, data_dir: str, fields: base.Fields
) -> base.Records:
  """Read one split as documents."""
  source = load_source(name, split, data_dir)
  place = f'{name}[{split}]'
  batches = (
    source.__getitems__([*range(len(source))[start : start + _BATCH]])
    for start in range(0, len(source), _BATCH)
  )
  records = enumerate(itertools.chain.from_iterable(batches))
  rows = ((f'{place}:{i}', record) for i, record in records)
  yield from files.documents(rows, fields, place, start=0)
