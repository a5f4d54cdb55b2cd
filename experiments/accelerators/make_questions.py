# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Teach a decoder to ask, and let it ask, on a bare machine with an accelerator.

  python -m experiments.accelerators.make_questions --prompts=DIR --seconds=60

DIR is of experiments.accelerators.question_prompts. All weights of the decoder learn
(passage, answer) -> question for --seconds, in bfloat16; then it writes the likeliest
question, word by word, for each prompt. Writes DIR/made.npz: tokens [prompts, T].
--dry_run does one step and one batch, and writes nothing.
"""

from experiments.accelerators import absent  # noqa: F401, isort: skip

import dataclasses
import functools
import json
import pathlib
from typing import Any

from absl import flags, logging
import jax
import jax.numpy as jnp
import numpy as np

from experiments.accelerators import device_loop, weight_files
from experiments.engine import command, optimizers
from retrieval import settings
from retro_jax.decoding import decode, drawing
from retro_jax.nn import config as model_config, losses, retro, stack

PROMPTS, MADE = 'prompts.npz', 'made.npz'
DECODER, MODEL = 'decoder', 'model.json'
QUESTION = 32  # most tokens of a question
_OPTIMIZER = optimizers.OptimizerConfig(
  learning_rate=1e-4, warmup_steps=optimizers.TENTH, weight_decay=0.01
)


def draw(data, key, *, size: int) -> dict[str, jax.Array]:
  """Draw a batch of rows whose questions are scored."""
  rows = jax.random.randint(key, (size,), 0, len(data['tokens']))
  tokens = data['tokens'][rows].astype(jnp.int32)
  first, limit = data['prompt'][rows, None], data['length'][rows, None]
  at = jnp.arange(1, tokens.shape[1])
  return {
    'tokens': tokens[:, :-1],
    'targets': tokens[:, 1:],
    'segment_ids': (at <= limit).astype(jnp.int32),
    'loss_mask': (at >= first) & (at < limit),
  }


def write(
  model: retro.Retro, params: Any, tokens: np.ndarray, length: np.ndarray
) -> np.ndarray:
  """Return the likeliest tokens [n, T] after each prompt."""
  last, most = jnp.asarray(length) - 1, QUESTION
  given = {
    'tokens': jnp.asarray(tokens, jnp.int32),
    'segment_ids': (jnp.arange(tokens.shape[1]) <= last[:, None]).astype(int),
  }
  logits, cache = decode.first_logits(model, params, given, last)
  found, _ = decode.draw_tokens(
    model,
    params,
    drawing.of_draws(drawing.SamplingConfig(temperature=0.0)),
    most,
    jax.random.key(0),
    jnp.arange(len(tokens)),
    logits,
    cache,
    last,
    last + most - 1,
    np.array([0, most], np.int32),
  )
  return np.asarray(found).T


def make(
  folder: pathlib.Path, *, seconds: float, batch: int, rows: int, dry: bool
):
  """Train the decoder and write what it asks.

  Args:
    batch, rows: of a step of training, and of a batch of prompts.
    dry: whether one batch of prompts is enough.
  """
  given = json.loads((folder / MODEL).read_text())
  config = settings.build(model_config.RetroConfig, given, MODEL)
  config = dataclasses.replace(config, dtype='bfloat16', layers='scanned')
  params = weight_files.read(folder, DECODER)
  arrays = dict(np.load(folder / PROMPTS))
  data = {
    x: jnp.asarray(arrays[f'learned_{x}'].astype(np.int32))
    for x in ('tokens', 'prompt', 'length')
  }
  program = device_loop.Program(
    functools.partial(losses.loss, retro.Retro(config)),
    functools.partial(draw, size=batch),
    _OPTIMIZER,
    steps=1 if dry else 25,
  )
  start = stack.stack_params(config, params)
  for step, params, found in program.train(  # noqa: B007
    start, data, seed=0, seconds=seconds
  ):
    if step % 100 == 0 or dry:
      logging.info('step %d: %.3f nats a token.', step, found['loss'])
  params = stack.unstack_params(config, params)
  params = jax.block_until_ready(decode.narrowed(params, config.dtype))
  model = retro.Retro(dataclasses.replace(config, layers='unrolled'))
  tokens, length = arrays['asked_tokens'], arrays['asked_length']
  asked, made = len(tokens), []
  order = np.argsort(length, kind='stable')
  for low in range(0, rows if dry else asked, rows):
    at = np.resize(order[low : low + rows], rows)
    made.append(write(model, params, tokens[at], length[at]))
    if low % (16 * rows) == 0:
      logging.info('%d of %d prompts.', low, asked)
  if dry:
    return  # a rehearsal leaves what was made before
  made = np.concatenate(made)[:asked].astype(np.uint16)
  whole = np.zeros((asked, made.shape[1]), np.uint16)
  whole[order] = made
  np.savez_compressed(folder / MADE, tokens=whole)


def main(argv: list[str]) -> None:
  """Train and ask within the seconds given."""
  del argv
  values = flags.FLAGS
  make(
    pathlib.Path(values.prompts),
    seconds=0.1 if values.dry_run else values.seconds,
    batch=2 if values.dry_run else values.batch,
    rows=2 if values.dry_run else values.rows,
    dry=values.dry_run,
  )


if __name__ == '__main__':
  flags.DEFINE_string('prompts', None, 'Folder of the prompts.', required=True)
  flags.DEFINE_bool('dry_run', False, 'One step, one batch of prompts.')
  flags.DEFINE_float('seconds', 60, 'Of training.')
  flags.DEFINE_integer('batch', 64, 'Rows of a step.', 1)
  flags.DEFINE_integer('rows', 1024, 'Prompts that are answered together.', 1)
  command.main_of_script(main)
