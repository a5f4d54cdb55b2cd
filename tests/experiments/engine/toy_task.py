# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A toy task for the loop's tests, and a script that trains it.

  python toy_task.py WORKDIR [--field=value ...]

A linen language model with partitioned parameters learns to count. Fields override
`get_config`; beside them: --coordinator and --process (of two processes),
--die_at=N (kill -9 right after step N's save began), --signal_at=N (SIGTERM, or --signal=NAME, in
the same place, to the first process).
"""

import ast
import dataclasses
import os
import signal
import sys

from flax import linen as nn
import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.engine import (
  checkpoint_writer,
  loop,
  optimizers,
  run_settings,
  signals,
  tasks,
)
from retrieval.nn import means, partitioning

VOCAB, LENGTH, EMBED, MLP = 32, 8, 16, 64


class TinyLM(nn.Module):
  """Embedding, one dense layer with dropout, tied readout."""

  dropout_rate: float = 0.0

  @nn.compact
  def __call__(self, tokens, *, train=False):
    init = nn.initializers.normal(0.1)
    embed = nn.Embed(
      VOCAB,
      EMBED,
      embedding_init=partitioning.partitioned(init, 'vocab', 'embed'),
    )
    x = embed(tokens)
    h = nn.Dense(
      MLP, kernel_init=partitioning.partitioned(init, 'embed', 'mlp')
    )(x)
    h = partitioning.constrain(h, 'batch', 'length', 'mlp')
    h = nn.Dropout(self.dropout_rate)(nn.gelu(h), deterministic=not train)
    x = x + nn.Dense(
      EMBED, kernel_init=partitioning.partitioned(init, 'mlp', 'embed')
    )(h)
    x = partitioning.constrain(x, 'batch', 'length', 'embed')
    return embed.attend(nn.LayerNorm()(x))


class Counting:
  """Rows that count upwards from a random start, by a random stride."""

  def __init__(self, num_rows, nan_at=-1, ragged=False):
    self._num_rows, self._nan_at, self._ragged = num_rows, nan_at, ragged

  def __len__(self):
    return self._num_rows

  def __getitem__(self, i):
    start, stride, length = np.random.default_rng(i).integers(1, VOCAB, 3)
    row = (start + stride * np.arange(LENGTH + 1)) % VOCAB
    mask = np.ones(LENGTH, np.float32)
    if self._ragged:
      mask = (np.arange(LENGTH) < 1 + length % LENGTH).astype(np.float32)
    if i == self._nan_at:
      mask[0] = np.nan
    return {
      'tokens': row[:-1].astype(np.int32),
      'targets': row[1:].astype(np.int32),
      'mask': mask,
    }

  def __repr__(self):
    return f'Counting({self._num_rows})'


def make_task(config):
  """The toy as a Task; its loss adds means with counts of their own."""
  model = TinyLM(config.dropout_rate)

  def init(key):
    return model.init(key, jnp.zeros((1, LENGTH), jnp.int32))['params']

  def loss(params, batch, key, train):
    logits = model.apply(
      {'params': params},
      batch['tokens'],
      train=train,
      rngs={'dropout': key},
    )
    losses = optax.losses.softmax_cross_entropy_with_integer_labels(
      logits, batch['targets']
    )
    mask = batch['mask']
    long = mask.sum(-1) > LENGTH // 2
    of_rows = means.of((losses * mask).mean(-1), long)
    hits = logits.argmax(-1) == batch['targets']
    metrics = {'accuracy': means.of(hits, mask), 'of_rows': of_rows}
    return means.of(losses, mask) + 0.5 * of_rows, metrics

  def dataset(split):
    nan_at = config.nan_at if split == 'train' else -1
    rows = grain.MapDataset.source(Counting(256, nan_at, config.ragged))
    rows = rows.seed(config.seed)
    rows = rows.shuffle() if split == 'train' else rows
    rows = rows[jax.process_index() :: jax.process_count()]
    rows = rows.repeat() if split == 'train' else rows
    size = config.batch_size // jax.process_count()
    return rows.batch(size, drop_remainder=True).to_iter_dataset()

  return tasks.Task(
    init=init,
    loss=loss,
    dataset=dataset,
    pipeline_fingerprint='counting',
    tokens_per_step=config.batch_size * LENGTH,
    flops_per_step=6.0 * 2 * EMBED * MLP * config.batch_size * LENGTH,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(run_settings.Loop):
  """Eight steps on eight devices."""

  seed: int = 0
  num_steps: int = 8
  batch_size: int = 16
  log_every: int = 1
  eval_every: int = 4
  eval_batches: int = 2
  checkpoint_every: int = 3
  mesh: run_settings.Mesh = run_settings.Mesh(data=2, fsdp=2, tensor=2)
  optimizer: optimizers.OptimizerConfig = optimizers.OptimizerConfig(
    learning_rate=1e-2, warmup_steps=2
  )
  dropout_rate: float = 0.0
  nan_at: int = -1
  ragged: bool = False
  num_workers: int = 0


def get_config(**fields):
  """Return the config; `fields` override, sections as mappings."""
  for name in {'mesh', 'optimizer'} & fields.keys():
    if isinstance(fields[name], dict):
      section = dataclasses.replace(getattr(Config, name), **fields[name])
      fields[name] = section
  return Config(**fields)


def main(workdir, *arguments):
  """Trains in a process of its own."""
  fields = dict(argument[2:].split('=', 1) for argument in arguments)
  coordinator = fields.pop('coordinator', '')
  process = int(fields.pop('process', 0))
  die_at = int(fields.pop('die_at', 0))
  signal_at = int(fields.pop('signal_at', 0))
  name = fields.pop('signal', 'SIGTERM')
  signals.watch()
  if coordinator:
    jax.config.update('jax_num_cpu_devices', 4)
    jax.distributed.initialize(coordinator, 2, process)
  else:
    jax.config.update('jax_num_cpu_devices', 8)
  if die_at:
    _send_while_saving(die_at, signal.SIGKILL)
  if signal_at and not process:
    _send_while_saving(signal_at, signal.Signals[name])
  config = get_config(
    **{name: ast.literal_eval(value) for name, value in fields.items()}
  )
  try:
    loop.train(make_task(config), config, workdir)
  finally:
    if coordinator:
      jax.distributed.shutdown()


def _send_while_saving(at, number):
  save = checkpoint_writer.Checkpoints.save

  def save_and_send(self, step, state, batches, version):
    save(self, step, state, batches, version)
    if step == at:
      os.kill(os.getpid(), number)

  checkpoint_writer.Checkpoints.save = save_and_send


if __name__ == '__main__':
  main(*sys.argv[1:])
