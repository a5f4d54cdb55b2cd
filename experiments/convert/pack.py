# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Pack a trained RETRO or REALM into 8 bits a parameter, as the package has them.

  python -m experiments.convert.pack --workdir=RUN --output=retro_jax/packaged
  python -m experiments.convert.pack --workdir=RUN --output=realm_jax/packaged

RUN is a run of experiments.retro.train on the packaged articles, or one of
experiments.realm.train with the packaged retriever, which stays as it is.
`retro_jax.packaged` and `realm_jax.packaged_realm` read the results.
"""

from absl import flags, logging

from experiments.engine import command
from realm_jax.serving import trained as trained_lib
from realm_jax.serving.packages import packaged_realm
from retrieval.store import checkpoints, locks
from retro_jax.trained import loading, packaged

# Task of a run -> what loads the run, and what writes its packed form
_TASKS = {
  'retro': (loading.load, packaged.save),
  'realm': (trained_lib.load_realm, packaged_realm.save),
}


def main(argv: list[str]) -> None:
  """Pack the model of --workdir."""
  del argv
  values = flags.FLAGS
  task = checkpoints.find(values.workdir).config.get('task')
  if task not in _TASKS:
    raise ValueError(
      f'{values.workdir}: a run of task {task!r}; expected one of {[*_TASKS]}.'
    )
  load, save = _TASKS[task]
  trained = load(values.workdir, values.data_dir)
  with locks.writer(values.output):
    save(values.output, trained)
  logging.info('Packed step %d into %s.', trained.step, values.output)


if __name__ == '__main__':
  flags.DEFINE_string('workdir', None, 'Folder of the run.')
  flags.DEFINE_string('output', None, 'Output folder.')
  flags.DEFINE_string('data_dir', '', 'Folder of the data, if they have moved.')
  flags.mark_flags_as_required(['workdir', 'output'])
  command.main_of_script(main)
