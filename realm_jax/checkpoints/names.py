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
  """List the tensors of one of `CLASSES`; `shared`: of one embedder.

  Raises:
    ValueError: for an unknown class.
  """
  if hf_class not in CLASSES:
    raise ValueError(f'class {hf_class!r}: expected one of {CLASSES}.')
  shape = (sizes.num_blocks, sizes.projection_size)
  layouts = {
    'RealmEmbedder': _embedder('', 'embedder', sizes),
    'RealmScorer': _scorer(sizes, shared),
    'RealmKnowledgeAugEncoder': _encoder(sizes),
    'RealmReader': _reader('', sizes),
    'RealmForOpenQA': itertools.chain(
      [Tensor(BLOCKS, shape, VECTORS)],
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
  word = f'{prefix}realm.embeddings.word_embeddings.weight'
  bias = f'{prefix}{_HEAD}bias'
  role = TIED if ours else UNUSED
  for leaf, same, shape in (
    ('weight', word, (config.vocab_size, config.d_model)),
    ('bias', bias, (config.vocab_size,)),
  ):
    name = f'{prefix}{_HEAD}decoder.{leaf}'
    yield Tensor(name, shape, role, same if ours else '')


def _dense(theirs: str, ours: str, rows: int, columns: int) -> Iterator[Tensor]:
  weight = (columns, rows)
  yield Tensor(f'{theirs}.weight', weight, PARAMETER, f'{ours}/kernel')
  yield Tensor(f'{theirs}.bias', (columns,), PARAMETER, f'{ours}/bias')


def _norm(theirs: str, ours: str, width: int) -> Iterator[Tensor]:
  yield Tensor(f'{theirs}.weight', (width,), PARAMETER, f'{ours}/scale')
  yield Tensor(f'{theirs}.bias', (width,), PARAMETER, f'{ours}/bias')


def _embedder(prefix: str, ours: str, sizes: Sizes) -> Iterator[Tensor]:
  """The embedder; its BERT has an unused head in the port."""
  d, e = sizes.bert.d_model, sizes.projection_size
  yield from _bert(prefix, f'{ours}/bert', sizes, pooler=True)
  yield from _head(prefix, '', sizes)
  yield from _dense(f'{prefix}cls.dense', f'{ours}/projection', d, e)
  yield from _norm(f'{prefix}cls.LayerNorm', f'{ours}/projection_norm', e)


def _scorer(sizes: Sizes, shared: bool) -> Iterator[Tensor]:
  ours = 'embedder' if shared else 'block_embedder'
  yield from _embedder('embedder.', ours, sizes)
  for tensor in _embedder('query_embedder.', 'query_embedder', sizes):
    if shared:
      same = tensor.name.removeprefix('query_')
      tensor = tensor._replace(role=TIED, path=same)
    yield tensor


def _encoder(sizes: Sizes) -> Iterator[Tensor]:
  yield from _bert('', 'encoder/bert', sizes, pooler=False)
  yield from _head('', 'encoder/mlm_head', sizes)


def _reader(prefix: str, sizes: Sizes) -> Iterator[Tensor]:
  d, s = sizes.bert.d_model, sizes.span_hidden_size
  yield from _bert(prefix, 'reader/bert', sizes, pooler=False)
  yield from _head(prefix, '', sizes)
  head = f'{prefix}qa_outputs'
  projection = f'{head}.dense_intermediate'
  yield from _dense(projection, 'reader/span_projection', d, 2 * s)
  yield from _norm(f'{head}.layer_normalization', 'reader/span_norm', s)
  yield from _dense(f'{head}.dense_output', 'reader/span_score', s, 1)


_M = 'module/'
_PREFIXES = {
  'A': {'realm.': 'bert/', 'cls.': 'cls/'},
  'B': {
    'realm.': f'{3 * _M}bert/',
    _HEAD: f'{3 * _M}cls/predictions/',
    'cls.': 2 * _M,
  },
  'C': {BLOCKS: BLOCKS},
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
  """Name of a tensor of the port in bundle 'A', 'B', 'C' or 'D', or None.

  Variables that end in '/kernel' are transposed.
  """
  prefixes = _PREFIXES[bundle]
  found = [p for p in prefixes if name.startswith(p)]
  if not found or f'.{_HEAD}decoder.' in f'.{name}':
    return None
  prefix = max(found, key=len)
  rest = name.removeprefix(prefix)
  if not rest:
    return prefixes[prefix]
  rest = re.sub(r'\blayer\.(\d+)\.', r'layer_\1/', rest)
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
    ('C', BLOCKS),
    ('D', 'reader/module/bert/'),
    ('B', f'{3 * _M}bert/'),
    ('A', 'bert/'),
  ):
    if any(name.startswith(mark) for name in names):
      return bundle
  raise ValueError(
    f'variables {sorted(names)[:5]} ...: expected those of a REALM or ORQA '
    'checkpoint (bert/..., module/module/module/bert/..., reader/... or '
    f'{BLOCKS}).'
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
  reader = bundle == 'D'

  def shape(name: str) -> tuple[int, ...]:
    variable = tf_name(bundle, name)
    if variable not in shapes:
      raise ValueError(f'variable {variable} is missing.')
    return shapes[variable]

  root = ('embedder.' if reader else '') + 'realm.'
  layer = f'{root}encoder.layer.'
  words, width = shape(f'{root}embeddings.word_embeddings.weight')
  layers = sum(
    tf_name(bundle, f'{layer}{i}.attention.self.query.bias') in shapes
    for i in range(len(shapes))
  )
  config = bert.BertConfig(
    vocab_size=words,
    d_model=width,
    d_ff=shape(f'{layer}0.intermediate.dense.bias')[0],
    num_heads=num_heads or max(1, width // 64),
    num_layers=layers,
    max_length=shape(f'{root}embeddings.position_embeddings.weight')[0],
    type_vocab_size=shape(f'{root}embeddings.token_type_embeddings.weight')[0],
    activation='gelu_tanh',
  )
  sizes = Sizes(bert=config)
  if bundle != 'A':
    cls = 'embedder.cls.' if reader else 'cls.'
    vector = shape(f'{cls}dense.bias')[0]
    sizes = dataclasses.replace(sizes, projection_size=vector)
  if reader:
    span = shape('reader.qa_outputs.layer_normalization.bias')[0]
    sizes = dataclasses.replace(sizes, span_hidden_size=span)
  return sizes
