# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Pack a trained REALM's encoder into 8 bits a parameter, as the package has it.

  python -m experiments.realm.pack --workdir=RUN --output=realm_jax/packaged

RUN is a run of experiments.realm.train with the packaged retriever, which stays as
it is. `realm_jax.packaged_realm` reads the result.
"""

from absl import flags, logging

from experiments.engine import command
from realm_jax.serving import packaged_realm, trained as trained_lib
from retrieval.store import locks


def main(argv: list[str]) -> None:
  """Pack the model of --workdir."""
  del argv
  values = flags.FLAGS
  trained = trained_lib.load_realm(values.workdir, values.data_dir)
  with locks.writer(values.output):
    packaged_realm.save(values.output, trained)
  logging.info('Packed step %d into %s.', trained.step, values.output)


if __name__ == '__main__':
  flags.DEFINE_string('workdir', None, 'Folder of the run.')
  flags.DEFINE_string('output', None, 'Output folder.')
  flags.DEFINE_string('data_dir', '', 'Folder of the data, if they have moved.')
  flags.mark_flags_as_required(['workdir', 'output'])
  command.main_of_script(main)
