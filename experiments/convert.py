# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Convert REALM and ORQA checkpoints of other projects.

  python -m experiments.convert --from=FOLDER[,FOLDER ...] --workdir=DIR

--from takes folders of the Hugging Face port (safetensors, or pytorch_model.bin,
whose pickle is not executed), prefixes of TensorFlow checkpoints, or a folder with
such checkpoints beneath. Checkpoints that complete each other, such as embedder and
encoder, are joined. DIR then holds a checkpoint for config.realm_from or --workdir.

--blocks=blocks.tfr (with titles.tfr beside it; or a block_records.npy) makes DIR/data
and the index, from the vectors of the checkpoint or of --block_emb=PREFIX: nothing is
embedded. A fine-tuned model searches the vectors of the embedder that it started
from: --block_embedder names that embedder. --config is the config that receives the
sizes.
"""

import collections
from collections.abc import Sequence
import dataclasses
import json
import pathlib
from typing import Any

from absl import flags, logging
import jax
import numpy as np

from experiments.conversion import block_data, sources
from experiments.engine import checkpoint_writer, command, configs, reports
from experiments.open_qa import config as config_lib
from realm_jax.checkpoints import convert as checkpoint_convert
from realm_jax.trained import index_builder
from retrieval.nn import bert_checkpoint
from retrieval.store import checkpoints, locks

_BERT = {
  *bert_checkpoint.FIELDS,
  *bert_checkpoint.OPTIONAL_FIELDS,
  'activation',
} - {'vocab_size', 'type_vocab_size', 'attention_dropout_rate'}
# Field of our config -> field of the port's config.json.
_FIELDS = {
  'layout.num_candidates': 'num_candidates',
  'reader.span_hidden_size': 'span_hidden_size',
  'reader.max_span_width': 'max_span_width',
  'reader.span_norm_eps': 'reader_layer_norm_eps',
  'lookup.retriever_beam': 'searcher_beam_size',
  'lookup.reader_beam': 'reader_beam_size',
  'lookup.row_length': 'reader_seq_len',
}
_OPTIONS = 'num_heads', 'vocab', 'blocks', 'block_emb', 'block_embedder'


def make_config(
  config: config_lib.Config, read: sources.Sources
) -> config_lib.Config:
  """Return the config of a converted checkpoint, with its sizes."""
  changes: dict[str, Any] = {
    'embedder_from': '',
    'encoder_from': '',
    'model.share_embedders': True,
    'model.pooling': 'pooler',
    'model.projection_norm_scale': 1.0,
    'model.projection_init': 'normal',
  }
  sizes: dict[str, dict[str, Any]] = {}
  for part in read.parts:
    bert = part.sizes.bert
    fields = {name: getattr(bert, name) for name in _BERT} | {'checkpoint': ''}
    if {*part.params} & {'encoder', 'reader'}:
      sizes['encoder'] = fields
    if {'embedder', 'query_embedder'} & {*part.params}:
      sizes['embedder'] = fields
      changes['model.share_embedders'] = 'embedder' in part.params
      changes['model.projection_size'] = part.sizes.projection_size
      changes['model.projection_norm_eps'] = bert.layer_norm_eps
    if 'reader' in part.params:
      changes['reader.span_hidden_size'] = part.sizes.span_hidden_size
  # The config needs sizes of a missing part, too.
  sizes.setdefault('encoder', sizes.get('embedder'))
  sizes.setdefault('embedder', sizes['encoder'])
  for name, fields in sizes.items():
    changes |= {f'{name}.{field}': value for field, value in fields.items()}
  if read.fields is not None:
    changes |= {
      name: read.fields[theirs]
      for name, theirs in _FIELDS.items()
      if theirs in read.fields
    }
  config = configs.replaced(config, **changes)
  longest, limit = config.embedder.max_length, config.encoder.max_length
  return configs.replaced(
    config,
    **{
      'blocks.max_length': min(config.blocks.max_length, longest),
      'layout.query_length': min(config.layout.query_length, longest),
      'lookup.row_length': min(config.lookup.row_length, limit),
      'lookup.question_length': min(config.lookup.question_length, longest),
    },
  )


def convert(
  config: config_lib.Config,
  workdir: str,
  paths: Sequence[str],
  *,
  num_heads: int = 0,
  vocab: str = '',
  blocks: str = '',
  block_emb: str = '',
  block_embedder: str = '',
) -> dict[str, str]:
  """Convert checkpoints with their blocks and vectors.

  Args:
    paths: Hugging Face folders, prefixes of TensorFlow checkpoints, or folders with
      such checkpoints.
    num_heads: attention heads; 0 for one for each 64 units.
    vocab: vocab.txt, tokenizer.json or a folder; '' is that of `paths`.
    blocks: blocks.tfr, block_records.npy or a folder; '' is that of `paths`.
    block_emb: prefix of the vectors of the blocks.
    block_embedder: checkpoint of the embedder that made the vectors; '' is the
      converted one.
  """
  if checkpoints.numbers(checkpoints.folder_of(workdir)):
    raise ValueError(f'{workdir}: holds checkpoints; expected a new --workdir.')
  read = sources.read(paths, num_heads)
  params = checkpoint_convert.join(read.parts)
  if not params:
    raise ValueError(
      f'{", ".join(paths)}: no parameters; expected an embedder, an encoder or a '
      'reader beside the vectors.'
    )
  if block_emb:
    read.vectors = sources.read_vectors(block_emb)
    read.vectors_name = block_emb
  config, rows = make_config(config, read), {}
  for part in read.parts:  # numbers of tensors by their use
    counts = collections.Counter(part.fates.values())
    rows[part.hf_class] = ', '.join(f'{n} {x}' for x, n in counts.items())
  with locks.writer(workdir):
    config, prints, store = block_data.make_data(
      config, read, workdir, vocab=vocab, blocks=blocks
    )
    step, version = max(part.step for part in read.parts), ''
    if store is not None:
      rows['blocks'] = f'{store.num_blocks:,}'
    if store is not None and read.vectors is not None:
      embedder, index_step = params, step
      if block_embedder:
        embedder = _block_embedder(block_embedder, num_heads, params)
        index_step = 0
      rows['index version'] = block_data.build_index(
        read.vectors,
        read.vectors_name,
        store,
        embedder,
        step=index_step,
        root=pathlib.Path(workdir) / index_builder.INDEX,
        config=config,
      )
      version = rows['index version'] if block_embedder else ''
    elif read.vectors is not None:
      rows['vectors without blocks'] = f'{len(read.vectors):,} (not taken)'
    checkpoint_writer.save_params(  # last, so that a killed command goes on
      workdir,
      params,
      config=json.loads(json.dumps(dataclasses.asdict(config))),
      step=step,
      fingerprints=prints,
      index_version=version,
    )
  return rows


def _block_embedder(path: str, num_heads: int, params: Any) -> dict[str, Any]:
  """Return the embedder of the blocks' vectors; it has the shapes of ours.

  Fine-tuning trains the query embedder only, so a fine-tuned model needs the embedder
  that it started from.
  """
  parts = sources.read([path], num_heads).parts
  made = checkpoint_convert.join(parts).get('embedder')
  if made is None or 'embedder' not in params:
    raise ValueError(f'{path}: expected an embedder there and in --from.')
  shapes = (jax.tree.map(np.shape, x) for x in (made, params['embedder']))
  if len({str(x) for x in shapes}) > 1:
    raise ValueError(f'{path}: an embedder of other sizes than that of --from.')
  return {'embedder': made}


def run(config: config_lib.Config, workdir: str) -> None:
  """Convert the checkpoints of --from."""
  values = flags.FLAGS
  paths = values['from'].value
  options = {name: values[name].value for name in _OPTIONS}
  rows = convert(config, workdir, paths, **options)
  reports.print_table(['part', 'converted'], list(rows.items()))
  logging.info('The checkpoint is in %s.', workdir)


if __name__ == '__main__':
  about = 'Folders, or prefixes of TensorFlow files.'
  flags.DEFINE_list('from', None, about, required=True)
  flags.DEFINE_integer('num_heads', 0, '0: one head for each 64 units.')
  about = "vocab.txt, tokenizer.json or a folder; '': that of --from."
  flags.DEFINE_string('vocab', '', about)
  about = 'blocks.tfr, block_records.npy or a folder.'
  flags.DEFINE_string('blocks', '', about)
  flags.DEFINE_string('block_emb', '', 'Prefix of the vectors of the blocks.')
  about = "Checkpoint of the vectors' embedder; '': the converted one."
  flags.DEFINE_string('block_embedder', '', about)
  command.main(
    run,
    config_lib.Config,
    default_config=f'{configs.FOLDER}/open_qa_released.py',
  )
