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

from absl import flags, logging

from experiments.conversion import packing
from experiments.engine import command, progress
from realm_jax.trained import loading
from retrieval.store import checkpoints, hub, locks, packed
from retro_jax.trained import language_model, packaged as retro_packaged


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
  if checkpoints.find(workdir).config.task == 'retro':
    model = language_model.load(workdir, data_dir)
    retro_packaged.pack(output, model, bits=bits, added='added' in parts)
    return model.step
  if calibration:
    packing.pack_calibration(output, workdir)
    return checkpoints.find(workdir).step
  trained = loading.load(workdir, data_dir)
  packing.pack(output, trained, parts=parts, bits=bits)
  if vectors:
    realm = loading.load(workdir, data_dir, part='realm')
    with progress.bar('embed', 'blocks') as shown:
      packing.pack_vectors(output, realm, shown)
  return trained.step


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
