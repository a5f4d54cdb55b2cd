# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Pack a trained RETRO into 8 bits a parameter, as the package carries one.

  python -m experiments.retro.pack --workdir=RUN --output=retro_jax/packaged

RUN is a run of experiments.retro.train on the packaged articles. `retro_jax.packaged`
reads the result.
"""

from absl import flags, logging

from experiments.engine import command
from retrieval.store import locks
from retro_jax.trained import loading, packaged


def main(argv: list[str]) -> None:
  """Pack the model of --workdir."""
  del argv
  values = flags.FLAGS
  trained = loading.load(values.workdir, values.data_dir)
  with locks.writer(values.output):
    packaged.save(values.output, trained)
  logging.info('Packed step %d into %s.', trained.step, values.output)


if __name__ == '__main__':
  flags.DEFINE_string('workdir', None, 'Folder of the run.')
  flags.DEFINE_string('output', None, 'Output folder.')
  flags.DEFINE_string('data_dir', '', 'Folder of the data, if they have moved.')
  flags.mark_flags_as_required(['workdir', 'output'])
  command.main_of_script(main)
