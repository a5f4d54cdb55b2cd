# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Train and read the rows of RETRO's claims on one accelerator, seeds side by side.

  python -m experiments.accelerators.retro_rows --bundle=FILE --workdir=DIR \
    --rows='retro_copy|baseline_copy' --seeds=0,1,2,3,4

FILE is what `retro_bundle` wrote; --config is the quickstart's, which each row of
`claim_rows.ROWS` changes. Writes DIR/<row>.npz as soon as a row is done, with the nats
of every document for each split and reading ('test/k2': [seeds, documents]), the
training loss and facts; a row that fails is told, and the others go on. Several
processes may share a device. --seconds trains a row so long instead of the config's
steps; --weights keeps DIR/<row>-<seed>.00.safetensors and so on (`weight_files`).
--dry_run rehearses the same with a tiny model and one step.

Dimension key: S seeds, B rows, C chunks of a row, N neighbors, D documents.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import json
import operator
import pathlib
import re
import time
import traceback
from typing import Any
import zlib

from absl import flags, logging
from flax import linen as nn, traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from experiments.accelerators import (
  absent,
  claim_rows,
  device_loop,
  retro_bundle,
  weight_files,
)
from experiments.engine import command, configs, reports
from experiments.retro import config as config_lib
from retrieval.kernels import backend
from retrieval.nn import means
from retro_jax.data import pipeline
from retro_jax.nn import (
  config as model_config,
  initial,
  losses,
  retro as model_lib,
)
from retro_jax.nn.copies import copy_init

_MOST_ROWS = 10_000  # of a run's batches together
_BATCH = 8  # rows that are read together
_WINDOWS = ('ids', 'segments', 'owner', 'shuffled')
_FRESH = ('k2', 'k10', 'off')  # readings of other splits than the first


def model_of(
  config: config_lib.Config, vocab_size: int
) -> model_config.RetroConfig:
  """The model of a row's config, without loops over layers."""
  return dataclasses.replace(
    config.model,
    vocab_size=vocab_size,
    cca_layers=config.model.cca_layers if config.retrieval else (),
    layers='unrolled',
  )


def start_of(
  row: claim_rows.Row, cfg: model_config.RetroConfig, seed: int
) -> dict[str, np.ndarray]:
  """Initial parameters by path, as of `initial.flat_params`, drawn on the host."""
  plain = dataclasses.replace(cfg, copy_init=False)
  init = functools.partial(initial.flat_params, config=plain)
  shapes = nn.unbox(jax.eval_shape(init, jax.random.key(0)))
  flat = {}
  for path, x in traverse_util.flatten_dict(shapes).items():
    value = np.zeros(x.shape, np.float32)
    if path[-1] == 'scale':
      value += 1
    elif x.ndim == 2:
      of_output = path[-1] in ('o', 'w2')
      scale = cfg.output_scale(in_encoder=path[0] == 'encoder')
      own = zlib.crc32('/'.join(path).encode())
      value = np.random.default_rng([seed, own]).normal(size=x.shape)
      value = value * (scale if of_output else cfg.init_scale)
    flat[path] = value.astype(np.float32)
  with jax.default_device(jax.devices('cpu')[0]):
    key = jax.random.key(seed)
    params = traverse_util.unflatten_dict(jax.tree.map(jnp.asarray, flat))
    if cfg.copy_init:
      params = copy_init.apply(key, params, cfg)
  flat = traverse_util.flatten_dict(params)
  for path, x in flat.items():
    if path[-1] in ('o', 'w2') and path[0] != 'encoder':
      factor = row.output if path[0].endswith('_cca') else row.branches
      flat[path] = factor * np.asarray(x)
  found = {'/'.join(path): np.asarray(x) for path, x in flat.items()}
  return found | {f'gate/{p}': np.float32(0) for p in cfg.cca_layers}


