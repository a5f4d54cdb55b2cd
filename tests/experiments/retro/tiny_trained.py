# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny RETRO and its baseline as if they were trained, over `tiny_data`."""

import dataclasses
import pathlib

from retro_jax.data import folder as retro_data
from retro_jax.trained import language_model, loading
from tests.experiments.retro import tiny_retro


def trained(
  root: pathlib.Path, baseline: bool = False, folder=retro_data.DataFolder
) -> loading.TrainedRetro:
  """One of them, with the data of `tiny_data.make(root)`."""
  found = tiny_retro.trained(root, baseline)
  return dataclasses.replace(found, data=folder(root))


def load_from(root: pathlib.Path, monkeypatch, folder=retro_data.DataFolder):
  """Makes 'retro' and 'baseline', also as ends of paths, loadable; returns them."""
  found = {
    name: trained(root, name == 'baseline', folder)
    for name in ('retro', 'baseline')
  }

  def load(workdir, data_dir='', source='', **unused_placement):
    one = found[str(workdir).split('/')[-1]]
    if not source:
      return one
    return dataclasses.replace(
      one, data=dataclasses.replace(one.data, source=source)
    )

  monkeypatch.setattr(language_model, 'load', load)
  return found


def evaluate(**changes):
  """How they are evaluated."""
  return tiny_retro.evaluate(num_neighbors=(1,), max_documents=3, **changes)
