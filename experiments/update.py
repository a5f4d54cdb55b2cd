# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Add, change and delete documents of the data of a run, without any training.

  python -m experiments.update --config=configs/<name>.py --workdir=DIR \
    --documents=changes.jsonl --delete=ID --output=DATA

Only new texts are embedded. See experiments/<room>/update.py.
"""

from experiments.engine import changed_documents, command

if __name__ == '__main__':
  command.main(
    'update', define_flags=changed_documents.define_flags, only_reads=True
  )
