# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Convert REALM and ORQA checkpoints of other projects, or export ours.

  python -m experiments.convert.convert --from=FOLDER[,FOLDER ...] --workdir=DIR
  python -m experiments.convert.convert --to_hf=FOLDER --workdir=DIR

--from takes folders of the Hugging Face port (safetensors, or
pytorch_model.bin, whose pickle is not executed), prefixes of TensorFlow
checkpoints, or a folder with such checkpoints in it or in its subfolders, such
as cc_news_pretrained. Checkpoints that complete each other, such as embedder
and encoder, are joined. DIR then holds a checkpoint for other commands, as
config.realm_from or as --workdir.

--blocks=blocks.tfr (with titles.tfr beside it or in --titles; or a
block_records.npy) makes DIR/data and the index, from the vectors of the
checkpoint or of --block_emb=PREFIX: nothing is embedded. A fine-tuned model
searches the vectors of the embedder that it started from: --block_embedder
names that embedder. --vocab=vocab.txt is the vocabulary of a TensorFlow
checkpoint. --num_heads is needed if heads are not 64 wide. --config is the
config that receives the sizes found.
"""

import dataclasses
import pathlib
from typing import Any

from absl import flags, logging
import jax
import ml_collections
import numpy as np

from experiments.convert import (
  checkpoint_export,
  checkpoint_sources,
  converted_blocks,
  converted_checkpoint,
)
from experiments.engine import command, reports
from experiments.realm import prepare as realm_prepare
from realm_jax.checkpoints import (
  convert as checkpoint_convert,
  names as checkpoint_names,
)
from realm_jax.data import folder as realm_data
from realm_jax.serving import index_builder, index_folders
from retrieval import tokenization
from retrieval.formats import block_records, safetensors_files
from retrieval.index import index_versions
from retrieval.nn import bert

_CONFIG = pathlib.Path(__file__).parents[2] / 'configs' / 'open_qa_released.py'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """Checkpoints, blocks and vectors to convert."""

  # Hugging Face folders, prefixes of TensorFlow checkpoints, or folders with
  # such checkpoints
  paths: tuple[str, ...]
  # vocab.txt, tokenizer.json or a folder with one; '' for the checkpoint's own
  # vocabulary
  vocab: str = ''
  # attention heads of TensorFlow checkpoints; 0 for one head for each 64 units
  num_heads: int = 0
  blocks: str = ''  # blocks.tfr, block_records.npy, a folder with one, or ''
  titles: str = ''  # titles.tfr; '' for the file beside the blocks, if any
  block_emb: str = ''  # prefix of the bundle of the blocks' vectors, or ''
  # checkpoint of the embedder that made the vectors; '' for the converted
  # embedder. Fine-tuning trains the query embedder only, so that a fine-tuned
  # model needs the embedder that it started from.
  block_embedder: str = ''


def _bert_fields(config: bert.BertConfig) -> dict[str, Any]:
  names = ('num_layers', 'd_model', 'd_ff', 'num_heads', 'max_length')
  rates = ('layer_norm_eps', 'dropout_rate', 'attention_dropout_rate')
  names += ('activation', *rates, 'initializer_range')
  return {name: getattr(config, name) for name in names} | {'checkpoint': ''}


def make_config(
  config: ml_collections.ConfigDict, found: checkpoint_sources.Sources
) -> ml_collections.ConfigDict:
  """Return the config of a converted checkpoint.

  Args:
    config: config of REALM or of open-domain question answering that receives
      the sizes.
  """
  changes: dict[str, Any] = {'embedder_from': '', 'encoder_from': ''}
  model = {
    'share_embedders': True,
    'pooling': 'pooler',
    'projection_bias': True,
    'projection_norm': True,
    'projection_norm_scale': 1.0,
    'projection_init': 'normal',
    'score_scale': 1.0,
  }
  for part in found.parts:
    fields = _bert_fields(part.sizes.bert)
    if {*part.params} & {'encoder', 'reader'}:
      changes['encoder'] = fields
    if {'embedder', 'query_embedder'} & {*part.params}:
      changes['embedder'] = fields
      model['share_embedders'] = 'embedder' in part.params
      model['projection_size'] = part.sizes.projection_size
      model['projection_norm_eps'] = part.sizes.bert.layer_norm_eps
  # The config needs sizes of a missing part, too.
  changes.setdefault('encoder', changes.get('embedder'))
  changes.setdefault('embedder', changes['encoder'])
  changes['model'] = model
  if found.fields is not None:
    changes['layout'] = {'num_candidates': found.fields['num_candidates']}
  if 'reader' in config and 'lookup' in config:
    changes |= _reader_fields(found)
  longest = changes['embedder']['max_length']
  changes['blocks'] = {'max_length': min(config.blocks.max_length, longest)}
  changed = command.changed(config, **changes)
  with changed.unlocked():
    layout = changed.layout
    layout.query_length = min(layout.query_length, longest)
    if 'lookup' in changed:
      lookup, limit = changed.lookup, changes['encoder']['max_length']
      lookup.row_length = min(lookup.row_length, limit)
      lookup.question_length = min(lookup.question_length, longest)
  return changed


def _reader_fields(found: checkpoint_sources.Sources) -> dict[str, Any]:
  """Settings of the reader, from config.json or from the shapes of its head."""
  fields = found.fields
  if fields is not None:
    return {
      'reader': {
        'span_hidden_size': fields['span_hidden_size'],
        'max_span_width': fields['max_span_width'],
        'span_norm_eps': fields['reader_layer_norm_eps'],
      },
      'lookup': {
        'retriever_beam': fields['searcher_beam_size'],
        'reader_beam': fields['reader_beam_size'],
        'row_length': fields['reader_seq_len'],
      },
    }
  sizes = [
    p.sizes.span_hidden_size for p in found.parts if 'reader' in p.params
  ]
  return {'reader': {'span_hidden_size': sizes[0]}} if sizes else {}


def _take_tokenizer(vocab, config, data, size: int):
  """Copies a vocabulary into the data folder; returns the config with it."""
  count = tokenization.WordPieceTokenizer(pathlib.Path(vocab)).vocab_size
  if count != size:
    raise ValueError(
      f'{vocab}: a vocabulary of {count:,}, but the checkpoint has {size:,} word '
      'embeddings.'
    )
  config = command.changed(config, tokenizer={'path': str(vocab)})
  realm_prepare.take_tokenizer(config, data)
  own = str(data.tokenizer_path.resolve())
  return command.changed(config, tokenizer={'path': own})


def _make_data(options, config, found, workdir):
  """Make vocabulary and blocks; return config, fingerprints, blocks."""
  data = realm_data.DataFolder.of(config, workdir)
  prints, blocks = {}, None
  vocab = options.vocab or found.tokenizer
  if vocab:
    size = found.parts[0].sizes.bert.vocab_size
    config = _take_tokenizer(vocab, config, data, size)
    prints['tokenizer'] = data.tokenizer.fingerprint
  source = options.blocks or (found.records and str(found.records))
  if source:
    if not vocab:
      raise ValueError('--blocks needs a vocabulary: name it by --vocab.')
    width = config.model.projection_size
    if found.vectors is not None and source.endswith('.npy'):
      # Check the count in the header before millions of blocks are tokenized.
      count = block_records.count(source)
      converted_blocks.check_sizes(
        found.vectors, found.vectors_name, count, width
      )
    converted_blocks.place_files(data.root, source, options.titles)
    fields = converted_blocks.corpus_fields(data.root.resolve())
    config = command.changed(config, **fields)
    blocks = converted_blocks.build_blocks(config, data)
    prints['blocks'] = blocks.fingerprint
    if found.vectors is not None:
      converted_blocks.check_sizes(
        found.vectors, found.vectors_name, blocks.num_blocks, width
      )
  return config, prints, blocks


def convert(
  options: Options, config: ml_collections.ConfigDict, workdir: str
) -> dict[str, str]:
  """Convert checkpoints with their blocks and vectors.

  Raises:
    ValueError: if parts do not fit together.
  """
  found = checkpoint_sources.read(list(options.paths), options.num_heads)
  params = checkpoint_convert.join(found.parts)
  if not params:
    raise ValueError(
      f'{", ".join(options.paths)}: no parameters; expected an embedder, an '
      'encoder or a reader beside the vectors.'
    )
  if options.block_emb:
    found.vectors = checkpoint_sources.read_vectors(options.block_emb)
    found.vectors_name = options.block_emb
  config = make_config(config, found)
  config, prints, blocks = _make_data(options, config, found, workdir)
  step = max(part.step for part in found.parts)
  block_params, block_step, version = params, step, ''
  if options.block_embedder and blocks is not None:
    block_params, block_step = _block_embedder(options, params), 0
    version = index_versions.version_name(
      block_step, index_builder.snapshot(block_params), blocks
    )
  if converted_checkpoint.save(
    workdir, params, config, step=step, prints=prints, version=version
  ):
    for part in found.parts:
      file = checkpoint_export.unused_file(workdir, part.hf_class)
      safetensors_files.write(file, part.unused)
  rows = _summary(found)
  if blocks is not None:
    rows['blocks'] = f'{blocks.num_blocks:,}'
  if blocks is not None and found.vectors is not None:
    rows['index version'] = converted_blocks.build_index(
      found.vectors,
      found.vectors_name,
      blocks,
      block_params,
      step=block_step,
      root=pathlib.Path(workdir) / index_folders.INDEX,
      config=config,
    )
  elif found.vectors is not None:
    rows['vectors without blocks'] = f'{len(found.vectors):,} (not taken)'
  return rows


def _block_embedder(options: Options, params: Any) -> dict[str, Any]:
  """The embedder that made the blocks' vectors, with the shapes of ours."""
  path = options.block_embedder
  found = checkpoint_sources.read([path], options.num_heads)
  made = checkpoint_convert.join(found.parts).get('embedder')
  if made is None or 'embedder' not in params:
    raise ValueError(f'{path}: expected an embedder there and in --from.')
  shapes = (jax.tree.map(np.shape, x) for x in (made, params['embedder']))
  if len({str(x) for x in shapes}) > 1:
    raise ValueError(f'{path}: an embedder of other sizes than that of --from.')
  return {'embedder': made}