def order_of(num_rows: int, seed: int) -> np.ndarray:
  """Rows in the order of training: every pass has each once, shuffled anew."""
  draws = np.random.default_rng(seed)
  passes = range(-(-_MOST_ROWS // num_rows))
  found = np.concatenate([draws.permutation(num_rows) for _ in passes])
  return found[:_MOST_ROWS].astype(np.int32)


def _whole(params, data):
  """The model's parameters: gate and ramp are factors of cross-attention's output."""
  params = dict(params)
  gates = params.pop('gate', {})
  for p, gate in gates.items():
    grown = jnp.where(data['gate'] > 0, data['gate'] * gate, 1.0)
    grown *= jnp.clip((data['step'] + 1) / data['ramp'].clip(1), 0, 1)
    flat = traverse_util.flatten_dict(params[f'layer_{p}_cca'])
    output = 'cca', 'attention', 'o'
    flat[output] = grown * flat[output]
    params[f'layer_{p}_cca'] = traverse_util.unflatten_dict(flat)
  return params


def _nll(model, params, batch):
  """Nats of the targets, 0 where nothing is scored: [B, L]."""
  nll = losses.forward(model, params, batch, targets=batch['targets'])
  return jnp.where(batch['loss_mask'], nll, 0.0)


def _loss(model, batch_size, chunks, apart, params, data, key, train):
  del train
  params = {**params}
  order = params.pop('order')
  at = data['step'] * batch_size + jnp.arange(batch_size)
  at = order[at % len(order)]
  ids = at[:, None] * chunks + jnp.arange(chunks)
  ids = jnp.where(ids < data['num_chunks'], ids, -1)
  found = None
  if 'found' in data:
    found = data['found'][jnp.maximum(ids, 0)]
    off = jax.random.bernoulli(key, data['off'], (batch_size, 1, 1))
    found = jnp.where(off, -1, found)
  batch = retro_bundle.rows_of(
    data['table'], ids, None, found, model.config.neighbor_length
  )
  params = _whole(params, data)
  if found is not None:
    batch['neighbor_mask'] &= data['visible']
  mask = batch['loss_mask']
  if not apart:
    return means.of(_nll(model, params, batch), mask), {}
  added = {k: x for k, x in params.items() if initial.is_added(k)}
  fixed = jax.lax.stop_gradient({k: params[k] for k in {*params} - {*added}})
  read = means.of(_nll(model, fixed | added, batch), mask)
  alone = means.of(_nll(model, params, pipeline.without_neighbors(batch)), mask)
  return read + alone, {'read': read}


@functools.cache
def _scorer(cfg):
  """Nats of each chunk: parameters of S runs -> [S, B, C]."""
  model = model_lib.Retro(cfg)

  def score(params, table, visible, *rows):
    def one(given):
      ids, segments, found = given
      batch = retro_bundle.rows_of(
        table, ids, segments, found, cfg.neighbor_length
      )
      if found is not None:
        batch['neighbor_mask'] &= visible
      nll = _nll(model, params, batch)
      return nll.reshape(*ids.shape, -1).sum(-1)

    several = jax.tree.map(lambda x: x.reshape(-1, _BATCH, *x.shape[1:]), rows)
    return jax.lax.map(one, several).reshape(rows[0].shape)

  return jax.jit(jax.vmap(score, (0, *[None] * 5)))


def _neighbors(split, source, reading):
  """[B, C, N] for a reading: kN, off, shuffled, or a source."""
  ids = split['shuffled' if reading == 'shuffled' else 'ids']
  other = reading if reading in split and reading != 'shuffled' else source
  k = int(reading[1:]) if re.fullmatch(r'k\d+', reading) else 2
  found = split[other][np.maximum(ids - split['start'], 0)][..., :k]
  found = np.where((ids >= 0)[..., None], found, -1)
  if reading == 'off':
    found[:] = -1
  if k < 2:
    found = np.pad(found, ((0, 0), (0, 0), (0, 2 - k)), constant_values=-1)
  return found


def read(
  row: claim_rows.Row,
  cfg: model_config.RetroConfig,
  params: Any,
  bundle: Mapping[str, Any],
  visible: np.ndarray,
) -> dict[str, np.ndarray]:
  """Nats of each document by split and reading: [S, D] float64.

  Args:
    params: of S runs, on a leading axis.
    bundle: of `retro_bundle.unpack`.
    visible: [R] which tokens of neighbors are read.
  """
  score, found, size = _scorer(cfg), {}, 0
  others = [x for x in ('dense', 'bm25') if x in bundle['train']]
  readings = ['k2', 'off', 'k10', 'shuffled', 'k1', *others]
  readings.remove(row.source)
  for name in [x for x in bundle if 'bytes' in bundle[x]]:
    split = bundle[name]
    if size and not row.fresh:
      continue
    wanted = [x for x in readings if not size or x in _FRESH]
    size = size or len(split['ids'])  # of the calls: all compile one program
    scored = split['owner'] >= 0
    for reading in wanted if cfg.cca_layers else ['off']:
      rows = [split['ids'], split['segments'], None]
      if cfg.cca_layers:
        rows[2] = _neighbors(split, row.source, reading)
      nats = []
      for first in range(0, len(scored), size):
        part = [x if x is None else x[first : first + size] for x in rows]
        missing = size - len(part[0])
        part = jax.tree.map(
          lambda x, n=missing: np.pad(
            x, [(0, n), *[(0, 0)] * (x.ndim - 1)], constant_values=-1
          ),
          part,
        )
        nats.append(score(params, bundle['table'], visible, *part))
      nats = np.concatenate(nats, 1)[:, : len(scored)].astype(np.float64)
      sums = np.zeros((len(nats), len(split['bytes'])))
      for own, x in zip(sums, nats, strict=True):
        np.add.at(own, split['owner'][scored], x[scored])
      found[f'{name}/{reading}'] = sums
  return found


def run(
  row: claim_rows.Row,
  config: config_lib.Config,
  bundle: Mapping[str, Any],
  seeds: Sequence[int],
  programs: dict[Any, device_loop.Program],
  seconds: float = 0.0,
  weights: pathlib.Path | None = None,
) -> dict[str, Any]:
  """Train a row from all seeds and read it.

  Args:
    seconds: of training; 0: the config's steps.
    weights: folder that takes the trained parameters; None: they are not kept.
    programs: compiled programs of earlier rows. Rows share a program if they
      differ in their start alone.
  """
  config = configs.replaced(config, **row.changes)
  cfg = model_of(config, config.tokenizer.vocab_size)
  train, num_chunks = bundle['train'], len(bundle['train']['lengths'])
  # What the program does not depend on.
  same = dataclasses.replace(cfg, copy_init=False, init_scale=1.0)
  m, part = cfg.chunk_length, config.neighbor_part
  first = np.arange(cfg.neighbor_length) < m
  visible = {'neighbor': first, 'continuation': ~first}.get(part, first | True)
  starts = [start_of(row, cfg, seed) for seed in seeds]
  params = {k: jnp.stack([x[k] for x in starts]) for k in starts[0]}
  num_rows = -(-num_chunks // config.sequence_chunks)
  orders = jnp.stack([order_of(num_rows, seed) for seed in seeds])
  data = {
    'table': jax.tree.map(jnp.asarray, bundle['table']),
    'num_chunks': jnp.int32(num_chunks),
    'visible': jnp.asarray(visible),
    **{k: jnp.float32(getattr(row, k)) for k in ('gate', 'ramp', 'off')},
  }
  if cfg.cca_layers:
    data['found'] = jnp.asarray(
      train[row.source][:, : config.num_neighbors].astype(np.int32)
    )
  length, size = config.sequence_chunks, config.batch_size
  loss = functools.partial(
    _loss, model_lib.Retro(same), size, length, row.apart
  )
  program = programs.setdefault(
    (loss.args, repr(config.optimizer)),
    device_loop.Program(
      loss,
      lambda data, key: data,
      config.optimizer,
      frozen=lambda name: name == 'order',
    ),
  )
  whole = traverse_util.unflatten_dict(params | {'order': orders}, sep='/')
  curve, start, compiled = [], time.monotonic(), 0.0
  if config.num_steps:
    given = {'seconds': seconds} if seconds else {'num_steps': config.num_steps}
    steps = program.train(whole, data, seed=seeds, **given)
    for _, params, metrics in steps:
      whole = params
      compiled = compiled or time.monotonic() - start
      curve.append(metrics['loss'])
  trained = time.monotonic() - start
  del whole['order']
  data['step'] = jnp.int32(2**30)
  if cfg.cca_layers:
    whole = jax.vmap(_whole, (0, None))(whole, data)
  for i, seed in enumerate(seeds if weights else ()):
    one = jax.tree.map(operator.itemgetter(i), whole)
    weight_files.write(weights, f'{row.name}-{seed}', one)
  nats = read(row, same, whole, bundle, visible)
  facts = {
    'row': dataclasses.asdict(row),
    'config': dataclasses.asdict(config),
    'seeds': [*seeds],
    'parameters': sum(x.size for x in jax.tree.leaves(whole)) // len(seeds),
    'device': jax.devices()[0].device_kind,
    'seconds': {
      'first call': compiled,
      'training': trained,
      'all': time.monotonic() - start,
    },
  }
  sizes = {
    f'{name}/bytes': x['bytes'] for name, x in bundle.items() if 'bytes' in x
  }
  facts = json.dumps(facts, default=str)
  return {**nats, **sizes, 'curve': np.asarray(curve), 'facts': facts}


def main(config: config_lib.Config, workdir: str) -> None:
  """Run the rows that are asked for."""
  given = flags.FLAGS
  jax.config.update('jax_default_matmul_precision', given.precision)
  with np.load(given.bundle) as arrays:
    bundle = retro_bundle.unpack(arrays)
  if absent.MISSING:
    logging.info('Not installed here: %s', ', '.join(absent.MISSING))
  rows = [x for x in claim_rows.ROWS if re.fullmatch(given.rows, x.name)]
  programs: dict[Any, device_loop.Program] = {}
  seeds, seconds = [int(x) for x in given.seeds], given.seconds
  num_steps = given.num_steps
  if given.dry_run:
    jax.config.update('jax_disable_most_optimizations', True)
    seeds, seconds, num_steps = seeds[:1], min(seconds, 1.0), 1
    for split in bundle.values():  # of the windows, the first
      split |= {k: split[k][:_BATCH] for k in _WINDOWS if k in split}
  for row in rows:
    changes = {**row.changes, **(claim_rows.TINY if given.dry_run else {})}
    if num_steps and changes.get('num_steps', 1):
      changes['num_steps'] = num_steps
    row = dataclasses.replace(row, changes=changes)
    folder = pathlib.Path(workdir) if given.weights else None
    try:
      with backend.traced_as('cpu'):  # several runs side by side
        found = run(row, config, bundle, seeds, programs, seconds, folder)
    except Exception:
      logging.error('%s failed:\n%s', row.name, traceback.format_exc())
      continue
    reports.write_arrays(pathlib.Path(workdir) / f'{row.name}.npz', found)
    bits = {
      name: x.sum(1).mean() / found[f'{name.partition("/")[0]}/bytes'].sum()
      for name, x in found.items()
      if name.partition('/')[0] in bundle and not name.endswith('/bytes')
    }
    text = ' '.join(f'{k} {x / np.log(2):.4f}' for k, x in bits.items())
    logging.info('%s: %s', row.name, text)
    logging.info('%s: %s', row.name, json.loads(found['facts'])['seconds'])


def _define_flags() -> None:
  flags.DEFINE_string('bundle', None, 'File of retro_bundle.', required=True)
  flags.DEFINE_string('rows', '.*', 'Regular expression of the rows.')
  flags.DEFINE_list('seeds', ['0', '1', '2', '3', '4'], 'Seeds.')
  flags.DEFINE_bool('dry_run', False, 'Tiny: rehearse.')
  flags.DEFINE_integer('num_steps', 0, 'Steps of each row, for a trial.')
  flags.DEFINE_float('seconds', 0.0, 'Of training a row; 0: its steps.', 0.0)
  flags.DEFINE_bool('weights', False, 'Keep the weights, too.')
  flags.DEFINE_string('precision', 'float32', 'Of matrix products.')


if __name__ == '__main__':
  command.main(
    main,
    config_lib.Config,
    _define_flags,
    default_config='configs/retro_pretrain_quickstart.py',
  )
