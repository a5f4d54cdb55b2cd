# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Export of a trained REALM or reader in the form of the Hugging Face port."""

import json
import os
import pathlib
from typing import Any

from flax import traverse_util
import jax
import numpy as np

from experiments.engine import progress
from realm_jax.checkpoints import (
  config as checkpoint_config,
  convert as checkpoint_convert,
)
from realm_jax.data import folder as realm_data
from realm_jax.trained import (
  index_builder,
  model_configs,
  reader_configs,
)
from retrieval.formats import block_records
from retrieval.index import index_versions
from retrieval.store import checkpoints, locks, output_files, safetensors_files

_WORD = 'bert/embeddings/word/embedding'
_TEXTS = 4096


def export(
  workdir: str | os.PathLike, target: str | os.PathLike
) -> dict[str, str]:
  """Export the newest checkpoint of a run; two classes get a subfolder each."""
  params, saved = checkpoints.load_params(str(workdir))
  params = jax.tree.map(np.asarray, params)
  config = reader_configs.of_saved(saved)
  data = realm_data.DataFolder.of(config, workdir)
  rows = {}
  with locks.writer(target):
    for folder, name in checkpoint_convert.fitting(params).items():
      path = pathlib.Path(target) / folder
      if (path / 'config.json').exists():
        raise ValueError(
          f'{path}: holds a checkpoint already; expected another folder.'
        )
      version = None
      if name == 'RealmForOpenQA' and (data.root / 'blocks').exists():
        version = _open_version(workdir, params, saved, data)
      fields, tensors = _to_hf(name, params, config, version)
      path.mkdir(parents=True, exist_ok=True)
      safetensors_files.write(path / 'model.safetensors', tensors)
      text = json.dumps(fields, indent=2, sort_keys=True) + '\n'
      output_files.write(path / 'config.json', text.encode())
      if data.tokenizer_path.exists():
        _write_tokenizer(path, data.tokenizer_path / 'tokenizer.json')
      count = 0
      if version:
        count = len(version.vectors)
        _write_records(path / 'block_records.npy', data)
        version.close()
      rows[str(path)] = f'{name}: {len(tensors)} tensors, {count:,} blocks'
  return rows


def _open_version(
  workdir: str | os.PathLike,
  params: Any,
  saved: checkpoints.Saved,
  data: realm_data.DataFolder,
) -> index_versions.Version | None:
  """Open the index version that a checkpoint retrieves from; None without one.

  A fine-tuned checkpoint names it, since the vectors are of the block embedder.
  """
  name = saved.index_version or index_versions.version_name(
    saved.step, index_builder.snapshot(params), data.blocks
  )
  folder = pathlib.Path(workdir) / index_builder.INDEX
  versions = index_versions.VersionFolder(folder)
  return versions.open(name) if name in versions.names() else None


def _to_hf(hf_class, params, config, version):
  """Fields of config.json, and the tensors."""
  flat = traverse_util.flatten_dict(params, sep='/')
  vocab_size = next(len(x) for name, x in flat.items() if name.endswith(_WORD))
  realm, reader = model_configs.realm_config(config, vocab_size), None
  if 'reader' in params:
    reader = reader_configs.reader_config(config, vocab_size)
  vectors = version.vectors if version else ()
  fields = checkpoint_config.to_fields(hf_class, realm, reader, len(vectors))
  fields['num_candidates'] = config.layout.num_candidates
  if lookup := getattr(config, 'lookup', None):
    fields |= {
      'searcher_beam_size': lookup.retriever_beam,
      'reader_beam_size': lookup.reader_beam,
      'reader_seq_len': lookup.row_length,
    }
  tensors = checkpoint_convert.to_hf(
    params,
    hf_class,
    checkpoint_config.sizes(fields),
    vectors=vectors if version else None,
  )
  return fields, tensors


def _write_records(path: pathlib.Path, data: realm_data.DataFolder) -> None:
  blocks = data.blocks
  with progress.bar('texts', 'blocks') as update:

    def texts():
      for low in range(0, blocks.num_blocks, _TEXTS):
        high = min(low + _TEXTS, blocks.num_blocks)
        for text in blocks.texts(range(low, high)):
          yield text.encode()
        update(high, blocks.num_blocks)

    block_records.write(path, blocks.num_blocks, texts())


def _write_tokenizer(path: pathlib.Path, source: pathlib.Path) -> None:
  """Write the files that the port's tokenizers read."""
  tokenizer = json.loads(source.read_text(encoding='utf-8'))
  vocabulary = tokenizer['model']['vocab']
  words = sorted(vocabulary, key=vocabulary.get)
  lower = (tokenizer.get('normalizer') or {}).get('lowercase', True)
  settings = {'tokenizer_class': 'RealmTokenizer', 'do_lower_case': lower}
  for name, text in (
    ('tokenizer.json', json.dumps(tokenizer, ensure_ascii=False)),
    ('vocab.txt', ''.join(f'{word}\n' for word in words)),
    ('tokenizer_config.json', json.dumps(settings, indent=2) + '\n'),
  ):
    output_files.write(path / name, text.encode())
