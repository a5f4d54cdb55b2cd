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
table keeps its start. Writes the reader and the encoder at 8 bits a value in files of
at most 16 MiB, without the word table, and the curve, every --every steps and at the
end. --dry_run rehearses the same with tiny batches, in two minutes of a CPU.

  python -m experiments.accelerators.train_reader --start=DIR --output=DIR \
    --pack=realm_jax/packaged

puts what was written into a packed model; --output=A,B the mean of both.
Questions of the sets --made are used only where the first reader answers them alike.
"""

from experiments.accelerators import absent  # isort: skip

from collections.abc import Sequence
import dataclasses
import functools
import json
import pathlib
from typing import Any

from absl import flags, logging
from flax import traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from experiments.accelerators import device_loop, reader_batches, weight_files
from experiments.engine import command, optimizers, reports
from realm_jax.nn import open_qa, realm as model_lib
from realm_jax.objectives import mlm, reader_losses
from realm_jax.serving import reader_configs
from retrieval import settings
from retrieval.nn import means, sharding
from retrieval.store import packed

CURVE, LAYOUT = 'curve.json', 'layout.json'
OPTIONS = (
  'batch',
  'dev',
  'dropout',
  'every',
  'learning_rate',
  'mlm_batch',
  'read',
  'steps',
)
# Of a rehearsal.
_TINY = {'batch': 2, 'every': 1, 'mlm_batch': 4, 'read': 2, 'steps': 1}


def judge(
  model: open_qa.OpenQa, params, batch: reader_batches.Arrays, key, train: bool
):
  """Losses of questions, [B] each, and whether the best spans are right."""
  scores = model_lib.apply(
    model, params, batch, train=train, key=key, method='read_beam'
  )
  found = reader_losses.full_loss(batch, scores, null_answer=True)
  flat = scores.reshape(len(scores), -1)
  right = batch['reader_correct'].reshape(flat.shape)
  there = right.any(-1)
  best = jnp.take_along_axis(right, flat.argmax(-1)[:, None], 1)[:, 0]
  return found, best, there, flat.max(-1) <= 0


def loss(
  model: open_qa.OpenQa, params, batch: reader_batches.Arrays, key, train: bool
):
  """Negative log-likelihood of gold spans, or of the null answer of score 0."""
  found, best, there, silent = judge(model, params, batch, key, train)
  return means.of(found, jnp.ones_like(there)), {
    'exact_match': means.of(best, there),
    'answered': means.of(~silent, there),
    'silent': means.of(silent, ~there),
  }


def _first_blocks(layout, data, questions, read, width):
  """The batch of questions with their first `read` candidates."""
  ids = data['candidates'][questions][:, :read]
  chosen = jnp.broadcast_to(jnp.arange(read), ids.shape)
  batch = reader_batches.rows_of(
    layout, data, questions, ids, jnp.zeros(len(ids), bool)
  )
  return reader_batches.with_gold(data, questions, chosen, batch, width)


def round_trip(model, layout, params, data, questions, read: int) -> np.ndarray:
  """Tell for each question whether the reader finds its answer (Lewis et al. 2021).

  Args:
    questions: [n] numbers; each is read with its first `read` candidates.
  """

  @jax.jit
  def right(params, data, questions):
    width = model.config.max_span_width
    batch = _first_blocks(layout, data, questions, read, width)
    return judge(model, params, batch, jax.random.key(0), False)[1]

  rows = np.resize(questions, (-(-len(questions) // 256), 256))
  found = [np.asarray(right(params, data, x)) for x in rows]
  return np.concatenate(found)[: len(questions)]


def evaluator(
  model: open_qa.OpenQa,
  layout: reader_batches.Layout,
  read: int,
  size: int = 64,
):
  """Return a function of parameters, data and held-out questions: their means.

  Each question is read with its first `read` candidates; a last batch that is not full
  is left out.
  """

  @jax.jit
  def some(params, data, questions):
    width = model.config.max_span_width
    batch = _first_blocks(layout, data, questions, read, width)
    value, found = loss(model, params, batch, jax.random.key(0), False)
    return {'loss': value, **found}

  def evaluate(params, data, questions):
    rows = questions[: len(questions) // size * size].reshape(-1, size)
    found = [some(params, data, x) for x in rows]
    total = jax.tree.map(lambda *x: sum(x), *found)
    return {k: float(x) for k, x in means.values(total).items()}

  return evaluate


def _model(folder: str, vocab_size: int, dropout: float):
  """Return the model of a packed folder, for training."""
  config = settings.build(
    reader_configs.ReaderConfig,
    packed.read_config(pathlib.Path(folder)),
    'config',
    ignore_others=True,
  )
  model = reader_configs.reader_config(config, vocab_size)
  encoder = dataclasses.replace(
    model.realm.encoder, dtype='bfloat16', dropout_rate=dropout
  )
  realm = dataclasses.replace(model.realm, encoder=encoder)
  return dataclasses.replace(model, realm=realm)


def train(
  bundle,
  start,
  output,
  *,
  masked,
  reading,
  weights,
  options,
  go_on=False,
  made=(),
):
  """Train in two stages; write weights and curves after each.

  Args:
    go_on: whether the start's reader goes on, not its encoder.
    made: sets whose questions are left out unless the first reader answers alike.
    masked, reading: num_steps or seconds of each stage; masked may be empty.
    options: the command's flags of these names.
  """
  output.mkdir(parents=True, exist_ok=True)
  arrays = dict(np.load(bundle / 'reader.npz'))
  data, held = reader_batches.prepare(arrays, weights)
  layout = reader_batches.Layout(*arrays['layout'].tolist())
  reports.write_json(output / LAYOUT, layout._asdict())
  encoder = packed.load_params(pathlib.Path(start), ['encoder'])['encoder']
  vocab_size = len(encoder['mlm_head']['bias'])
  config = _model(start, vocab_size, options['dropout'])
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
      weight_files.write(output, part, tree[part])
      reports.write_json(output / CURVE, curve)

    if dev:
      dev(params)  # compiles it before the seconds count
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
      functools.partial(
        reader_batches.draw_masked, layout=layout, size=options['mlm_batch']
      ),
      optimizer,
      frozen,
      steps=options['steps'],
    )
    params = run('encoder', program, {'encoder': encoder}, masked, 0)
    encoder = params['encoder']
  model, read = open_qa.OpenQa(config), options['read']
  first = sharding.unbox(open_qa.random_params(jax.random.key(0), config))
  params = {'reader': first['reader'] | {'bert': encoder['bert']}}
  if go_on:
    params = packed.load_params(pathlib.Path(start), ['reader'])
  program = device_loop.Program(
    functools.partial(loss, model),
    functools.partial(
      reader_batches.draw,
      layout=layout,
      size=options['batch'],
      read=read,
      width=config.max_span_width,
    ),
    optimizer,
    frozen,
    steps=options['steps'],
  )
  if made:
    numbers = [arrays['set_names'].tolist().index(x) for x in made]
    asked = np.flatnonzero(np.isin(arrays['set'], numbers))
    kept = np.ones(len(arrays['set']), bool)
    kept[asked] = round_trip(model, layout, params, data, asked, read)
    logging.info('%d of %d made: kept.', kept[asked].sum(), len(asked))
    data, held = reader_batches.prepare(arrays, weights, kept)
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


def pack(outputs: Sequence[pathlib.Path], start: str, folder: str) -> None:
  """Put the parts in `outputs` into a packed model, which then reads titles.

  Of several outputs it is the mean of their weights (Wortsman et al. 2022, uniform
  soup).
  """
  first = packed.load_params(pathlib.Path(start), ['encoder'])['encoder']
  table = first['bert']['embeddings']['word']
  curve = json.loads((outputs[0] / CURVE).read_text())
  trees = {}
  for part in ('encoder', 'reader'):
    found = [weight_files.read(x, part) for x in outputs]
    if all(found):
      tree = jax.tree.map(lambda *x: np.mean(x, axis=0), *found)
      tree['bert']['embeddings']['word'] = table
      trees[part] = tree
  config = packed.read_config(folder)
  config['reader'] = packed.read_config(start)['reader']
  arrays = json.loads((outputs[0] / LAYOUT).read_text())
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
  if values.pack:
    outputs = [pathlib.Path(x) for x in values.output.split(',')]
    pack(outputs, values.start, values.pack)
    return
  output = pathlib.Path(values.output)
  if 'xxhash' in absent.MISSING:
    raise ImportError('xxhash is not installed; it checks the packed start.')
  weights = dict(x.split('=') for x in values.weights)
  options = {name: getattr(values, name) for name in OPTIONS}
  first, second = values.mlm_seconds, values.seconds
  if values.dry_run:
    options |= _TINY
    jax.config.update('jax_disable_most_optimizations', True)
    first, second = min(first, 1.0), min(second, 1.0)
  train(
    pathlib.Path(values.bundle),
    values.start,
    output,
    masked={'seconds': first} if first else {},
    reading={'seconds': second},
    weights={k: float(x) for k, x in weights.items()},
    options=options,
    go_on=values.go_on,
    made=values.made,
  )


if __name__ == '__main__':
  flags.DEFINE_string('bundle', '', 'Folder of the bundle.')
  flags.DEFINE_string('pack', '', 'Packed model that takes what was trained.')
  flags.DEFINE_string('start', 'realm_jax/packaged', 'Packed model.')
  flags.DEFINE_string(
    'output', None, 'Folder of the weights; for --pack, several.', required=True
  )
  flags.DEFINE_bool('dry_run', False, 'Tiny batches: rehearse.')
  flags.DEFINE_bool('go_on', False, "Train --start's reader further.")
  flags.DEFINE_list('made', [], 'Sets that need a round trip.')
  flags.DEFINE_float('dropout', 0.1, 'Of hidden values.', 0, 0.9)
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
