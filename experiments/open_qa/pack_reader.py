# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Packs a trained reader into 8 bits a parameter, as the package carries one.

  python -m experiments.open_qa.pack_reader --workdir=RUN --output=realm_jax/packaged

RUN is a run of experiments.open_qa.train. `unpack` makes of the packaged reader a
checkpoint over any corpus, without training: experiments.open_qa.ask does so where no model
is named.
"""

import json
import os
from typing import Any

from absl import flags
from absl import logging
import ml_collections

from experiments.engine import checkpoint_writer
from experiments.engine import command
from experiments.open_qa import task as qa_task
from experiments.realm import prepare as realm_prepare
from experiments.realm import task as realm_task
from realm_jax.data import folder as realm_data
from realm_jax.serving import packaged_reader


def pack(workdir: str | os.PathLike, folder: str | os.PathLike) -> None:
  """Writes the reader of a run in the packaged form.

  Args:
    workdir: of a run of qa_train.
    folder: where to.

  Raises:
    FileNotFoundError: if there is no checkpoint.
    ValueError: if it has no reader.
  """
  trained = qa_task.load(workdir)
  packaged_reader.save(
    folder,
    trained.params['reader'],
    {'step': trained.step} | _model(trained.config, trained.data),
  )


def _model(
  config: ml_collections.ConfigDict, data: realm_data.DataFolder
) -> dict[str, Any]:
  """What a reader's parameters belong to, beside their shapes."""
  bert = realm_task.model_config(config, data).encoder
  return {
    'tokenizer': data.tokenizer.fingerprint,
    'reader': config.reader.to_dict(),
    'encoder': {
      name: getattr(bert, name)
      for name in ('num_layers', 'num_heads', 'activation', 'layer_norm_eps')
    },
  }


def unpack(
  config: ml_collections.ConfigDict, workdir: str | os.PathLike
) -> None:
  """Makes a checkpoint of the packaged reader and the config's retriever.

  Prepares the data where that is still to do, so the corpus is any.

  Args:
    config: of question answering; `encoder_from` makes no difference.
    workdir: without a checkpoint.

  Raises:
    FileNotFoundError: when there is no packaged reader.
    ValueError: if the config's tokenizer or reader is another than its own, or
      there is a checkpoint already.
  """
  made = packaged_reader.load_config()
  data = realm_data.DataFolder.of(config, workdir)
  if not config.data_dir:
    realm_prepare.run(config, str(workdir))
  for name, value in _model(config, data).items():
    if value != made[name]:
      raise ValueError(
        f'The packaged reader has {name} {made[name]}, the config {value}; '
        'expected the same.'
      )
  config = command.changed(config, encoder_from=packaged_reader.NAME)
  trained = qa_task.untrained(config, data)
  checkpoint_writer.save_params(
    str(workdir),
    trained.params,
    config=json.loads(config.to_json()),
    fingerprints=data.fingerprints(),
  )


def main(argv: list[str]) -> None:
  """Packs."""
  del argv
  values = flags.FLAGS
  pack(values.workdir, values.output)
  logging.info('Packed into %s.', values.output)


if __name__ == '__main__':
  flags.DEFINE_string('workdir', None, 'Of the run.')
  flags.DEFINE_string('output', None, 'Folder to write.')
  flags.mark_flags_as_required(['workdir', 'output'])
  command.main_of_script(main)
