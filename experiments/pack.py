# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Pack a trained model: its weights at 8 or 32 bits, its config, its tokenizer.

  python -m experiments.pack --workdir=RUN --output=DIR

RUN is a run of RETRO, REALM or question answering. `retro_jax.load(DIR)` and
`realm_jax.load(DIR)` read the result, and so does every command in place of a run. Of
a REALM or a reader --parts=encoder,reader,embedder packs some parts into DIR, whose
others stay; of a RETROfit --parts=added packs what was added to its decoder.
--vectors adds the vectors of the run's blocks, so that nobody has to embed them;
--calibration adds the calibration alone of a run taken from DIR (evaluate.calibrate).
The wheel's models lie in realm_jax/packaged and retro_jax/packaged.

--push=OWNER/NAME then sends the folder, and a README.md that you wrote there, to the
Hugging Face Hub as a repository that `load('hf://OWNER/NAME')` reads; --private hides
a new one. HF_TOKEN is the right to write.
"""

from collections.abc import Collection
import dataclasses
import json
import pathlib
from typing import Any

from absl import flags, logging
import numpy as np

from experiments.engine import command, progress
from realm_jax.nn import initialize
from realm_jax.trained import (
  embedders,
  index_builder,
  loading,
  model_configs,
  packaged,
  realm as realm_lib,
)
from retrieval.index import snapshots
from retrieval.questions import abstention
from retrieval.store import (
  checkpoints,
  hub,
  locks,
  output_files,
  packed,
  safetensors_files,
)
from retro_jax.trained import language_model, packaged as retro_packaged

_STARTS = ('data_dir', 'embedder_from', 'encoder_from', 'realm_from')


def pack(
  workdir: str,
  output: str,
  data_dir: str = '',
  *,
  parts: Collection[str] = (),
  bits: int = 8,
  vectors: bool = False,
  calibration: bool = False,
) -> int:
  """Pack the model of a run; return its step."""
  folder, saved = pathlib.Path(output), checkpoints.find(workdir)
  if saved.config.task == 'retro':
    model = language_model.load(workdir, data_dir)
    retro_packaged.pack(output, model, bits=bits, added='added' in parts)
    return model.step
  if calibration:
    source = pathlib.Path(workdir, abstention.FILE)
    output_files.write(folder / abstention.FILE, source.read_bytes())
    packed.write_facts(folder, packed.read_facts(folder), [abstention.FILE])
    return saved.step
  trained = loading.load(workdir, data_dir)
  _pack_parts(folder, trained, parts, bits)
  if vectors:
    _pack_vectors(folder, loading.load(workdir, data_dir, part='realm'))
  return trained.step


def _pack_parts(
  folder: pathlib.Path,
  trained: realm_lib.TrainedRealm | loading.TrainedReader,
  parts: Collection[str],
  bits: int,
) -> None:
  """Write a REALM or a reader with its tokenizer; `loading.load` reads the folder.

  Args:
    folder: new, or a packed model of the same sizes and tokenizer, whose other
      parts and settings stay. config.layout goes with the encoder.
    parts: of the parameters: embedder, encoder, reader; () for all there are.
    bits: of a value, 8 or 32.

  Raises:
    ValueError: for a part that the model lacks, or that does not belong to the packed
      model in the folder.
  """
  tokenizer = trained.data.tokenizer
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
    sections = 'model', 'embedder', 'encoder'
    differ = [name for name in sections if old[name] != config[name]]
    facts = packed.read_facts(folder)
    if differ or facts.fingerprints['tokenizer'] != tokenizer.fingerprint:
      raise ValueError(
        f'{folder}: a packed model of another {differ or "tokenizer"}.'
      )
    made = facts.vectors.get('params')
    retriever = snapshots.fingerprint(index_builder.snapshot(trained.params))
    reads = 'encoder' in parts and 'embedder' not in parts
    if reads and made not in (None, retriever):
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


def _pack_vectors(
  folder: pathlib.Path, trained: realm_lib.TrainedRealm
) -> None:
  """Add the vectors of all blocks, by the packed embedder, 8 bits a value."""
  blocks = trained.data.blocks
  params = packed.load_params(folder, initialize.EMBEDDERS)
  embed = embedders.BlockEmbedder(
    trained.model.config, trained.layout, blocks, params
  )
  with progress.bar('embed', 'blocks') as update:
    vectors = embed(np.arange(blocks.num_blocks), update)
  levels, scale = packed.round_to_levels(vectors, axis=1)
  arrays = {'levels': levels, 'scale': scale}
  safetensors_files.write(folder / packaged.VECTORS, arrays)
  made = {'params': snapshots.fingerprint(params), 'blocks': blocks.fingerprint}
  facts = dataclasses.replace(packed.read_facts(folder), vectors=made)
  packed.write_facts(folder, facts, [packaged.VECTORS])


def push(output: str, name: str, private: bool = False) -> str:
  """Send a packed run to OWNER/NAME on the Hub; return the address."""
  files = packed.WEIGHTS, 'README.md', *packed.read_facts(output).files
  return hub.push(output, name, files, private=private)


def main(argv: list[str]) -> None:
  """Pack the model of --workdir."""
  del argv
  values = flags.FLAGS
  if values.push:
    hub.check_push(values.push)
  output = values.output
  with locks.writer(output):
    step = pack(
      values.workdir,
      output,
      values.data_dir,
      parts=values.parts,
      bits=int(values.bits),
      vectors=values.vectors,
      calibration=values.calibration,
    )
    logging.info('Packed step %d into %s.', step, output)
    if values.push:
      url = push(output, values.push, values.private)
      logging.info('Pushed to %s.', url)


if __name__ == '__main__':
  flags.DEFINE_string('workdir', None, 'Folder of the run.')
  command.define_output('output', None, 'Output folder.', is_folder=True)
  flags.DEFINE_string('data_dir', '', 'Folder of the data, if they have moved.')
  flags.DEFINE_list('parts', [], 'Parts of the model; empty: all.')
  flags.DEFINE_enum('bits', '8', ['8', '32'], 'Of a value.')
  flags.DEFINE_bool('vectors', False, "Add the vectors of the run's blocks.")
  flags.DEFINE_bool('calibration', False, "Add the run's calibration alone.")
  flags.DEFINE_string('push', '', 'OWNER/NAME on the Hub to write to.')
  flags.DEFINE_bool('private', False, 'Whether a new repository is private.')
  flags.mark_flags_as_required(['workdir', 'output'])
  command.main_of_script(main)
