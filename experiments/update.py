# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Add, change and delete documents of the data of a run, without any training.

  python -m experiments.update --config=configs/<name>.py --workdir=DIR \
    --documents=changes.jsonl --delete=ID --output=DATA

Documents of --documents (JSON lines, their fields as config.corpus names them)
replace documents of the same id, or are added at the end; --delete, which may repeat,
removes documents. DATA becomes a data folder with indices: only new texts are
embedded. The old data stay as they are; with --config.data_dir=DATA this command
changes the new data again, and any other reads them (docs/ask.md).
"""

from absl import flags

from experiments.engine import command

if __name__ == '__main__':
  flags.DEFINE_string('documents', '', 'JSON lines: added or changed.')
  flags.DEFINE_multi_string('delete', [], 'Id of a document; may repeat.')
  command.define_output('output', '', 'The new data folder.', is_folder=True)
  command.main('update', only_reads=True)
