# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Train a reader on a bare machine with an accelerator, within a number of seconds.

  python -m experiments.accelerators.train_reader --bundle=DIR --start=DIR \
    --mlm_seconds=90 --seconds=300 --output=DIR

DIR of --bundle is of experiments.accelerators.reader_bundle; --start is a packed model
whose encoder and word table training starts from. First the encoder predicts masked
words of blocks beside their neighbors, then the reader marks answers. Each question is
read with --read blocks, drawn from those found for it; their spans and one null answer
of score 0, which is right where no block holds an answer, share one softmax. The word
table keeps its start. Writes reader.safetensors and encoder.safetensors, 11 MB each at
8 bits a value, without the word table, and the curve, every --every steps.

  python -m experiments.accelerators.train_reader --start=DIR --output=DIR \
    --pack=realm_jax/packaged

puts what was written into a packed model.
"""

from experiments.accelerators import absent  # isort: skip

from collections.abc import Mapping
import dataclasses
import functools
import json
import pathlib
from typing import Any, NamedTuple

from absl import flags, logging
from flax import traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from experiments.accelerators import device_loop
from experiments.engine import command, optimizers, reports
from realm_jax.nn import open_qa, realm as model_lib
from realm_jax.objectives import mlm
from realm_jax.serving import reader_configs
from retrieval import settings
from retrieval.nn import means, objectives, sharding
from retrieval.store import packed, safetensors_files

del absent
_TARGETS = 20  # most masked words of a block
_NO_ANSWER = 0.15  # share of questions read without the blocks that answer
_NO_MARK = 0.3  # share of questions read without their question mark
_GOLD = 8  # most gold spans of a question
CURVE, LAYOUT = 'curve.json', 'layout.json'
OPTIONS = (
  'batch',
  'dev',
  'every',
  'learning_rate',
  'mlm_batch',
  'read',
  'steps',
)
Arrays = Mapping[str, jax.Array]


class Layout(NamedTuple):
  """Lengths of rows, and ids of word pieces, as a bundle has them."""

  row: int
  question: int  # most word pieces of a question
  title: int
  cls: int
  sep: int
  mask: int
  mark: int  # ?


def prepare(arrays: Mapping[str, np.ndarray], weights: Mapping[str, float]):
  """Return a bundle's arrays for the device, and the held-out questions.

  Args:
    weights: set -> how often its questions are drawn; 1 where it is not named.
  """
  gold = arrays['gold']
  rows = np.full((len(arrays['candidates']), _GOLD, 3), -1, np.int32)
  places = np.arange(len(gold)) - np.searchsorted(gold[:, 0], gold[:, 0])
  kept = places < _GOLD
  rows[gold[kept, 0], places[kept]] = gold[kept, 1:]
  each = np.asarray([weights.get(x, 1.0) for x in arrays['set_names'].tolist()])
  drawn = np.where(arrays['dev'], 0.0, each[arrays['set']])
  counts = np.bincount(arrays['block_tokens'], minlength=1 << 16)
  host = {
    **{k: x for k, x in arrays.items() if k.endswith(('tokens', 'end'))},
    **{k: arrays[k] for k in ('block_title', 'block_document')},
    'candidates': arrays['candidates'],
    'gold': rows,
    'drawn': np.cumsum(drawn / drawn.sum()).astype(np.float32),
    'rarity': -0.5 * np.log(np.maximum(counts, 1)).astype(np.float32),
  }
  data = {
    k: jnp.asarray(x.astype(np.int32) if x.dtype.kind in 'iu' else x)
    for k, x in host.items()
  }
  return data, np.flatnonzero(arrays['dev'])


def _run(data: Arrays, name: str, at: jax.Array, most: int):
  """Start and length of runs of tokens, cut to `most`."""
  ends = data[f'{name}_end']
  start = jnp.where(at > 0, ends[jnp.maximum(at - 1, 0)], 0)
  return start, jnp.clip(ends[at] - start, 0, most)


def _place(row, tokens, start, first, count):
  """row[first:first + count] = tokens[start:start + count]; each of them [...]."""
  at = jnp.arange(row.shape[-1]) - first[..., None]
  inside = (at >= 0) & (at < count[..., None])
  found = tokens[jnp.where(inside, start[..., None] + at, 0)]
  return jnp.where(inside, found, row), inside


def rows_of(
  layout: Layout, data: Arrays, questions, blocks, dropped
) -> dict[str, jax.Array]:
  """Make the reader's rows on the device, as `realm_jax.data.reader_rows` does.

  Args:
    questions: [B] numbers; blocks: [B, R], -1 for none.
    dropped: [B] bool, whether a question mark at the end is left out.
  """
  shape, length = blocks.shape, layout.row
  start, n = _run(data, 'question', questions, layout.question)
  last = data['question_tokens'][start + n - 1]
  n = n - (dropped & (last == layout.mark))
  start, n = (jnp.broadcast_to(x[:, None], shape) for x in (start, n))
  block = jnp.maximum(blocks, 0)
  titles, t = _run(data, 'title', data['block_title'][block], layout.title)
  bodies, b = _run(data, 'block', block, length)
  t, b = (jnp.where(blocks >= 0, x, 0) for x in (t, b))
  b = jnp.minimum(b, length - 4 - n - t)
  row = jnp.zeros((*shape, length), jnp.int32).at[..., 0].set(layout.cls)
  row, _ = _place(row, data['question_tokens'], start, jnp.ones_like(n), n)
  row, _ = _place(row, data['title_tokens'], titles, n + 2, t)
  row, inside = _place(row, data['block_tokens'], bodies, n + t + 3, b)
  at, total = jnp.arange(length), (n + t + b + 4)[..., None]
  seps = jnp.stack([n + 1, n + t + 2, n + t + b + 3], axis=-1)
  seps = (at[:, None] == seps[..., None, :]).any(-1)
  row = jnp.where(seps, layout.sep, row)
  return {
    'reader_ids': row,
    'reader_mask': at < total,
    'reader_types': ((at >= n[..., None] + 2) & (at < total)).astype(jnp.int32),
    'reader_block_mask': inside,
    'first': n + t + 3,
    'last': n + t + 3 + b,
  }


def with_gold(data: Arrays, questions, chosen, batch, width: int):
  """Add reader_correct [B, R, W, L] of the candidates [B, R] that are read."""
  gold = data['gold'][questions]  # [B, G, 3]
  same = gold[:, :, None, 0] == chosen[:, None]  # [B, G, R]
  place = same.argmax(-1)
  first, last = (
    jnp.take_along_axis(batch[x], place, axis=1) for x in ('first', 'last')
  )
  start = first + gold[..., 1]
  right = same.any(-1) & (gold[..., 0] >= 0) & (start + gold[..., 2] < last)
  right &= gold[..., 2] < width
  shape = (*chosen.shape, width, batch['reader_ids'].shape[-1])
  index = jnp.arange(len(gold))[:, None], place, gold[..., 2], start
  index = jax.tree.map(lambda x: jnp.where(right, x, 10**6), index)
  correct = jnp.zeros(shape, bool).at[index].set(True, mode='drop')
  return batch | {'reader_correct': correct}


def draw(
  data: Arrays, key, *, layout: Layout, size: int, read: int, width: int
):
  """Draw a batch of questions, each with `read` of its candidates."""
  keys = jax.random.split(key, 5)
  questions = jnp.searchsorted(
    data['drawn'], jax.random.uniform(keys[0], (size,))
  )
  questions = jnp.minimum(questions, len(data['drawn']) - 1)
  ids = data['candidates'][questions]
  numbers = jnp.arange(ids.shape[1])
  right = (data['gold'][questions][:, :, :1] == numbers).any(1)
  silent = jax.random.uniform(keys[1], (size, 1)) < _NO_ANSWER
  noise = jax.random.gumbel(keys[2], ids.shape)
  first = jnp.where(right, noise, -jnp.inf).argmax(-1)[:, None] == numbers
  order = jax.random.gumbel(keys[3], ids.shape) - 0.7 * jnp.log1p(numbers)
  order = jnp.where(first & right & ~silent, jnp.inf, order)
  order = jnp.where((ids < 0) | (right & silent), -jnp.inf, order)
  _, chosen = jax.lax.top_k(order, read)
  usable = jnp.take_along_axis(order, chosen, 1) > -jnp.inf
  chosen = jnp.where(usable, chosen, -2)
  blocks = jnp.where(
    usable, jnp.take_along_axis(ids, jnp.maximum(chosen, 0), 1), -1
  )
  dropped = jax.random.uniform(keys[4], (size,)) < _NO_MARK
  batch = rows_of(layout, data, questions, blocks, dropped)
  return with_gold(data, questions, chosen, batch, width)


def loss(model: open_qa.OpenQa, params, batch: Arrays, key, train: bool):
  """Negative log-likelihood of gold spans, or of the null answer of score 0."""
  scores = model_lib.apply(
    model, params, batch, train=train, key=key, method='read_beam'
  )
  flat = scores.reshape(len(scores), -1)
  right = batch['reader_correct'].reshape(flat.shape)
  everything = jax.nn.logsumexp(flat, axis=-1)
  wanted = jax.nn.logsumexp(jnp.where(right, flat, objectives.NEVER), axis=-1)
  there, rows = right.any(-1), jnp.ones(len(flat), bool)
  found = jnp.logaddexp(everything, 0.0) - jnp.where(there, wanted, 0.0)
  best = jnp.take_along_axis(right, flat.argmax(-1)[:, None], 1)[:, 0]
  return means.of(found, rows), {
    'exact_match': means.of(best, there),
    'answered': means.of(flat.max(-1) > 0, there),
    'silent': means.of(flat.max(-1) <= 0, ~there),
  }


def draw_masked(
  data: Arrays, key, *, layout: Layout, size: int
) -> dict[str, jax.Array]:
  """Draw blocks with masked words, each beside another block of its document."""
  keys = jax.random.split(key, 4)
  length, most = layout.row, layout.row // 3
  block = jax.random.randint(keys[0], (size,), 0, len(data['block_end']))
  owner = data['block_document']
  other = jnp.minimum(block + 1, len(owner) - 1)
  other = jnp.where(owner[other] == owner[block], other, block - 1)
  alike = owner[other] == owner[block]
  strange = jax.random.randint(keys[1], (size,), 0, len(owner))
  other = jnp.where(alike, other, strange)
  start, count = _run(data, 'block', block, length)
  room = jnp.maximum(count - most, 0)
  skip = (jax.random.uniform(keys[2], (size,)) * (room + 1)).astype(jnp.int32)
  start, n = start + skip, jnp.minimum(count - skip, most)
  bodies, b = _run(data, 'block', other, length)
  b = jnp.minimum(b, length - 3 - n)
  row = jnp.zeros((size, length), jnp.int32).at[:, 0].set(layout.cls)
  row, words = _place(row, data['block_tokens'], start, jnp.ones_like(n), n)
  row, _ = _place(row, data['block_tokens'], bodies, n + 2, b)
  at, total = jnp.arange(length), (n + b + 3)[:, None]
  row = jnp.where((at == n[:, None] + 1) | (at == total - 1), layout.sep, row)
  order = data['rarity'][row] + jax.random.gumbel(keys[3], row.shape)
  order, positions = jax.lax.top_k(jnp.where(words, order, -jnp.inf), _TARGETS)
  wanted = jnp.arange(_TARGETS) < jnp.ceil(0.3 * n)[:, None]
  wanted &= order > -jnp.inf
  targets = jnp.take_along_axis(row, positions, 1)
  hidden = jnp.where(wanted, positions, length)
  row = row.at[jnp.arange(size)[:, None], hidden].set(layout.mask, mode='drop')
  return {
    'joint_ids': row[:, None],
    'joint_mask': (at < total)[:, None],
    'joint_types': ((at >= n[:, None] + 2) & (at < total))[:, None] * 1,
    'mlm_positions': jnp.where(wanted, positions, 0),
    'mlm_targets': targets,
    'mlm_mask': wanted,
    'sentence_removed': alike,  # reported: with and without its own document
  }


def evaluator(model: open_qa.OpenQa, layout: Layout, read: int, size: int = 64):
  """Return a function of parameters, data and held-out questions: their means.

  Each question is read with its first `read` candidates; a last batch that is not full
  is left out.
  """

  @jax.jit
  def some(params, data, questions):
    ids = data['candidates'][questions][:, :read]
    chosen = jnp.broadcast_to(jnp.arange(read), ids.shape)
    batch = rows_of(layout, data, questions, ids, jnp.zeros(len(ids), bool))
    batch = with_gold(
      data, questions, chosen, batch, model.config.max_span_width
    )
    value, found = loss(model, params, batch, jax.random.key(0), False)
    return {'loss': value, **found}

  def evaluate(params, data, questions):
    rows = questions[: len(questions) // size * size].reshape(-1, size)
    found = [some(params, data, x) for x in rows]
    total = jax.tree.map(lambda *x: sum(x), *found)
    return {k: float(x) for k, x in means.values(total).items()}

  return evaluate


def _model(folder: str, vocab_size: int):
  """Return the model of a packed folder, for training."""
  config = settings.build(
    reader_configs.ReaderConfig,
    packed.read_config(pathlib.Path(folder)),
    'config',
    ignore_others=True,
  )
  model = reader_configs.reader_config(config, vocab_size)
  encoder = dataclasses.replace(
    model.realm.encoder, dtype='bfloat16', dropout_rate=0.1
  )
  realm = dataclasses.replace(model.realm, encoder=encoder)
  return dataclasses.replace(model, realm=realm)


def train(bundle, start, output, *, masked, reading, weights, options):
  """Train in two stages; write weights and curves after each.

  Args:
    masked, reading: num_steps or seconds of each stage; masked may be empty.
    options: the command's flags of these names.
  """
  output.mkdir(parents=True, exist_ok=True)
  arrays = dict(np.load(bundle / 'reader.npz'))
  data, held = prepare(arrays, weights)
  layout = Layout(*arrays['layout'].tolist())
  reports.write_json(output / LAYOUT, layout._asdict())
  encoder = packed.load_params(pathlib.Path(start), ['encoder'])['encoder']
  config = _model(start, len(encoder['mlm_head']['bias']))
  curve: list[dict[str, Any]] = []
  frozen = lambda name: '/word/' in name  # noqa: E731
  optimizer = optimizers.OptimizerConfig(
    learning_rate=options['learning_rate'],
    warmup_steps=optimizers.TENTH,
    b2=0.98,
    weight_decay=0.01,
  )

  def run(part, program, params, given, seed, dev=None):
    shown = 0

    def keep(params):
      _, trained = program.split({part: params[part]})
      tree = traverse_util.unflatten_dict(jax.device_get(trained), sep='/')
      arrays = packed.quantize(tree[part], 8)
      safetensors_files.write(output / f'{part}.safetensors', arrays)
      reports.write_json(output / CURVE, curve)

    for step, params, found in program.train(  # noqa: B020
      params, data, seed=seed, **given
    ):
      if step < shown:
        continue
      shown = step + options['every']
      more = dev(params) if dev else {}
      curve.append({'part': part, 'step': step, **found, **more})
      logging.info('%s, step %d: loss %.3f', part, step, found['loss'])
      keep(params)
    keep(params)
    return jax.device_get(params)

  if masked:
    program = device_loop.Program(
      functools.partial(mlm.loss, model_lib.Realm(config.realm)),
      functools.partial(draw_masked, layout=layout, size=options['mlm_batch']),
      optimizer,
      frozen,
      steps=options['steps'],
    )
    params = run('encoder', program, {'encoder': encoder}, masked, 0)
    encoder = params['encoder']
  model, read = open_qa.OpenQa(config), options['read']
  first = sharding.unbox(open_qa.random_params(jax.random.key(0), config))
  params = {'reader': first['reader'] | {'bert': encoder['bert']}}
  program = device_loop.Program(
    functools.partial(loss, model),
    functools.partial(
      draw,
      layout=layout,
      size=options['batch'],
      read=read,
      width=config.max_span_width,
    ),
    optimizer,
    frozen,
    steps=options['steps'],
  )
  groups = {
    str(name): held[arrays['set'][held] == i][: options['dev']]
    for i, name in enumerate(arrays['set_names'])
  }
  evaluate = evaluator(model, layout, read)

  def dev(params):
    scores = {
      name: evaluate(params, data, rows)
      for name, rows in groups.items()
      if len(rows) >= 64
    }
    return {
      f'{a}/{b}': x for a, found in scores.items() for b, x in found.items()
    }

  run('reader', program, params, reading, 1, dev)


def pack(output: pathlib.Path, start: str, folder: str) -> None:
  """Put the parts in `output` into a packed model, which then reads titles."""
  first = packed.load_params(pathlib.Path(start), ['encoder'])['encoder']
  table = first['bert']['embeddings']['word']
  curve = json.loads((output / CURVE).read_text())
  trees = {}
  for part in ('encoder', 'reader'):
    name = f'{part}.safetensors'
    if (output / name).exists():
      tree = packed.dequantize(safetensors_files.read(output / name))
      tree['bert']['embeddings']['word'] = table
      trees[name] = part, tree
  config = packed.read_config(folder)
  arrays = json.loads((output / LAYOUT).read_text())
  config['lookup'] |= {
    'row_length': arrays['row'], 'title_length': arrays['title']
  }  # fmt: skip
  config['reader'] |= {'null_answer': True}
  facts = packed.read_facts(folder)
  packed.write(
    folder,
    trees,
    config,
    step=curve[-1]['step'],
    fingerprints=facts.fingerprints,
    others=['tokenizer.json'],
  )


def main(argv: list[str]) -> None:
  """Train within the seconds given, or pack what was trained."""
  del argv
  values = flags.FLAGS
  output = pathlib.Path(values.output)
  if values.pack:
    pack(output, values.start, values.pack)
    return
  weights = dict(x.split('=') for x in values.weights)
  train(
    pathlib.Path(values.bundle),
    values.start,
    output,
    masked={'seconds': s} if (s := values.mlm_seconds) else {},
    reading={'seconds': values.seconds},
    weights={k: float(x) for k, x in weights.items()},
    options={name: getattr(values, name) for name in OPTIONS},
  )


if __name__ == '__main__':
  flags.DEFINE_string('bundle', '', 'Folder of the bundle.')
  flags.DEFINE_string('pack', '', 'Packed model that takes what was trained.')
  flags.DEFINE_string('start', 'realm_jax/packaged', 'Packed model.')
  flags.DEFINE_string('output', None, 'Folder of the weights.', required=True)
  flags.DEFINE_float('mlm_seconds', 90, 'Of masked language modelling.')
  flags.DEFINE_float('seconds', 300, 'Of reading.')
  flags.DEFINE_list(
    'weights', [], 'SET=1.5: how often its questions are drawn.'
  )
  flags.DEFINE_float('learning_rate', 3e-4, 'At the most.')
  flags.DEFINE_integer('batch', 64, 'Questions of a step.', 1)
  flags.DEFINE_integer('mlm_batch', 512, 'Blocks of a step.', 1)
  flags.DEFINE_integer('read', 8, 'Blocks read of a question.', 1)
  flags.DEFINE_integer('steps', 25, 'Steps of a call.', 1)
  flags.DEFINE_integer('every', 500, 'Steps between lines of the curve.', 1)
  flags.DEFINE_integer('dev', 512, 'Held-out questions of a set.', 64)
  command.main_of_script(main)
