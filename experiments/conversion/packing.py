# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Write a trained REALM or reader as a packed model (`retrieval.store.packed`)."""

from collections.abc import Callable, Collection
import dataclasses
import json
import os
import pathlib
from typing import Any

import numpy as np

from realm_jax.nn import initialize
from realm_jax.trained import (
  embedders,
  index_builder,
  loading,
  model_configs,
  packaged,
  realm,
)
from retrieval.index import snapshots
from retrieval.questions import abstention
from retrieval.store import output_files, packed, safetensors_files

_STARTS = ('data_dir', 'embedder_from', 'encoder_from', 'realm_from')


def pack(
  folder: str | os.PathLike,
  trained: realm.TrainedRealm | loading.TrainedReader,
  *,
  parts: Collection[str] = (),
  bits: int = 8,
) -> None:
  """Write a model with its tokenizer; `loading.load` reads the folder.

  Args:
    folder: new, or a packed model of the same sizes and tokenizer, whose other
      parts and settings stay. config.layout goes with the encoder.
    parts: of the parameters: embedder, encoder, reader; () for all there are.
    bits: of a value, 8 or 32.

  Raises:
    ValueError: for a part that the model lacks, or that does not belong to the packed
      model in the folder.
  """
  folder, tokenizer = pathlib.Path(folder), trained.data.tokenizer
  params = dict(trained.params)
  if getattr(trained, 'block_params', None) is not None:
    params[loading.BLOCKS] = trained.block_params
  parts = tuple(parts) or tuple(sorted(params))
  if missing := {*parts} - {*params}:
    raise ValueError(
      f'parts {sorted(missing)}: expected some of {sorted(params)}.'
    )
  config = _config(trained)
  fingerprints = {'tokenizer': tokenizer.fingerprint}
  if packed.is_packed(folder):
    old = packed.read_config(folder)
    differ = [
      name
      for name in ('model', 'embedder', 'encoder')
      if old[name] != config[name]
    ]
    facts = packed.read_facts(folder)
    if differ or facts.fingerprints['tokenizer'] != tokenizer.fingerprint:
      raise ValueError(
        f'{folder}: a packed model of another {differ or "tokenizer"}.'
      )
    made = facts.vectors.get('params')
    retriever = snapshots.fingerprint(index_builder.snapshot(trained.params))
    if (
      'encoder' in parts
      and 'embedder' not in parts
      and made not in (None, retriever)
    ):
      raise ValueError(
        f'{folder}: the model reads the blocks of another retriever; expected a '
        'training with --config.embedder_from=packaged '
        '--config.optimizer.part_scales.embedder=0'
      )
    config |= old
    if 'encoder' in parts:
      config['layout'] = _config(trained)['layout']
  folder.mkdir(parents=True, exist_ok=True)
  tokenizer.save(folder)
  packed.write(
    folder,
    {part: params[part] for part in parts},
    config,
    step=trained.step,
    fingerprints=fingerprints,
    bits=bits,
    others=['tokenizer.json'],
  )


def pack_calibration(
  folder: str | os.PathLike, workdir: str | os.PathLike
) -> None:
  """Add the calibration of a run that was taken from this packed model."""
  folder, source = pathlib.Path(folder), pathlib.Path(workdir, abstention.FILE)
  output_files.write(folder / abstention.FILE, source.read_bytes())
  packed.write_facts(folder, packed.read_facts(folder), [abstention.FILE])


def _config(trained: model_configs.TrainedModel) -> dict[str, Any]:
  """Return a model's config without the paths of one machine."""
  realm = getattr(trained.model.config, 'realm', trained.model.config)
  config = json.loads(json.dumps(dataclasses.asdict(trained.config)))
  for name in ('embedder', 'encoder'):
    bert = getattr(realm, name)
    sizes = {
      field: getattr(bert, field)
      for field in config[name]
      if not (field == 'checkpoint' or field.endswith('dtype'))
    }
    config[name] |= sizes | {'checkpoint': ''}
  return config | {name: '' for name in _STARTS if name in config}


def pack_vectors(
  folder: str | os.PathLike,
  trained: realm.TrainedRealm,
  progress: Callable[[int, int], None] | None = None,
) -> None:
  """Add the vectors of all blocks, by the packed embedder, 8 bits a value.

  Args:
    folder: packed model with an embedder.
    trained: a model of the same settings, with the blocks.
    progress: called with (blocks done, blocks in all).
  """
  folder, blocks = pathlib.Path(folder), trained.data.blocks
  params = packed.load_params(folder, initialize.EMBEDDERS)
  embed = embedders.BlockEmbedder(
    trained.model.config, trained.layout, blocks, params
  )
  vectors = embed(np.arange(blocks.num_blocks), progress)
  levels, scale = packed.round_to_levels(vectors, axis=1)
  arrays = {'levels': levels, 'scale': scale}
  safetensors_files.write(folder / packaged.VECTORS, arrays)
  made = {'params': snapshots.fingerprint(params), 'blocks': blocks.fingerprint}
  facts = dataclasses.replace(packed.read_facts(folder), vectors=made)
  packed.write_facts(folder, facts, [packaged.VECTORS])
