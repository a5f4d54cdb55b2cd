# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Names of REALM's parameters: here, in the Hugging Face port, in TensorFlow.

Google's checkpoints are four bundles: A the encoder (a BERT with its head), B
the embedder, C the blocks' vectors, D a fine-tuned model (embedder and reader)
with its optimizer. The port has five classes.
"""

from collections.abc import Collection, Iterator, Mapping
import dataclasses
import itertools
import re
from typing import NamedTuple

from retrieval.nn import bert, bert_checkpoint

CLASSES = (
  'RealmEmbedder',
  'RealmScorer',
  'RealmKnowledgeAugEncoder',
  'RealmReader',
  'RealmForOpenQA',
)
BUNDLES = {
  'A': 'RealmKnowledgeAugEncoder',
  'B': 'RealmEmbedder',
  'D': 'RealmForOpenQA',
}
BLOCKS = 'block_emb'
PARAMETER, TIED, UNUSED, VECTORS = 'parameter', 'tied', 'unused', 'vectors'
_HEAD = 'cls.predictions.'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
  """Sizes that determine the shapes of a checkpoint; the defaults are released."""

  bert: bert.BertConfig  # of each BERT; `pooler` is ignored
  projection_size: int = 128
  span_hidden_size: int = 256
  # rows of the blocks' vectors; None for any number
  num_blocks: int | None = None


class Tensor(NamedTuple):
  """One tensor of a class of the port."""

  name: str
  shape: tuple[int | None, ...]  # in the port; a Dense's weight is [out, in]
  # 'parameter' of our model; 'tied': repeats another tensor; 'unused': no
  # output depends on it; 'vectors': of the blocks, for an index
  role: str
  # path of our parameter, joined by '/', whose kernels are transposed; for a
  # tied tensor the name of the tensor that it repeats; else ''
  path: str = ''


def layout(hf_class: str, sizes: Sizes, *, shared: bool = True) -> list[Tensor]:
  """List the tensors of one of `CLASSES`; `shared`: of one embedder."""
  vectors = Tensor(BLOCKS, (sizes.num_blocks, sizes.projection_size), VECTORS)
  layouts = {
    'RealmEmbedder': _embedder('', 'embedder', sizes),
    'RealmScorer': _scorer(sizes, shared),
    'RealmKnowledgeAugEncoder': itertools.chain(
      _bert('', 'encoder/bert', sizes, pooler=False),
      _head('', 'encoder/mlm_head', sizes),
    ),
    'RealmReader': _reader('', sizes),
    'RealmForOpenQA': itertools.chain(
      [vectors],
      _embedder('embedder.', 'embedder', sizes),
      _reader('reader.', sizes),
    ),
  }
  return list(layouts[hf_class])


def find_class(names: Collection[str]) -> str:
  """Find the class of `CLASSES` with these tensors; ValueError without one."""
  marks = (
    ('RealmForOpenQA', ('reader.qa_outputs.', 'embedder.cls.dense.')),
    ('RealmScorer', ('embedder.cls.dense.',)),
    ('RealmReader', ('qa_outputs.',)),
    ('RealmEmbedder', ('cls.dense.',)),
    ('RealmKnowledgeAugEncoder', ('realm.', _HEAD)),
  )
  for hf_class, prefixes in marks:
    if all(any(n.startswith(p) for n in names) for p in prefixes):
      return hf_class
  raise ValueError(
    f'tensors {sorted(names)[:5]} ...: expected those of one of {CLASSES}.'
  )


def _bert(
  prefix: str, ours: str, sizes: Sizes, *, pooler: bool
) -> Iterator[Tensor]:
  config = dataclasses.replace(sizes.bert, pooler=True)
  for path, name, shape in bert_checkpoint.encoder_layout(config):
    used = pooler or not path.startswith('pooler/')
    role, path = (PARAMETER, f'{ours}/{path}') if used else (UNUSED, '')
    yield Tensor(f'{prefix}realm.{name}', tuple(shape), role, path)


def _head(prefix: str, ours: str, sizes: Sizes) -> Iterator[Tensor]:
  """The masked-language-model head; unused without `ours`."""
  config = sizes.bert
  for path, name, shape in bert_checkpoint.mlm_head_layout(config):
    path = f'{ours}/{path}' if ours else ''
    role = PARAMETER if ours else UNUSED
    yield Tensor(f'{prefix}{name}', tuple(shape), role, path)
  table = config.vocab_size, config.d_model
  for leaf, same, shape in (
    ('weight', 'realm.embeddings.word_embeddings.weight', table),
    ('bias', f'{_HEAD}bias', table[:1]),
  ):
    name = f'{prefix}{_HEAD}decoder.{leaf}'
    tied = (TIED, f'{prefix}{same}') if ours else (UNUSED,)
    yield Tensor(name, shape, *tied)


def _layer(theirs: str, ours: str, *shape: int) -> Iterator[Tensor]:
  """A dense layer [out, in], or a norm [width]."""
  leaf = 'kernel' if len(shape) == 2 else 'scale'
  yield Tensor(f'{theirs}.weight', shape, PARAMETER, f'{ours}/{leaf}')
  yield Tensor(f'{theirs}.bias', shape[:1], PARAMETER, f'{ours}/bias')


def _embedder(prefix: str, ours: str, sizes: Sizes) -> Iterator[Tensor]:
  """The embedder; its BERT has an unused head in the port."""
  d, e = sizes.bert.d_model, sizes.projection_size
  yield from _bert(prefix, f'{ours}/bert', sizes, pooler=True)
  yield from _head(prefix, '', sizes)
  yield from _layer(f'{prefix}cls.dense', f'{ours}/projection', e, d)
  yield from _layer(f'{prefix}cls.LayerNorm', f'{ours}/projection_norm', e)


def _scorer(sizes: Sizes, shared: bool) -> Iterator[Tensor]:
  ours = 'embedder' if shared else 'block_embedder'
  yield from _embedder('embedder.', ours, sizes)
  for tensor in _embedder('query_embedder.', 'query_embedder', sizes):
    if shared:
      same = tensor.name.removeprefix('query_')
      tensor = tensor._replace(role=TIED, path=same)
    yield tensor


def _reader(prefix: str, sizes: Sizes) -> Iterator[Tensor]:
  d, s = sizes.bert.d_model, sizes.span_hidden_size
  yield from _bert(prefix, 'reader/bert', sizes, pooler=False)
  yield from _head(prefix, '', sizes)
  for theirs, ours, shape in (
    ('dense_intermediate', 'span_projection', (2 * s, d)),
    ('layer_normalization', 'span_norm', (s,)),
    ('dense_output', 'span_score', (1, s)),
  ):
    yield from _layer(f'{prefix}qa_outputs.{theirs}', f'reader/{ours}', *shape)


_M = 'module/'
_PREFIXES = {
  'A': {'realm.': 'bert/', 'cls.': 'cls/'},
  'B': {
    'realm.': f'{3 * _M}bert/',
    _HEAD: f'{3 * _M}cls/predictions/',
    'cls.': 2 * _M,
  },
  'D': {
    'embedder.realm.': f'{4 * _M}bert/',
    f'embedder.{_HEAD}': f'{4 * _M}cls/predictions/',
    'embedder.cls.': 3 * _M,
    'reader.realm.': 'reader/module/bert/',
    'reader.cls.': 'reader/module/cls/',
    'reader.qa_outputs.dense_intermediate.': 'reader/dense/',
    'reader.qa_outputs.dense_output.': 'reader/dense_1/',
    'reader.qa_outputs.layer_normalization.': 'reader/layer_normalization/',
  },
}
# Of the optimizer and of TensorFlow itself.
_SKIPPED = re.compile(
  r'.*(adam_m|adam_v|AdamWeightDecayOptimizer).*|.*global_step'
  r'|_CHECKPOINTABLE_OBJECT_GRAPH|save_counter(/\.ATTRIBUTES/VARIABLE_VALUE)?'
)
STEP = 'global_step'


def tf_name(bundle: str, name: str) -> str | None:
  """Name of a tensor of the port in bundle 'A', 'B' or 'D', or None.

  Variables that end in '/kernel' are transposed.
  """
  prefixes = _PREFIXES[bundle]
  hits = [p for p in prefixes if name.startswith(p)]
  if not hits or f'.{_HEAD}decoder.' in f'.{name}':
    return None
  prefix = max(hits, key=len)
  rest = re.sub(r'\blayer\.(\d+)\.', r'layer_\1/', name.removeprefix(prefix))
  *parents, leaf = rest.split('.')
  full = name.rpartition('.')[0]
  if full.endswith('_embeddings'):
    parents, leaf = parents[:-1], parents[-1]
  elif full.endswith(('LayerNorm', 'layer_normalization')):
    leaf = {'weight': 'gamma', 'bias': 'beta'}[leaf]
  elif full.endswith('cls.predictions'):
    leaf = 'output_bias'
  else:
    leaf = {'weight': 'kernel', 'bias': 'bias'}[leaf]
  return prefixes[prefix] + '/'.join([*parents, leaf])


def find_bundle(names: Collection[str]) -> str:
  """Find the bundle that has these variables; ValueError without one."""
  for bundle, mark in (
    ('D', 'reader/module/bert/'),
    ('B', f'{3 * _M}bert/'),
    ('A', 'bert/'),
  ):
    if any(name.startswith(mark) for name in names):
      return bundle
  raise ValueError(
    f'variables {sorted(names)[:5]} ...: expected those of a REALM or ORQA '
    'checkpoint (bert/..., module/module/module/bert/... or reader/...).'
  )


def is_skipped(name: str) -> bool:
  """Whether a variable belongs to the optimizer or to TensorFlow."""
  return _SKIPPED.fullmatch(name) is not None


def bundle_sizes(
  bundle: str, shapes: Mapping[str, tuple[int, ...]], num_heads: int = 0
) -> Sizes:
  """Sizes of bundle 'A', 'B' or 'D' by its shapes; no shape shows the heads.

  num_heads = 0 is one for 64 units.

  Raises:
    ValueError: if a variable that shows a size is missing.
  """
  root = 'embedder.' if bundle == 'D' else ''
  layer = f'{root}realm.encoder.layer.'

  def size(name: str) -> int:
    """The first dimension of a tensor of the port."""
    variable = tf_name(bundle, name)
    if variable not in shapes:
      raise ValueError(f'variable {variable} is missing.')
    return shapes[variable][0]

  def table(name: str) -> int:
    return size(f'{root}realm.embeddings.{name}_embeddings.weight')

  width = size(f'{root}realm.embeddings.LayerNorm.bias')
  layers = sum(
    tf_name(bundle, f'{layer}{i}.attention.self.query.bias') in shapes
    for i in range(len(shapes))
  )
  config = bert.BertConfig(
    vocab_size=table('word'),
    d_model=width,
    d_ff=size(f'{layer}0.intermediate.dense.bias'),
    num_heads=num_heads or max(1, width // 64),
    num_layers=layers,
    max_length=table('position'),
    type_vocab_size=table('token_type'),
    activation='gelu_tanh',
  )
  heads = {}
  if bundle != 'A':
    heads['projection_size'] = size(f'{root}cls.dense.bias')
  if bundle == 'D':
    span = 'reader.qa_outputs.layer_normalization.bias'
    heads['span_hidden_size'] = size(span)
  return Sizes(bert=config, **heads)
