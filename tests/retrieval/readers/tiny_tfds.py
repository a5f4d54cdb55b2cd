# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Prepared data sets of TFDS, written without TensorFlow."""

from collections.abc import Callable, Iterable, Mapping
import pathlib
from typing import Any

import pytest


def prepare(
  path: pathlib.Path,
  features: Callable[[Any], Mapping[str, Any]],
  splits: Mapping[str, Iterable[Mapping[str, Any]]],
) -> str:
  """Write the data set `tiny_rows`; return its folder, or skip without TFDS.

  Args:
    features: `tensorflow_datasets.features` -> name -> feature.
    splits: name -> records.
  """
  tfds = pytest.importorskip('tensorflow_datasets')

  class TinyRows(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = tfds.core.Version('1.0.0')

    def _info(self):
      made = tfds.features.FeaturesDict(features(tfds.features))
      return tfds.core.DatasetInfo(builder=self, features=made)

    def _split_generators(self, dl_manager):
      return {name: enumerate(rows) for name, rows in splits.items()}

    def _generate_examples(self):
      raise NotImplementedError

  TinyRows(data_dir=path, file_format='array_record').download_and_prepare()
  return str(path)
