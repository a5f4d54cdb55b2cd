# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Pack a trained reader into 8 bits a parameter, as the package carries one.

  python -m experiments.open_qa.pack_reader --workdir=RUN --output=realm_jax/packaged

RUN is a run of experiments.open_qa.train. `realm_jax.packaged` reads the result.
"""

import json
import os
from typing import Any

from absl import flags, logging
import ml_collections

from experiments.engine import command
from realm_jax.serving import trained as trained_lib
from realm_jax.serving.packages import packaged_reader
from retrieval.nn import bert
from retrieval.store import locks

# Sections of a config that say how data and model are made and used.
_SECTIONS = (
  'task',
  'data_dir',
  'corpus',
  'masked_corpus',
  'tokens',
  'blocks',
  'layout',
  'model',
  'embedder',
  'encoder',
  'embedder_from',
  'encoder_from',
  'realm_from',
  'reader',
  'lookup',
  'retriever',
  'train_blocks',
  'index',
  'refresh',
)


def pack(workdir: str | os.PathLike, folder: str | os.PathLike) -> None:
  """Write the reader of a run in the packaged form.

  Raises:
    ValueError: if it has no reader.
  """
  trained = trained_lib.load_reader(workdir)
  tokenizer, realm = trained.data.tokenizer, trained.model.config.realm
  config = sections(trained.config, realm.embedder, realm.encoder)
  packaged_reader.save(
    folder,
    trained.params['reader'],
    tokenizer,
    {
      'step': trained.step,
      'tokenizer': tokenizer.fingerprint,
      'config': config,
    },
  )


def sections(
  config: ml_collections.ConfigDict,
  embedder: bert.BertConfig,
  encoder: bert.BertConfig,
) -> dict[str, Any]:
  """Return a config's sections without the paths of one machine."""
  found = json.loads(config.to_json())
  found = {name: found[name] for name in _SECTIONS}
  for name, bert_cfg in (('embedder', embedder), ('encoder', encoder)):
    sizes = {
      field: getattr(bert_cfg, field)
      for field in found[name]
      if not (field == 'checkpoint' or field.endswith('dtype'))
    }
    found[name] |= sizes | {'checkpoint': ''}
  return found | {
    'data_dir': '',
    'embedder_from': '',
    'encoder_from': '',
    'realm_from': '',
  }


def main(argv: list[str]) -> None:
  """Pack the reader of --workdir."""
  del argv
  values = flags.FLAGS
  with locks.writer(values.output):
    pack(values.workdir, values.output)
  logging.info('Packed into %s.', values.output)


if __name__ == '__main__':
  flags.DEFINE_string('workdir', None, 'Folder of the run.')
  flags.DEFINE_string('output', None, 'Output folder.')
  flags.mark_flags_as_required(['workdir', 'output'])
  command.main_of_script(main)