def _summary(found: checkpoint_sources.Sources) -> dict[str, str]:
  """Number of tensors by their use, for each part."""
  rows = {}
  for part in found.parts:
    fates = list(part.fates.values())
    counts = {fate: fates.count(fate) for fate in dict.fromkeys(fates)}
    rows[part.hf_class] = ', '.join(f'{n} {fate}' for fate, n in counts.items())
  return rows


def _show(rows: dict[str, str]) -> None:
  reports.print_table(['part', 'converted'], list(rows.items()))


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Convert in the direction that the flags say."""
  values = flags.FLAGS
  paths = values['from'].value
  if bool(paths) == bool(values.to_hf):
    raise ValueError('Expected either --from or --to_hf, beside --workdir.')
  if values.to_hf:
    _show(checkpoint_export.export(workdir, values.to_hf, values.hf_class))
    logging.info('The export is in %s.', values.to_hf)
    return
  names = [field.name for field in dataclasses.fields(Options)]
  options = Options(
    paths=tuple(paths), **{x: values[x].value for x in names if x != 'paths'}
  )
  _show(convert(options, config, workdir))
  logging.info('The checkpoint is in %s.', workdir)


def define_flags() -> None:
  """Define all flags except --config and --workdir."""
  flags.DEFINE_list('from', [], 'Folders, or prefixes of TensorFlow files.')
  flags.DEFINE_string('to_hf', '', 'Folder to write in Hugging Face form.')
  classes = ('', *checkpoint_names.CLASSES)
  flags.DEFINE_enum('hf_class', '', classes, "By default the parameters' own.")
  flags.DEFINE_string('vocab', '', 'vocab.txt, of TensorFlow checkpoints.')
  flags.DEFINE_integer('num_heads', 0, 'Attention heads; 0: 64 units each.')
  flags.DEFINE_string('blocks', '', 'blocks.tfr or block_records.npy.')
  flags.DEFINE_string('titles', '', 'titles.tfr; by default beside the blocks.')
  flags.DEFINE_string('block_emb', '', 'Prefix of the vectors of the blocks.')
  flags.DEFINE_string(
    'block_embedder',
    '',
    'Checkpoint of the embedder that made the vectors of the blocks.',
  )


if __name__ == '__main__':
  command.main(run, define_flags, computes=True, default_config=str(_CONFIG))
